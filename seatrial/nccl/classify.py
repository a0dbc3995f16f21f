"""Why a run failed: known causes in the logs of NCCL, nccl-tests, mpirun, ssh, srun and the kernel."""

import re
from collections.abc import Iterable

from seatrial.nccl.causes import HOST, MPIRUN, NCCL, SSH, TESTS, Cause, Finding, xid_finding
from seatrial.nccl.text import any_of, clean

_MAX_FINDINGS = 64
_MAX_BOX = 60  # lines; the longest help text of Open MPI has 40
_MAX_EVIDENCE = 300
_RULE = re.compile(r"^\s*+[-=]{30,}+\s*+$")
Compiled = tuple[str, Cause, re.Pattern[str]]
_CAUSES: tuple[Compiled, ...] = tuple(
    (cause.needle, cause, re.compile(cause.pattern, re.IGNORECASE)) for cause in (*TESTS, *NCCL, *SSH, *MPIRUN, *HOST)
)
_NEEDLE = any_of(needle for needle, _, _ in _CAUSES)
_WRAPPED = tuple(entry for entry in _CAUSES if entry[1] in SSH or entry[1] in MPIRUN)
_SPEAKER = re.compile(
    r"(?<![\w.-])([A-Za-z0-9][\w.-]{0,252}+):\d{1,9}:\d{1,9} \[|\[([A-Za-z0-9][\w.-]{0,252}+):\d{1,9}\] "
)
_ERRORISH = re.compile(
    r"^(?:\S+ ){0,4}?\[?(?:fatal error|fatal|error|panic|critical)\]?\s*: |Traceback \(most recent call last\)"
    r"|\b(?:core dumped|Aborted|Killed)\s*$|^E\d{4} \d\d:",
    re.IGNORECASE,
)
_ERROR_WORD = any_of(("error", "fatal", "panic", "critical", "traceback", "core dumped", "aborted", "killed"))


class Classifier:
    """Find causes of failure in a log, line by line; memory does not grow with the log.

    Open MPI wraps its help texts at some 76 columns and sets them between lines of dashes: those are joined before
    they are matched, and so are two neighbouring lines where the dashes are lost.
    """

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str | None, int | None], Finding] = {}
        self._box: list[str] | None = None
        self._before = ""

    def feed(self, text: str, rank: int | None = None) -> None:
        """Takes one line that is already `clean`; `rank` is the one its label named."""
        if not text.strip():
            return
        if _RULE.match(text):
            self._toggle_box()
        elif self._box is not None and " NCCL " not in text and ": Test " not in text:
            self._box.append(text[:400])
            if len(self._box) >= _MAX_BOX:
                self._close_box()
        else:
            self._line(text, rank)

    def findings(self) -> list[Finding]:
        """What was found, causes before consequences, and each of them in the order of the log."""
        self._close_box()
        return sorted(self._by_key.values(), key=_weight)

    def _toggle_box(self) -> None:
        was_open = self._box is not None
        self._close_box()
        self._box = None if was_open else []

    def _close_box(self) -> None:
        box, self._box, self._before = self._box, None, ""
        if not box:
            return
        joined = " ".join(" ".join(box).split())
        findings = _all(joined)
        for finding in findings:
            self._keep(finding)
        if not findings:
            for line in box:
                self._line(line, None)

    def _line(self, text: str, rank: int | None) -> None:
        finding = _first(_CAUSES, text, rank) or (xid_finding(text) if "Xid" in text else None)
        if finding is None and self._before:
            joined = f"{self._before} {text.strip()}"
            finding = _first(_WRAPPED, joined, rank)
        self._before = text.strip() if finding is None and 40 < len(text) < 100 else ""
        finding = finding or _unknown(text, rank)
        if finding is not None:
            self._keep(finding)

    def _keep(self, finding: Finding) -> None:
        if len(self._by_key) < _MAX_FINDINGS:
            self._by_key.setdefault((finding.cause, finding.host, finding.rank), finding)


def classify(lines: Iterable[str]) -> list[Finding]:
    """The causes that `lines` of a log name, earliest primary cause first, then what followed from them."""
    classifier = Classifier()
    for raw in lines:
        text, rank = clean(raw)
        classifier.feed(text, rank)
    return classifier.findings()


def _first(causes: tuple[Compiled, ...], text: str, rank: int | None) -> Finding | None:
    """The first cause that a text shows; all needles are looked for at once, since most lines show none."""
    lower = text.lower()
    if not _NEEDLE.search(lower):
        return None
    for needle, cause, pattern in causes:
        if needle in lower and (match := pattern.search(text)):
            return _finding(cause, match, text, rank)
    return None


def _all(text: str) -> list[Finding]:
    """Every cause that a joined box of lines shows, in the order of the table of causes."""
    lower = text.lower()
    hits = ((cause, pattern.search(text)) for needle, cause, pattern in _CAUSES if needle in lower)
    return [_finding(cause, match, text, None) for cause, match in hits if match]


def _finding(cause: Cause, match: re.Match[str], text: str, rank: int | None) -> Finding:
    groups = match.groupdict()
    named_rank = groups.get("rank")
    detail = f" ({groups['detail'].strip()[:120]})" if groups.get("detail") else ""
    return Finding(
        cause.kind,
        cause.cause + detail,
        " ".join(text.split())[:_MAX_EVIDENCE],
        groups.get("host") or _speaker(text),
        int(named_rank[:9]) if named_rank else rank,
        cause.secondary,
        cause.next_step,
        cause.fatal,
    )


def _speaker(text: str) -> str | None:
    """The host whose NCCL or MPI wrote the line."""
    match = _SPEAKER.search(text)
    return (match[1] or match[2]) if match else None


def _unknown(text: str, rank: int | None) -> Finding | None:
    """A line that calls itself an error and is none of the known ones."""
    if not (text.startswith(("E", "e")) or _ERROR_WORD.search(text.lower())) or not _ERRORISH.search(text):
        return None
    evidence = " ".join(text.split())[:_MAX_EVIDENCE]
    return Finding("unknown", "unclassified error", evidence, _speaker(text), rank, False, "read the log there", False)


def _weight(finding: Finding) -> tuple[bool, bool, bool]:
    return finding.kind == "unknown", finding.secondary, not finding.fatal
