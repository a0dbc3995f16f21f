"""Read what `ncclras` prints: communicators whose ranks do not answer, report errors, or are out of
step. Pure.

Source: NCCL's src/ras/client_support.cc, 2.24 to 2.30. RAS lists the outliers, which are the few:
whether they are behind or ahead is in the counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from seatrial.model.verdict import Verdict
from seatrial.readers.report import Lines, Report, Result, Results, failed, passed
from seatrial.text.lazy_pattern import lazy
from seatrial.text.words import some_of

MISSING = "ras-rank-missing"
FAILED = "ras-rank-failed"
OUT_OF_STEP = "ras-out-of-step"
BEGINS = lazy(
    r"\A(?:Communicators\.\.\.|Group {1,20}Comms {1,20}Nodes|#\d{1,9}-\d{1,9} "
    r"\([0-9a-f]{16}\) [A-Z]|Job summary\s*$)"
)
_HEADING = lazy(
    r"(?:#\d{1,9}-\d{1,9} \([0-9a-f]{16}\) "
    r")?(?P<kinds>(?:INCOMPLETE|MISMATCH|ERROR|DEAD|TIMEOUT)(?:,[A-Z]{4,10})*)\s*$"
)
_MEMBER = lazy(
    r"\s{1,8}Rank (?P<rank>\d{1,7})(?P<says> (?:has|reported) .{1,80}?)? -- GPUs? "
    r"(?P<gpu>[\d,]{1,80})"
    r"(?: \(NVML .{1,20}\))? managed by process (?P<process>\d{1,10}) on node (?P<node>\S{1,253})"
)
_PROCESS = lazy(
    r"\s{1,8}Process (?P<process>\d{1,10}) on node (?P<node>\S{1,253}) managing GPUs? "
    r"(?P<gpu>[\d,]{1,80})"
)
_COUNT = lazy(
    r"\s{1,8}(?P<ranks>\d{1,7}) ranks? ha(?:ve|s) "
    r"(?:launched up to operation (?P<number>\d{1,18})|not launched any|status "
    r"(?P<status>\w{1,20}))"
)
_OPERATION = lazy(
    r"\s{1,8}Communicator ranks have different (?P<what>\w{1,40}(?: operation counts)?)"
)
_ROW = lazy(
    r"\s{0,8}\d{1,9}(?:\s{1,12}[\d-]{1,15}){5}\s{1,12}[A-Z,]{1,40}\s{1,12}(?P<errors>[A-Z,]{2,60})\s*$"
)
LINE = lazy(
    rf"{BEGINS.pattern}|\A(?:(?:#\d{{1,9}}-\d{{1,9}} \([0-9a-f]{{16}}\) "
    r")?(?:INCOMPLETE|MISMATCH|ERROR|DEAD|TIMEOUT)\b"
    r"|\s{1,8}(?:#|Rank \d|Process \d|Communicator ranks|Missing |\[could not find|\d{1,7} "
    r"(?:ranks?|job process)\b)"
    r"|\s{1,8}(?:(?:Init|Async)\w{0,20} error|Encountered )|=+\s*$|(?:Errors|Warnings)\s*$"
    r"|\s{0,8}(?:\(total\)|Nodes\b|\d{1,9}\s)|CUDA runtime version)"
)


@dataclass(slots=True)
class _Section:
    """One heading of the report with what stands below it."""

    kinds: str
    members: list[str] = field(default_factory=list)
    what: str = ""
    # How many ranks, and where they are
    counts: list[tuple[int, str]] = field(default_factory=list)


def read_ras(lines: Lines) -> Report:
    """Read sections and the table of communicators; one without errors is a pass."""
    results = [result for section in _sections(lines) for result in _of_section(section)]
    if not results:
        rows = filter(None, map(_ROW.match, lines))
        results = [passed("") for row in rows if row["errors"] == "OK"]
    return Report("NCCL RAS", results)


def _sections(lines: Lines) -> Iterator[_Section]:
    """Yield the sections of the report, with the members that they name."""
    section: _Section | None = None
    for line in lines:
        if heading := _HEADING.match(line):
            if section:
                yield section
            section = _Section(heading["kinds"])
        elif section is None:
            continue
        elif member := _MEMBER.match(line):
            remark = (member["says"] or "").strip()
            place = f"process {member['process']}, GPU {member['gpu']}, node {member['node']}"
            section.members.append(
                f"rank {member['rank']} ({place})" + (f" {remark}" if remark else "")
            )
        elif process := _PROCESS.match(line):
            section.members.append(
                f"process {process['process']} (GPU {process['gpu']}, node {process['node']})"
            )
        elif operation := _OPERATION.match(line):
            section.what = operation["what"].removesuffix(" operation counts")
        elif count := _COUNT.match(line):
            section.counts.append((int(count["ranks"]), count["number"] or count["status"] or "0"))
    if section:
        yield section


def _of_section(section: _Section) -> Results:
    """Yield what a section says of its members."""
    named = some_of(section.members)
    kinds = section.kinds.split(",")
    if ("INCOMPLETE" in kinds or "DEAD" in kinds) and named:
        yield failed(MISSING, f"{named} does not answer")
    if "ERROR" in kinds and named:
        yield failed(FAILED, named)
    if "MISMATCH" in kinds:
        yield Result(Verdict.INCONCLUSIVE, OUT_OF_STEP, _out_of_step(section, named))


def _out_of_step(section: _Section, named: str) -> str:
    """Return which ranks are behind: the listed ones, or all others where the listed ones are
    ahead.
    """
    difference = f"{section.what or 'status'} differs between ranks"
    numbers = [(int(where), ranks) for ranks, where in section.counts if where.isdigit()]
    if len(numbers) < 2 or len(numbers) != len(section.counts):
        return f"{difference}: {named}"
    (low, behind), *_, (high, ahead) = sorted(numbers)
    if behind > ahead:
        return (
            f"{difference}: {behind} ranks at {low} are behind {ahead} at {high}, which only "
            f"are ahead: {named}"
        )
    return f"{difference}: at {low}, {high - low} behind {ahead} ranks: {named}"
