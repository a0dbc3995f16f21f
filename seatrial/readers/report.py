"""What a reader makes of a part: results, measurements and notes, and the check that they become.

Pure.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, join
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict, worst
from seatrial.text.printable import printable
from seatrial.text.redact import Secrets

Lines = Sequence[str]  # of a part
MAX_WORDS = 200
_MAX_SHOWN = 4
_MAX_MEASUREMENTS = 1000
SAYS_BAD = "tool-says-bad"
WRONG_DATA = "tool-wrong-data"


@dataclass(frozen=True, slots=True)
class Result:
    """One result of a tool; `words` name the device, `code` is that of the reason and so of the
    next step.
    """

    verdict: Verdict
    code: str
    words: str


Results = Iterator[Result]


def passed(words: str) -> Result:
    """Return the result of a device without a fault."""
    return Result(Verdict.PASS, SAYS_BAD, words)


def degraded(code: str, words: str) -> Result:
    """Return the result of a device that works worse than it should."""
    return Result(Verdict.DEGRADED, code, words)


def failed(code: str, words: str) -> Result:
    """Return the result of a device that does not work."""
    return Result(Verdict.FAIL, code, words)


def corrupt(code: str, words: str) -> Result:
    """Return the result of a device that computes or carries wrong numbers."""
    return Result(Verdict.CORRUPT, code, words)


@dataclass(frozen=True, slots=True)
class Report:
    """What a tool printed. `notes` are events that change no verdict."""

    tool: str
    results: Sequence[Result] = ()
    measurements: Sequence[Measurement] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Reader:
    """One kind of part: its marks, and how it is read.

    - `needles`: one of these texts stands in every line that `begins` matches; looked for first
      because that is cheap.
    - `begins`: the first line of a part.
    - `belongs`: its other lines. Strict, because such a line is read by nothing else.
    - `ends`: the last line, if every line up to it belongs to the part (a document in JSON or XML).
    - `read`: the report of the lines; None if they are of another kind, and something else reads
      them.
    - `patience`: how many other lines may stand between two lines of the part.
    - `is_labelled`: whether lines with the label of a rank or a host are parts of their own.
    - `prints` and `finds`: a line of the list in docs/judging-logs.md.
    """

    prints: str
    finds: str
    needles: tuple[str, ...]
    begins: re.Pattern[str]
    read: Callable[[Lines], Report | None]
    belongs: re.Pattern[str] = re.compile(r"(?!)")
    ends: re.Pattern[str] | None = None
    patience: int = 20
    is_labelled: bool = True


def check_of(report: Report, name: str, label: str = "") -> Check:
    """Return the worst of a tool's results, with those that are bad; without any the tool did not
    finish.

    `label` is the host or rank that the lines were labelled with.
    """
    if label:
        report = replace(report, tool=f"{report.tool} on {label}")
    kept = tuple(report.measurements[:_MAX_MEASUREMENTS])
    if not report.results and not kept:
        return Check(
            name=name,
            verdict=Verdict.INCONCLUSIVE,
            reason=Reason.of("tool-unfinished", tool=report.tool),
        )
    verdict = worst([result.verdict for result in report.results] or [Verdict.PASS])
    notes = (
        [Reason.of("tool-noted", tool=report.tool, what=_listed(report.notes))]
        if report.notes
        else []
    )
    if verdict is Verdict.PASS:
        summary = Reason.of("tool-measured", tool=report.tool, count=len(kept))
        if report.results:
            summary = Reason.of("tool-passed", tool=report.tool, count=len(report.results))
        return Check(name=name, verdict=verdict, reason=join((summary, *notes)), measurements=kept)
    bad = [result for result in report.results if result.verdict is not Verdict.PASS]
    bad.sort(key=lambda result: result.verdict.severity)
    words_by_code: dict[str, list[str]] = {}
    for result in bad:
        words_by_code.setdefault(result.code, []).append(result.words)
    reasons = [
        Reason.of(code, tool=report.tool, what=_listed(words))
        for code, words in words_by_code.items()
    ]
    return Check(name, verdict, join((*reasons, *notes)), measurements=kept)


def _listed(texts: Sequence[str]) -> str:
    """Return the first few texts, each once."""
    secrets = Secrets()
    distinct = list(
        dict.fromkeys(secrets.out_of_line(printable(text)[:MAX_WORDS]) for text in texts)
    )
    more = f" and {len(distinct) - _MAX_SHOWN} more" if len(distinct) > _MAX_SHOWN else ""
    return "; ".join(distinct[:_MAX_SHOWN]) + more
