"""Read nvbandwidth, text and JSON. Pure."""

from seatrial.model.measurement import Measurement, Subject
from seatrial.readers.documents import Document, items
from seatrial.readers.report import SAYS_BAD, WRONG_DATA, Lines, Report, corrupt, failed
from seatrial.text.lazy_pattern import lazy

_SUM = lazy(r"SUM (\w{1,80}) (\d{1,9}(?:\.\d{1,6})?)\s*$")
_WRONG_DATA = lazy(r"Invalid value when checking the pattern|ASSERT in expression h_errorFlag")
_NV_ERROR = lazy(r"\[?(?:CUDA_ERROR_\w{1,60}|NVML_ERROR_\w{1,60})\]?.{0,160}")
_OF_IMEX = lazy(
    r"CUDA_ERROR_NOT_PERMITTED.{0,80}cuMemCreate|cuMem(?:Ex|Im)port\w{2,6}ShareableHandle"
)
NVBANDWIDTH_LINE = lazy(
    r"\A(?:Running \w|SUM \w|Waived|memcpy "
    r"|\s*+\d++(?:\s++(?:\d++\.\d++|N/A))++\s*+\Z|\s++\d++(?:\s++\d++)*+\s*+\Z"
    "|Built from|CUDA (?:Runtime|Driver) Version|Driver Version|MPI version|NOTE: |Process "
    r"\d|Device \d|Number of"
    rf"|.{{0,200}}?(?:{_WRONG_DATA.pattern}|CUDA_ERROR_|NVML_ERROR_))"
)


def read_nvbandwidth(lines: Lines) -> Report:
    """Read sums in GB/s, wrong data and errors, each with its test.

    A test is named by the last line before that says that it is running; empty without one.
    """
    test = ""
    results = []
    measurements = []
    for line in lines:
        if line.startswith("Running "):
            test = line.removeprefix("Running ").strip(" .")[:80]
        elif _WRONG_DATA.search(line):
            results.append(corrupt(WRONG_DATA, f"{test}: data was wrong after a copy"))
        elif match := _NV_ERROR.search(line):
            code = SAYS_BAD
            if _OF_IMEX.search(match[0]):
                code = "tool-imex"
            results.append(failed(code, f"{test}: {match[0]}"))
        elif match := _SUM.match(line):
            measurements.append(bandwidth(match[1], float(match[2])))
    return Report("nvbandwidth", results, measurements)


def bandwidth(test: str, gb_s: float) -> Measurement:
    """Return the measurement of a test's sum."""
    return Measurement(
        metric="copy_bandwidth_sum",
        value=gb_s,
        unit="GB/s",
        subject=Subject("node", "node"),
        conditions={"test": test},
        samples=(gb_s,),
    )


def read_document(document: Document) -> Report | None:
    """Return the report of `nvbandwidth --json`; None for another document.

    A test that was waived has neither an error nor a sum, and is passed over.
    """
    output = document.get("nvbandwidth")
    if not isinstance(output, dict):
        return None
    results = []
    measurements = []
    for test in items(output, "testcases"):
        status = str(test.get("status", ""))
        total = test.get("sum")
        if status.lower() in ("error", "failed"):
            words = f"{test.get('name')}: {test.get('error') or status}"
            if _WRONG_DATA.search(str(test)):
                results.append(corrupt(WRONG_DATA, words))
            else:
                results.append(failed(SAYS_BAD, words))
        elif isinstance(total, int | float) and not isinstance(total, bool):
            name = str(test.get("name"))[:80]
            measurements.append(bandwidth(name, float(total)))
    return Report("nvbandwidth", results, measurements)
