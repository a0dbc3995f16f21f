"""Read nvbandwidth, text and JSON. Pure."""

from typing import Any

from seatrial.readers.documents import Document, items, listed
from seatrial.readers.nvidia_smi import MEMORY, PCIE
from seatrial.readers.p2p_bandwidth import bandwidth, slow_gpus, slow_pairs
from seatrial.readers.report import SAYS_BAD, WRONG_DATA, Lines, Report, Results, corrupt, failed
from seatrial.text.lazy_pattern import lazy

_SUM = lazy(r"SUM (\w{1,80}) (\d{1,9}(?:\.\d{1,6})?)\s*$")
# ` 0       N/A   394.10`
_ROW = lazy(r"\s*+(\d{1,4}+)((?:\s++(?:\d{1,9}+\.\d++|N/A))++)\s*+\Z")
_RATE = lazy(r"\d{1,9}(?:\.\d{1,6})?")
# Copies at once share links, and a latency is no rate
_NOT_COMPARED = lazy("all_to|to_all|latency")
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
    """Read the sum of each test, slow GPUs, wrong data and errors, each with its test.

    A test is named by the last line before that says that it is running; empty without one.
    """
    test = ""
    results = []
    measurements = []
    matrices: list[tuple[str, list[list[str]]]] = []
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
        elif match := _ROW.match(line):
            if match[1] == "0":
                matrices.append((test, []))
            if matrices:
                matrices[-1][1].append(match[2].split())
    for test, rows in matrices:
        results += _slow(test, rows)
    return Report("nvbandwidth", results, measurements)


def _slow(test: str, rows: list[Any]) -> Results:
    """Yield GPUs and pairs that are slower than most others in the matrix of a test, whose `rows`
    hold a cell for each GPU.
    """
    if _NOT_COMPARED.search(test):
        return
    rates = {}
    for row, cells in enumerate(rows):
        for column, cell in enumerate(listed(cells)):
            if _RATE.fullmatch(str(cell)):
                rates[row, column] = float(cell)
    if len(rows) > 1:
        yield from slow_pairs(test, rates)
        return
    of_gpus = {}
    for (_, gpu), rate in rates.items():
        of_gpus[gpu] = rate
    code = PCIE if "host" in test else MEMORY
    yield from slow_gpus(code, test, of_gpus)


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
            results += _slow(name, listed(test.get("bandwidth_matrix")))
    return Report("nvbandwidth", results, measurements)
