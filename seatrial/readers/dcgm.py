"""Read `dcgmi diag` of DCGM 2 to 4, table and JSON, and `dcgmi health`. Pure.

A test that fails for a setting of the node (persistence mode, a library, a permission) says nothing
of the GPU.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from seatrial.model.verdict import Verdict
from seatrial.readers.documents import Document, items, json_in, listed
from seatrial.readers.nvidia_smi import FABRIC, MEMORY, NVLINK, PCIE, SLOWED
from seatrial.readers.report import MAX_WORDS, SAYS_BAD, Lines, Report, Result, Results
from seatrial.text.lazy_pattern import lazy
from seatrial.text.printable import printable

_MAX_TEXT = 16 << 20
_TOOL = "dcgmi diag"
Rows = Iterator[tuple[str, str]]  # the cells of each
_SETTING = "tool-dcgm-setting"
_NOT_RUN = "tool-dcgm-broke-off"
_UNSAID = (_NOT_RUN, SAYS_BAD)  # listed after results that name a part
_VERDICTS = {
    "pass": Verdict.PASS,
    "fail": Verdict.FAIL,
    "warn": Verdict.DEGRADED,
    "skip": Verdict.NOT_RUN,
}
# `Fail - GPU: 0`
_OUTCOME = lazy(r"(pass|fail|warn|skip)\w*(?: - (.{1,80}))?$", re.IGNORECASE)
# `GPU0: Pass`
_OF_ENTITY = lazy(r"([A-Za-z]{2,12}) ?(\d{1,4}): ?(pass|fail|warn|skip)\w*$", re.IGNORECASE)
# `Warning: GPU0`
_MESSAGE = lazy(r"(Warning|Error|Info)(?:: ?([A-Za-z]{2,12}) ?(\d{1,4}))?$")
_SETTINGS = (
    "denylist", "nvml library", "cuda main library", "cuda toolkit library", "permissions and os blocks", "software",
    "persistence mode", "environment variables", "graphics processes", "fabric manager",
)  # fmt: skip
_CODES = (  # the first whose pattern the warning, or else the test's name, has
    (
        _NOT_RUN,
        lazy(
            "internal error|child process|timed out|could not be run|unable to "
            "(?:load|run)|cuda api|cuctx|cuinit"
        ),
    ),
    (
        MEMORY,
        lazy(
            r"\bdbe\b|uncorrectable|row.?remap|retire|memtest|\bgpu memory\b|^memory$|\becc error"
        ),
    ),
    (
        _SETTING,
        lazy(
            r"persistence mode|not supported|permission|environment variable|ecc (?:mode|is)|in use"
        ),
    ),
    (NVLINK, lazy(r"nvlink|nvswitch|nvbandwidth")),
    (FABRIC, lazy(r"fabric manager")),
    (PCIE, lazy(r"pcie")),
    (SLOWED, lazy(r"thermal|temperature|slowdown|throttl|clock|power|pulse test")),
)
_FAULTS = (Verdict.FAIL, Verdict.DEGRADED)
_WORDS = {verdict: word for word, verdict in _VERDICTS.items()}
_FULL = 45  # characters of a warning in a row of the table
_HEALTH = lazy(r"\b(Healthy|Warning|Failure|Fail)\b")
# `-> GPU ID: 3`
_ENTITY = lazy(r"(?:-> ?)?(GPU|NvSwitch|Switch|CPU)?(?: ?ID)?:? ?(\d{1,4})$")
# `-> NVLink system: Failure`
_SYSTEM = lazy(
    r"(?:-> ?)?([A-Za-z][\w /-]{1,40} system)(?:: ?(?:Warning|Failure|Fail)\w* ?-? ?(.{0,200}))?$"
)
_STATES = {
    "Healthy": Verdict.PASS,
    "Warning": Verdict.DEGRADED,
    "Failure": Verdict.FAIL,
    "Fail": Verdict.FAIL,
}


def code_of(test: str, message: str) -> str:
    """Return the code of a test that did not pass: by its warning, else by what it tests."""
    for text in (message.lower(), test.lower()):
        for code, pattern in _CODES:
            if pattern.search(text):
                return code
        if text in _SETTINGS:
            return _SETTING
    return SAYS_BAD


@dataclass(slots=True)
class _Test:
    """A test of the table: its own results, those of its devices, and its warnings by device (""
    for all).
    """

    name: str
    outcomes: list[tuple[Verdict, str]] = field(default_factory=list)
    devices: list[tuple[str, Verdict]] = field(default_factory=list)
    warnings: dict[str, str] = field(default_factory=dict)

    def results(self) -> Results:
        """Yield the devices with a fault, else what the test says of itself."""
        has_fault = False
        for device, verdict in self.devices:
            if verdict in _FAULTS:
                has_fault = True
                warning = self.warnings.get(device, "")
                yield self._result(verdict, device, warning)
        if has_fault:
            return
        warnings = "; ".join(self.warnings.values())
        for verdict, where in self.outcomes:
            if verdict is not Verdict.NOT_RUN:
                yield self._result(verdict, where, warnings)

    def _result(self, verdict: Verdict, where: str, warning: str) -> Result:
        """Return one result; a device's own warning comes before the warning for all devices."""
        for_all = self.warnings.get("", "")
        return _result(self.name, verdict, where, warning or for_all)


def _result(test: str, verdict: Verdict, where: str, warning: str) -> Result:
    """Return the result of a test; one that failed for a setting of the node is degraded."""
    words = f"{test} {_WORDS[verdict]}"
    if where:
        words += f" on {where}"
    if verdict not in _FAULTS:
        return Result(verdict, SAYS_BAD, words)
    code = code_of(test, warning)
    if warning:
        words += f": {warning}"
    if code == _SETTING:
        verdict = Verdict.DEGRADED
        words += " (a setting, no broken GPU)"
    return Result(verdict, code, words)


def read_diag(lines: Lines) -> Report:
    """Read rows of tests, of their devices, and of warnings, which go on over several rows."""
    tests: list[_Test] = []
    of_warning: str | None = None  # the device whose warning the next row goes on with
    before = ""
    for label, value in _rows(lines):
        if tests and (match := _MESSAGE.match(label)):
            level, kind, number = match.groups()
            of_warning = f"{kind} {number}" if number else ""
            if level == "Info":
                of_warning = None
            else:
                tests[-1].warnings[of_warning] = value
        elif outcome := _OUTCOME.match(value):
            of_warning = None
            if label:
                tests.append(_Test(label))
            if tests:
                word = outcome[1].lower()
                where = outcome[2] or ""
                tests[-1].outcomes.append((_VERDICTS[word], where))
        elif tests and not label and (match := _OF_ENTITY.match(value)):
            of_warning = None
            kind, number, word = match.groups()
            verdict = _VERDICTS[word.lower()]
            tests[-1].devices.append((f"{kind} {number}", verdict))
        elif of_warning is not None and not label:
            warnings = tests[-1].warnings
            joint = "" if len(before) >= _FULL else " "  # a full row breaks within a word
            whole = f"{warnings[of_warning]}{joint}{value}"
            warnings[of_warning] = whole[:MAX_WORDS]
        else:
            of_warning = None
        before = value
    return _report(tests)


def _report(tests: Sequence[_Test]) -> Report:
    """Return the results, those that name a part first, with a note on what did not run."""
    skipped = []
    results: list[Result] = []
    for test in tests:
        results += test.results()
        if test.outcomes and test.outcomes[-1][0] is Verdict.NOT_RUN:
            skipped.append(test.name)
    results.sort(key=lambda result: result.code in _UNSAID)
    notes = []
    if skipped:
        names = ", ".join(skipped[:8])
        notes.append(f"not run: {names}")
    return Report(_TOOL, results, notes=notes)


def _rows(lines: Lines) -> Rows:
    """Yield the two cells of each row that has two."""
    for line in lines:
        cells = line.strip().split("|")
        if len(cells) == 4 and not cells[0]:
            yield cells[1].strip(), cells[2].strip()


@dataclass(frozen=True, slots=True)
class Diagnosis(Result):
    """The result of one test of `dcgmi diag`, and the numbers of its GPUs; none where it names no
    GPU.
    """

    gpus: tuple[int, ...]


def read_diagnoses(text: str) -> list[Diagnosis]:
    """Return the results in the JSON that `dcgmi diag -j` prints, which may stand behind warnings.

    None in another text.
    """
    document = json_in(text[:_MAX_TEXT])
    return list(_diagnoses(document))


def read_document(document: Document) -> Report | None:
    """Return the report of `dcgmi diag --json`; None for another document."""
    is_diagnosis = any("DCGM" in key and "iagnos" in key for key in document)
    if not is_diagnosis:
        return None
    return Report(_TOOL, tuple(_diagnoses(document)))


def _diagnoses(document: Any) -> Iterator[Diagnosis]:
    """Yield the results of all tests, wherever DCGM 2 to 4 put them."""
    if not isinstance(document, dict):
        return
    for value in document.values():
        for category in items(value, "test_categories"):
            for test in items(category, "tests"):
                name = str(test.get("name"))
                results = items(test, "results") or items(test, "test_summary")
                for result in results:
                    yield from _diagnosis(name, result)


def _diagnosis(test: str, result: Document) -> Iterator[Diagnosis]:
    """Yield the diagnosis of one result, with its first warning; nothing where it did not run."""
    status = str(result.get("status", "")).lower()
    verdict = Verdict.NOT_RUN
    for word, named in _VERDICTS.items():
        if status.startswith(word):
            verdict = named
    if verdict is Verdict.NOT_RUN:
        return
    group = str(result.get("entity_group", "GPU"))
    ids = None
    for key in ("gpu_ids", "gpu_id", "entity_id"):
        if key in result:
            ids = result[key]
            break
    where = "" if ids is None else f"{group} {ids}"
    # A text, or an object with one
    first = next(iter(listed(result.get("warnings"))), "")
    if isinstance(first, dict):
        first = first.get("warning", "")
    read = _result(test, verdict, where, str(first))
    numbers = []
    if group == "GPU" and read.code != _SETTING:
        numbers = re.findall(r"\d{1,4}", str(ids))
    yield Diagnosis(
        verdict=read.verdict,
        code=read.code,
        words=printable(read.words)[:MAX_WORDS],
        gpus=tuple(map(int, numbers)),
    )


def read_health(lines: Lines) -> Report:
    """Read the state of all, then of each GPU or switch, and under it the systems with their
    messages.
    """
    overall: Result | None = None
    entries: list[list[Any]] = []  # verdict, device, system, message
    device = ""
    group = "GPU"
    for label, value in _health_rows(lines):
        state = _state_in(value)
        if "Overall Health" in f"{label}{value}":
            overall = _overall(f"{label} {value}")
        elif label and (match := _ENTITY.match(label)):
            group = match[1] or group
            device = f"{group} {match[2]}"
            if state and state != "Healthy":
                entries.append([_STATES[state], device, "", ""])
        elif (match := _SYSTEM.match(label or value)) and entries:
            verdict = _STATES[state] if state else entries[-1][0]
            entries.append([verdict, device, match[1], match[2] or ""])
        elif label in ("GPU", "NvSwitch", "Switch", "CPU"):
            group = label
        elif not label and value and entries:
            message = f"{entries[-1][3]} {value}".strip()
            entries[-1][3] = message[:MAX_WORDS]
    explained = {device for _, device, system, message in entries if system or message}
    results = []
    for verdict, device, system, message in entries:
        if system or message or device not in explained:
            results.append(_of_health(verdict, device, system, message))
    if overall and not results:
        results = [overall]
    return Report("dcgmi health", results)


def _state_in(text: str) -> str:
    """Return the state in a row; empty without one."""
    if match := _HEALTH.search(text):
        return match[1]
    return ""


def _overall(row: str) -> Result | None:
    """Return the state of all together."""
    state = _state_in(row)
    if not state:
        return None
    return Result(_STATES[state], SAYS_BAD, f"overall health: {state}")


def _of_health(verdict: Verdict, device: str, system: str, message: str) -> Result:
    """Return the state of a device, with the code of the system that it names."""
    parts = filter(None, (device, system, message))
    words = ": ".join(parts)
    code = SAYS_BAD
    if system or message:
        code = code_of(system, message)
    return Result(verdict, code, words)


def _health_rows(lines: Lines) -> Rows:
    """Yield the cells of each row; a row of one cell has no value."""
    for line in lines:
        if not line.lstrip().startswith("|"):
            continue
        row = line.strip().strip("|")
        first, *others = [cell.strip() for cell in row.split("|")]
        value = others[0] if others else ""
        yield first, value
