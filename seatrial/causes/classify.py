"""Why a run failed: the causes of the table `causes.csv` in a log, line by line.

A line counts only as what its program can have written: NCCL's behind its own prefix or behind
`Last error:`, the kernel's behind the kernel's, and all others at the start of a line, behind
prefixes of loggers.
"""

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from seatrial.causes.flaps import Flaps
from seatrial.causes.stages import Stages
from seatrial.causes.table import (
    CAUSES,
    OTHERS,
    TRACEBACK,
    UNKNOWN,
    Cause,
    Finding,
    Severity,
    evidence_of,
    finding_of_class,
)
from seatrial.causes.warnings import finding_of_warning
from seatrial.causes.watchdog import Watchdog
from seatrial.causes.xid import hardware_first, with_other_gpus, xid_finding
from seatrial.text.lazy_pattern import lazy
from seatrial.text.wrapping import Words, any_of, clean, unwrapped

Match = re.Match[str]
_MAX_FINDINGS = 64
_MAX_HOSTS = 1024
_MAX_BOX = 60  # lines; the longest help text of Open MPI has 40
_MAX_MESSAGE = 1000  # characters of a message of NCCL
_RULE = lazy(r"^\s*+[-=]{30,}+\s*+$")
_BOX_BEGINS = "Root Cause (first observed failure)"  # torchrun's box may have lost its rule

# A short number before a colon is part of a time; of a log whose names were taken out, none is left
_HOST = r"(?<![\w.-])((?!\d{1,3}:)[A-Za-z0-9][\w.-]{0,252}+)"
_NCCL = lazy(
    rf"(?:{_HOST})?:\d{{1,9}}:\d{{1,9}} \[-?\d{{1,9}}\] (?=.{{0,300}}?NCCL (WARN|ERROR|ABORT|INFO))"
    r"|\A(?!.{0,200}:\d{1,9}:\d{1,9} \[-?\d).{0,120}?"
    r"(?=(?<!\S)[\w./*()]{1,200}:\d{1,6} (?:\(\w{1,60}\) )?NCCL WARN )"
    r"|\ALast error: |Test NCCL failure \S{1,200} '[^'/]{0,200}/ (?=[^'])"
)
_WRITER = lazy(
    rf"{_HOST}:\d{{1,9}}:\d{{1,9}} \["
    rf"|\[(?!RankMonitor|[\w.-]{{1,80}}\.(?:py|cc|cpp):)([A-Za-z0-9][\w.-]{{0,252}}+)[:\]](?:\d{{1,9}}\] |\[[\[\d])"
    r"|(?<![\w.-])([\w.-]{1,253}+) kernel: "
    r"|\A\w{3} +\d{1,2} [\d:]{8} ([\w.-]{1,253}+) [\w.-]{1,60}+\[\d{1,9}\]: "
)
_TOKEN = r"(?:[\w./@+-]{1,200}+(?:\[\d{1,9}\])?:|\[(?:[^\[\]]|\[[^\[\]]{0,40}\]){1,120}+\]:?|\([^()]{1,120}+\))"
_START = rf"\A\s*+(?:{_TOKEN}\s*+){{0,4}}?"
_TESTS = rf"{_START}(?:(?P<writer>[\w.-]{{1,253}}+): (?=Test ))?"
_CUDA = (
    r"(?:(?:CUDA|HIP) (?:failure|error)(?: \S{1,80}\.cu:\d+)?:?(?: \d+)?:? ?'?|Error \d+: "
    r"|cuda runtime error \(\d{1,4}\) ?: |THCudaCheck FAIL file=\S{1,200} line=\d{1,6} "
    r"error=\d{1,4} : "
    r"|call to cu\w{1,40} returned error \d{1,3}(?: \(\w{1,60}\))?: )"  # of OpenACC
)
_OF_CUDA = r"(?:failure|error) (?:\d+ )?'?"  # in a message of NCCL
_CLOCK = (  # of dmesg, dmesg -T, dmesg -H
    r"\[ *(?:\+?\d[\d.]*|\w{3} \w{3} +\d+ [\d:]{8} \d{4}|\w{3} ?\d{1,2} \d\d:\d\d)\] "
    r"?(?:\[ *[CT]\d+\] ?)?"
)
_KERNEL = rf"\A(?:<\d+>|kern +:\w+ *: )?(?:{_CLOCK}|.{{0,120}}?\bkernel: ?(?:{_CLOCK})?)?"
_PLACES = {  # where a line of a program's can stand
    "nccl": "",  # behind its prefix
    "nccl-tests": _TESTS,
    "cuda": rf"{_TESTS}.{{0,200}}?{_CUDA}",
    "slurm": (
        rf"{_START}(?:srun|slurmstepd|sbatch|salloc|slurmd)(?:-(?P<writer>[\w.-]{{1,100}}))?: "
        "(?:error|fatal): +"
    ),
    "pyxis": rf"(?:{_START}|\A.{{0,120}}?\berror: )pyxis: +",
    "libfabric": r"\A.{0,120}?\blibfabric:\S{0,200}<(?:warn|error)> ",
    "c10d": r"\A.{0,200}?\[?[EWFI]?[ \d:.]{0,40}ProcessGroupNCCL\.cpp:\d{1,6}\] ",
    "ucx": (
        r"\A.{0,80}?\[?(?P<writer>[\w.-]{1,253}+):\d{1,9} *:[\da-f]{1,9}(?::\d{1,9})?\] +"
        r"(?:\S{1,80}:\d{1,6} +)?(?:UC[CX] +(?!WARN|DIAG)\w+ +)?"
    ),
    "oneccl": r"\A.{0,120}?\|CCL_ERROR\| ",
    "slurmd": (
        rf"(?:\A.{{0,120}}?\bslurm(?:ctld|d|stepd)(?:\[\d{{1,9}}\])?: |{_START})(?:error: "
        "|fatal: |debug: )?"
    ),
    "shell": r"\A ?(?:\S{1,200}: ){0,2}(?:line )?(?:\d{1,6}: +)?",
    "kernel": _KERNEL,
    "driver": rf"{_KERNEL}(?:NVRM: )?",
}
_BOXED = frozenset({"mpirun", "torch"})  # their boxes are joined before they are matched
_UNBOXED = frozenset(cause.program for cause in CAUSES) - _BOXED
# Programs whose lines are joined in pairs where the box is lost
_WRAPPED = frozenset({"mpirun", "ssh", "cuda"})
_NEEDLES = Words(cause.needle for cause in CAUSES if cause.needle)
_LINES = tuple(cause for cause in CAUSES if cause.needle)
# An information of NCCL is at most a note, and most logs are little else
_OF_INFO = tuple(
    cause for cause in _LINES if cause.program in ("nccl", "cuda") and cause.severity == "note"
)
_ERRORISH = lazy(
    r"^(?:\S+ ){0,4}?\[?(?:fatal error|fatal|error|panic|critical)\]?\s*: |Traceback \(most "
    r"recent call last\)"
    r"|\b(?:core dumped|Aborted|Killed)\s*$|^E\d{4} \d\d:",
    re.IGNORECASE,
)
_ERROR_WORD = any_of(
    ("error", "fatal", "panic", "critical", "traceback", "core dumped", "aborted", "killed")
)
_RAISED = lazy(r"\s{0,40}(?:[a-zA-Z_][\w.]{0,120}(?:Error|Exception|Interrupt|Exit|Timeout)\b)")
_RANK = lazy(r"\[(?:PG [^\]]{0,120} )?Rank (\d{1,7})\]")
_PCI = lazy(r"\b(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\b")
# Of MPICH's error stack, whose first line names rank and host
_STACK = lazy(r"\w{1,60}\(\d{1,9}\)\.*: ")


_TIME_LIMITS = frozenset({"log-slurm-time-limit", "log-time-limit"})
_OF_PORTS = frozenset({"log-port-error", "log-link-flapped"})
_DETAIL = lazy(r" \(([^()]{1,60})\)$")
_VERSION = lazy(r"\bNCCL version (\d{1,2}\.\d{1,3}\.\d{1,3})\b")
_VERSION_OF_RANK = lazy(r"\brank (\d{1,7}) version (\d{4,6})\b")
_OF_MEMORY = frozenset({"log-host-memory", "log-machine-check"})
_VAGUE = frozenset({"log-machine-check-corrected"})  # notes that say less than any other


class Classifier:
    """Find causes of failure in a log, line by line; memory does not grow with the log.

    Open MPI wraps its help texts at some 76 columns and sets them between lines of dashes: those
    are joined before they are matched, and so are two neighbouring lines where the dashes are lost.
    """

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str | None, int | None, Severity], Finding] = {}
        self._box: list[str] | None = None
        self._before = ""
        self._driver: deque[str] = deque(maxlen=3)  # NVRM breaks its sentences over lines
        # By host, the last message of NCCL or of a traceback that names a cause
        self._messages: dict[str | None, str] = {}
        self._last_error = self._traceback = False
        self._watchdog = Watchdog()
        self._stages = Stages()
        self._flaps = Flaps()
        self.nccl_version: str | None = None  # the first one that NCCL prints
        self._ended: Finding | None = None  # of MPICH, the rank whose error stack is read

    def feed(self, text: str, rank: int | None = None) -> None:
        """Take one line that is already `clean`; `rank` is the one its label named."""
        if not text.strip():
            return
        if _RULE.match(text):
            was_open = self._box is not None
            self._close_box()
            self._box = None if was_open else []
        elif self._box is not None and " NCCL " not in text and ": Test " not in text:
            self._box.append(text[:400])
            if len(self._box) >= _MAX_BOX:
                self._close_box()
        elif text.startswith(_BOX_BEGINS):
            self._box = [text]
        else:
            self._line(text, rank)

    def findings(self) -> list[Finding]:
        """Return the findings, causes before consequences, and each of them in the order of the
        log.
        """
        self._close_box()
        named = without_unnamed_devices(self._by_key.values())
        findings = sorted(map(self._with_detail, hardware_first(named)), key=weight)
        if findings and findings[0].code in _TIME_LIMITS and (words := self._stages.unfinished()):
            ended = findings[0]
            hung = finding_of_class("connect", "fatal", ended.evidence, None, None)
            findings[0] = replace(hung, cause=f"{hung.cause}: {words}; {ended.cause}")
        return findings

    def _with_detail(self, finding: Finding) -> Finding:
        """Add what other lines say: the ranks that are behind, times of a port, a message for a
        status.
        """
        if finding.code == "log-watchdog" and (seen := self._watchdog.behind()):
            shown = evidence_of(seen.evidence) if seen.evidence else finding.evidence
            return replace(finding, cause=f"{finding.cause}: {seen.words}", evidence=shown)
        finding = with_other_gpus(finding, self._by_key.values())
        port = _DETAIL.search(finding.cause) if finding.code in _OF_PORTS else None
        if port:
            times = self._flaps.words(finding.host, port[1])
            finding = _with_evidence(finding, times)
        if finding.code == "log-heap" and self.nccl_version:
            finding = _with_evidence(finding, f"NCCL {self.nccl_version}")
        if finding.code in _OF_MEMORY:
            dimms = [each.cause for each in self._by_key.values() if each.code == "log-host-dimm"]
            finding = replace(finding, cause="; ".join((finding.cause, *dimms[:2])))
        if finding.severity != "status":
            return finding
        message = self._messages.get(finding.host) or self._messages.get(None)
        return replace(finding, evidence=message or finding.evidence)

    def _close_box(self) -> None:
        """Look for causes in a box of Open MPI as a whole, then in each of its lines."""
        box = self._box
        self._box = None
        self._before = ""
        if not box:
            return
        joined = " ".join(" ".join(box).split())
        is_known = False
        lower = joined.lower()
        for cause in _LINES:
            if (
                cause.program in _BOXED
                and cause.needle in lower
                and (match := compiled(cause, "").search(joined))
            ):
                self._keep(_finding(cause, match, joined, None, None))
                is_known = True
        for line in box:
            self._line(line, None, of_box=is_known)

    def _line(self, text: str, rank: int | None, *, of_box: bool = False) -> None:
        """Look for the cause of one line, or of two that were one before they were wrapped."""
        line = f"Last error: {text.strip()}" if self._last_error else text
        self._last_error = text.rstrip().endswith("Last error:")
        is_of_driver = "NVRM" in line or "Xid" in line
        finding = None
        if is_of_driver:
            finding = xid_finding(line)
        if finding is None:
            finding = _first_cause(line, rank, _UNBOXED if of_box else None)
        if finding is None and is_of_driver:
            self._driver.append(line.partition("NVRM: ")[2].strip())
            joined = " ".join(self._driver)
            finding = _first_cause(joined, None, frozenset({"driver"}))
            finding = finding and replace(finding, evidence=evidence_of(joined), host=_writer(line))
        if finding is None and self._before and not of_box:
            finding = _first_cause(f"{self._before} {text.strip()}", rank, _WRAPPED)
        self._before = text.strip() if finding is None and 40 < len(text) < 100 else ""
        self._watchdog.take(text)
        self._stages.take(text)
        self._flaps.take(text)
        if (
            self.nccl_version is None
            and "NCCL version" in text
            and (match := _VERSION.search(text))
        ):
            self.nccl_version = match[1]
        finding = self._raised(text, rank, finding) or finding
        if finding is None and not of_box:
            finding = self._unlisted(line, rank)
        if finding is not None:
            self._keep(finding)

    def _raised(self, text: str, rank: int | None, finding: Finding | None) -> Finding | None:
        """Return a finding for the last line of a traceback, unless `finding` already has its
        cause.
        """
        if text.lstrip().startswith("Traceback (most recent call last)"):
            self._traceback = True
        elif self._traceback and _RAISED.match(text):
            self._traceback = False
            self._keep_message(None, text)
            if finding:
                return None
            return OTHERS[TRACEBACK].found(text, None, rank)
        return None

    def _unlisted(self, text: str, rank: int | None) -> Finding | None:
        """Return a finding for an unknown line that calls itself an error, or is a warning of
        NCCL.
        """
        if " NCCL INFO " in text:
            return None
        prefix = _prefix_of(text)
        if prefix:
            message = text[prefix.end() :]
            self._keep_message(prefix[1], message if prefix[1] else text)
            return finding_of_warning(text, message, prefix[1], rank)
        may_be_error = text.startswith(("E", "e")) or _ERROR_WORD.search(text.lower())
        if not may_be_error or "Traceback" in text or not _ERRORISH.search(text):
            return None
        return OTHERS[UNKNOWN].found(text, _writer(text), rank)

    def _keep_message(self, host: str | None, message: str) -> None:
        """Keep the latest message of a host that names a cause; None where it names no host."""
        if host in self._messages or len(self._messages) < _MAX_HOSTS:
            self._messages[host] = evidence_of(message)

    def _keep(self, finding: Finding) -> None:
        """Keep a finding, unless there are too many."""
        if finding.code == "log-watchdog":  # the rank that reports it only waited
            finding = replace(finding, rank=None)
        self._name_host_of_heap(finding)
        if finding.code == "log-mpi-fatal":
            self._ended = finding
        elif self._ended and _STACK.match(finding.evidence):
            finding = replace(finding, host=finding.host or self._ended.host, rank=self._ended.rank)
        if len(self._by_key) < _MAX_FINDINGS:
            self._by_key.setdefault(
                (finding.cause, finding.host, finding.rank, finding.severity), finding
            )

    def _name_host_of_heap(self, crashed: Finding) -> None:
        """Add the host of a crash to the corrupted heap before it, which glibc reports without a
        host.
        """
        if crashed.code != "log-crashed" or crashed.host is None:
            return
        for key, finding in self._by_key.items():
            if finding.code == "log-heap" and finding.host is None:
                self._by_key[key] = replace(finding, host=crashed.host)


def classify(lines: Iterable[str]) -> list[Finding]:
    """Return the causes that `lines` of a log name, earliest primary cause first, then what
    followed from them.
    """
    classifier = Classifier()
    for raw in lines:
        for line in unwrapped(raw):
            classifier.feed(*clean(line))
    return classifier.findings()


def cause_in(text: str) -> Finding | None:
    """Return the cause in a message of several lines, such as a kubelet's or a driver's tool.

    The first cause that ends a run counts; None without one.
    """
    for finding in classify(text.splitlines()):
        if finding.severity == "fatal":
            return finding
    return None


def _first_cause(text: str, rank: int | None, programs: frozenset[str] | None) -> Finding | None:
    """Return the first cause of the table that a line shows.

    All needles are looked for at once, since most show none.
    """
    lower = text.lower()
    prefix = _prefix_of(text)
    is_info = prefix is not None and prefix[2] == "INFO"
    if not is_info and not _NEEDLES.is_any_in(lower):
        return None
    for cause in _OF_INFO if is_info else _LINES:
        if cause.needle not in lower or (programs and cause.program not in programs):
            continue
        match = _match_nccl(cause, text, prefix) if prefix else None
        if match is None and not prefix and cause.program != "nccl":
            match = compiled(cause).match(text)
        if match:
            return _finding(cause, match, text, rank, prefix)
    return None


def _prefix_of(text: str) -> Match | None:
    """Return what stands before a message of NCCL: its host, unless the log has lost it."""
    if " NCCL " in text or "Last error: " in text:
        return _NCCL.search(text)
    return None


def _match_nccl(cause: Cause, text: str, prefix: Match) -> Match | None:
    """Match a line behind NCCL's prefix; of an information, `cause` is a note."""
    if cause.program == "nccl-tests" and not prefix[2] and not text.startswith("Last error"):
        return compiled(cause).match(text)
    if cause.program not in ("nccl", "cuda"):
        return None
    pattern = compiled(cause) if cause.program == "nccl" else compiled(cause, _OF_CUDA)
    return pattern.search(text, prefix.end(), prefix.end() + _MAX_MESSAGE)


@cache
def compiled(cause: Cause, before: str | None = None) -> re.Pattern[str]:
    """Return the pattern with what stands before it, else with what may stand before a line of its
    program.
    """
    place = _PLACES.get(cause.program, _START) if before is None else before
    return lazy(f"{place}(?:{cause.pattern})", re.IGNORECASE)


def _finding(
    cause: Cause, match: Match, text: str, rank: int | None, prefix: Match | None
) -> Finding:
    """Return the finding of a cause, with the host and the rank that the line names."""
    groups = match.groupdict()
    named = groups.get("host")
    detail = (groups.get("detail") or "").strip()
    if cause.code == "log-nccl-builds":
        versions = [
            f"rank {of}: {nccl_version(int(number))}"
            for of, number in _VERSION_OF_RANK.findall(detail)
        ]
        detail = ", ".join(versions) or detail
    named_rank = groups.get("rank") or ((own := _RANK.search(text)) and own[1])
    writer = (prefix[1] if prefix else None) or groups.get("writer") or _writer(text)
    finding = cause.found(text, named or writer, int(named_rank[:9]) if named_rank else rank)
    if detail:
        return replace(finding, cause=f"{cause.cause} ({detail[:220]})")
    return finding


def _with_evidence(finding: Finding, words: str) -> Finding:
    """Put `words`, if any, before the evidence of the finding."""
    if words:
        return replace(finding, evidence=evidence_of(f"{words}; {finding.evidence}"))
    return finding


def nccl_version(number: int) -> str:
    """Convert a version number of NCCL: 22703 is 2.27.3; until 2.8 it had one digit less."""
    major = 10_000 if number >= 10_000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def without_unnamed_devices(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings without kernel lines that name no device, if another line of the same
    cause names one.
    """
    listed = list(findings)
    named = {(each.code, each.host) for each in listed if _PCI.search(each.cause)}
    return [
        each
        for each in listed
        if each.program != "driver"
        or _PCI.search(each.cause)
        or (each.code, each.host) not in named
    ]


def _writer(text: str) -> str | None:
    """Return the host whose NCCL, MPI or kernel wrote the line."""
    match = _WRITER.search(text)
    if match:
        return match[match.lastindex or 0]
    return None


def weight(finding: Finding) -> tuple[bool, int, bool]:
    """Return a sort key: causes before statuses, notes and consequences, and unlisted errors last.

    A warning of NCCL that is known by its class alone comes after the causes that a line names.
    """
    rank = ("fatal", "class", "status", "note", "follows")
    kind = rank.index("class" if finding.of_class else finding.severity)
    return finding.unknown, kind, finding.code in _VAGUE
