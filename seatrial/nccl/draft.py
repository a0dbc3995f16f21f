"""A sweep while it is read, and the sweep made of it: its collective, its ranks, its outcome and
why.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from seatrial.causes.classify import Classifier
from seatrial.causes.table import Finding
from seatrial.nccl.busbw import agrees, infer_ranks, ratio_interval
from seatrial.nccl.collectives import COLLECTIVES
from seatrial.nccl.header import Average, Bounds, ColumnLayout, requested_sizes
from seatrial.nccl.model import NO_ROWS, Device, Outcome, Row, Sweep
from seatrial.nccl.rows import TYPES
from seatrial.nccl.transport import TransportReader

MAX_ROWS = 100_000
"""Rows that are kept of one file: -N 0 prints rows for ever."""
MAX_DEVICES = 65_536
MAX_ERRORS = 32
_OF_THIS_RUN = frozenset(
    {"nccl", "nccl-tests", "cuda", "rocm", "torch", "mpirun", "program", "slurm", "driver"}
)


class Phase(IntEnum):
    """How far the output of one program has come."""

    NOTHING = 0
    PROLOGUE = 1
    HEADER = 2
    ROWS = 3
    FOOTER = 4


@dataclass(slots=True)
class Draft:
    """One sweep as far as it was read. `hint` and `hint_ranks` come from a command line."""

    hint: str | None = None
    hint_ranks: int | None = None
    phase: Phase = Phase.NOTHING
    collective: str | None = None
    version: str | None = None
    library: str | None = None  # the version of NCCL in the header
    params: str | None = None
    limit: str | None = None
    devices: dict[int, Device] = field(default_factory=dict)
    layout: ColumnLayout | None = None
    rows: list[Row] = field(default_factory=list)
    empty_rows: list[Row] = field(default_factory=list)  # placeholders (XXX.XX) in place of numbers
    dropped_rows: int = 0
    bounds: Bounds | None = None
    average: Average | None = None
    findings: Classifier = field(default_factory=Classifier)
    trailing: Classifier = field(default_factory=Classifier)
    leading: tuple[Finding, ...] = ()  # before its header
    transport: TransportReader = field(default_factory=TransportReader)

    @property
    def seen(self) -> bool:
        """Whether anything of nccl-tests was read at all."""
        return self.phase > Phase.NOTHING

    @property
    def has_prologue(self) -> bool:
        """Whether the program's own header was read, and not only its table."""
        return bool(self.version or self.params or self.devices)

    @property
    def complete(self) -> bool:
        """Whether the footer was read, or the format has none (CSV)."""
        is_csv = self.layout is not None and self.layout.separator is not None
        return self.bounds is not None or self.average is not None or is_csv

    @property
    def failed(self) -> bool:
        """Whether the numbers themselves say that the test failed: wrong values, or a footer that
        says FAILED.
        """
        if self.bounds and self.bounds.failed:
            return True
        if self.average and self.average.failed:
            return True
        return any(side.wrong for row in self.rows for side in row.sides)


def collective_of(draft: Draft, name: str | None) -> str | None:
    """Return the collective: as printed, else from a command line if the rows allow it, else from
    the rows.

    `name` decides where the rows allow several.
    """
    rows = draft.rows or draft.empty_rows
    if draft.collective or not rows:
        return draft.collective or draft.hint
    possible = candidates(rows, draft.layout)
    if draft.hint and (draft.hint in possible or not possible):
        return draft.hint
    if name in possible:
        return name
    is_certain = rows[0].type is not None or len(possible) == 1
    if possible and is_certain:
        return possible[0]
    return None


def named_collective(source: str) -> str | None:
    """Return the collective that a file's name contains, spelled with or without underscores:
    nccl_allgather.log.
    """
    file = source.replace("\\", "/").rpartition("/")[2]
    letters = re.sub(r"[^a-z]", "", file.lower())
    for name in sorted(COLLECTIVES, key=len, reverse=True):  # some contain others
        if name.replace("_", "") in letters:
            return name
    return None


def ranks_of(draft: Draft, collective: str | None) -> int | None:
    """Return the size of the measured communicator.

    Size over one rank's part of it, or the Rank lines, if busbw/algbw agrees; else from
    busbw/algbw, which a command line may make precise. None if busbw/algbw contradicts all of them
    and leaves several candidates.
    """
    listed = _listed(list(draft.devices.values()))
    kind = collective
    if not kind:
        with_the_factor = _by_ratio(ratio_interval(draft.rows))
        if not with_the_factor:
            return listed or draft.hint_ranks
        kind = with_the_factor[0]
    parts = _parts(kind, draft.rows or draft.empty_rows)
    for ranks in (parts, listed, draft.hint_ranks):
        if ranks is not None and agrees(kind, ranks, draft.rows):
            return ranks
    inferred = infer_ranks(kind, draft.rows)
    if inferred or ratio_interval(draft.rows):
        return inferred
    return listed


def candidates(rows: Sequence[Row], layout: ColumnLayout | None) -> tuple[str, ...]:
    """Return the collectives that print rows like these, the likeliest first."""
    row = max(rows, key=lambda r: r.size)
    ratio = ratio_interval(rows)
    if row.type is None:
        return _by_ratio(ratio)
    rooted = row.root is not None and row.root >= 0
    if row.redop is None and not rooted:
        return _without_redop(row, layout)
    redop = "none" if row.redop in (None, "none") else "sum"
    named = []
    for name, collective in COLLECTIVES.items():
        if collective.redop == redop and collective.rooted == rooted:
            named.append(name)
    # For a message in parts, `count` is one rank's part. Rows of a single rank fit no collective:
    # all stay then.
    part_bytes = (row.count or 0) * TYPES.get(row.type, 0)
    in_parts = part_bytes != 0 and row.size >= 2 * part_bytes
    below_one = ratio is not None and ratio[1] < 1
    parted = in_parts or (rooted and below_one)
    fitting = [name for name in named if COLLECTIVES[name].layout.in_parts == parted]
    named = fitting or named
    if ratio is not None and not ratio[0] <= 1 <= ratio[1]:
        fitting = [name for name in named if COLLECTIVES[name].factor.depends_on_ranks]
        named = fitting or named
    is_unchecked = _is_unchecked_in_place(row)
    named.sort(key=lambda name: COLLECTIVES[name].checked_in_place == is_unchecked)
    return tuple(named)


def _without_redop(row: Row, layout: ColumnLayout | None) -> tuple[str, ...]:
    """Return the collective of a row without redop.

    hypercube leaves it blank; before 2.13 alltoall did, and all_gather had no such column.
    """
    if row.root is not None:
        return ("hypercube",)
    if layout is not None and "redop" in layout.columns:
        return ("alltoall",)
    return ("all_gather",)


def _is_unchecked_in_place(row: Row) -> bool:
    """Return whether wrong is N/A in place only, as alltoall and sendrecv print it."""
    out = row.out_of_place
    inside = row.in_place
    return bool(out and inside and out.wrong is not None and inside.wrong is None)


def _parts(collective: str, rows: Sequence[Row]) -> int | None:
    """Return ranks where `count` is one rank's part of `size`, exactly (alltoallv's parts
    differ).
    """
    row = max(rows, key=lambda r: r.size, default=None)
    layout = COLLECTIVES[collective].layout
    if row is None or not (layout.in_parts and layout.equal_parts):
        return None
    part_bytes = TYPES.get(row.type or "", 0) * (row.count or 0)
    if not part_bytes:
        return None
    ranks, left = divmod(row.size, part_bytes)
    if left:
        return None
    return ranks


def _by_ratio(ratio: tuple[float, float] | None) -> tuple[str, ...]:
    if ratio is None:
        return ()
    low, high = ratio
    above_one = []
    below_one = []
    one = []
    for name, collective in COLLECTIVES.items():
        factor = collective.factor
        if factor.scale > 1:
            above_one.append(name)
        elif factor.depends_on_ranks and factor.scale == 1:
            below_one.append(name)
        if not factor.depends_on_ranks:
            one.append(name)
    if low > 1:
        return tuple(above_one)
    if low > 0 and high < 1:
        return tuple(below_one)
    return (*one, *above_one)


def _listed(devices: list[Device]) -> int | None:
    """Return ranks that the Rank lines show; with NCCL_TESTS_SPLIT those of the group that prints,
    rank 0's.
    """
    if not devices:
        return None
    first = min(devices, key=lambda d: d.rank)
    groups = [device.group for device in devices]
    if len(set(groups)) > 1:
        return groups.count(first.group)
    return max(device.rank for device in devices) + 1


def finish(draft: Draft, name: str | None = None) -> Sweep:
    """Return the sweep that `draft` amounts to; `name` is the collective that the log's own name
    contains.
    """
    findings = draft.findings.findings()
    trailing = draft.trailing.findings()
    outcome = outcome_of(draft, findings)
    collective = collective_of(draft, name)
    decisive = _decisive(draft, outcome, findings, trailing)
    # A next program that could not start is an error of its own.
    notes = [f for f in findings if not f.unknown]
    notes += [f for f in trailing if not f.unknown and not never_started(f)]
    errors = (*_notes(draft, outcome, findings), *_texts(decisive))
    other_notes = [finding for finding in notes if finding not in decisive]
    is_of_launch = draft.layout is not None and draft.layout.cpu_time
    return Sweep(
        collective,
        draft.version,
        ranks_of(draft, collective),
        tuple(draft.devices.values()),
        tuple(draft.rows),
        out_of_bounds=draft.bounds.count if draft.bounds else None,
        avg_busbw_gb_s=draft.average.gb_s if draft.average else None,
        outcome=outcome,
        errors=errors[:MAX_ERRORS],
        transport=draft.transport.transport(),
        launch_times=is_of_launch,
        findings=tuple(decisive),
        notes=tuple(other_notes),
        requested=requested_sizes(draft.params, draft.limit),
        nccl_version=draft.library or draft.findings.nccl_version,
    )


def _decisive(
    draft: Draft, outcome: Outcome, findings: Sequence[Finding], trailing: Sequence[Finding]
) -> list[Finding]:
    """Return the findings that count.

    Without an ok outcome these are the fatal and unknown ones of the sweep; before a header and
    after a footer fatal ones of ranks and launcher; and those of the driver anywhere.
    """
    decisive = []
    if outcome != "ok":
        decisive = [f for f in findings if f.fatal or f.unknown]
    elsewhere = [f for f in draft.leading if not _is_survived(f, draft)]
    elsewhere += [f for f in findings if f.program == "driver"]
    for finding in (*elsewhere, *trailing):
        is_of_this_run = finding.program in _OF_THIS_RUN
        if finding.fatal and finding.who != "setup" and is_of_this_run:
            decisive.append(finding)
    return list(dict.fromkeys(decisive))


def outcome_of(draft: Draft, findings: Sequence[Finding]) -> Outcome:
    """Decide by the numbers first: a footer counts more than other lines, and wrong values more
    than a footer.

    Without a footer, the outcome is an error if a cause is known, else truncated.
    """
    fatal = any(finding.fatal for finding in findings)
    if draft.rows:
        if draft.failed:
            return "failed"
        if draft.complete:
            return "ok"
        if fatal:
            return "error"
        return "truncated"
    only_footer = draft.phase == Phase.FOOTER and not draft.empty_rows
    if fatal or only_footer or not draft.seen:
        return "error"
    return "truncated"


def _is_survived(finding: Finding, draft: Draft) -> bool:
    """Return whether NCCL wrote the finding in a process of this sweep, which went on, or in an
    unknown process.
    """
    if finding.program != "nccl":
        return False
    for device in draft.devices.values():
        writer = f"{device.host}:{device.pid}:"
        if writer in finding.evidence:
            return True
    return not draft.devices


def never_started(finding: Finding) -> bool:
    """Return whether a finding after a footer means that the next program could not start: the
    set-up is to blame.
    """
    return finding.severity == "fatal" and finding.who == "setup" and finding.program != "driver"


def launch_error(findings: Sequence[Finding], version: str | None = None) -> Sweep:
    """Make the sweep of a program that printed nothing: no rows, and the causes."""
    causes = tuple(findings)
    return replace(
        Sweep.nothing(*_texts(causes)),
        findings=causes,
        notes=() if any(finding.fatal for finding in causes) else causes,
        nccl_version=version,
    )


def _notes(draft: Draft, outcome: Outcome, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the faults of the table itself."""
    is_explained = any(finding.fatal for finding in findings)
    if outcome == "error" and draft.seen and not is_explained:
        yield NO_ROWS
    if draft.empty_rows:
        yield f"{len(draft.empty_rows)} rows hold no numbers"
    if draft.dropped_rows:
        yield f"{draft.dropped_rows} more rows were not kept"


def _texts(findings: Iterable[Finding]) -> tuple[str, ...]:
    texts = list(dict.fromkeys(map(str, findings)))
    return tuple(texts[:MAX_ERRORS])
