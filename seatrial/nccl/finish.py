"""From a draft to a sweep: its collective, its ranks, its outcome and why."""

from collections.abc import Iterable, Sequence

from seatrial.nccl.draft import Draft, Phase
from seatrial.nccl.findings import Finding
from seatrial.nccl.infer import collective_of, ranks_of
from seatrial.nccl.model import NO_ROWS, Outcome, Sweep

MAX_ERRORS = 32
_WORST_FIRST: tuple[Outcome, ...] = ("failed", "error", "truncated", "ok")


def finish(draft: Draft, name: str | None = None) -> Sweep:
    """The sweep that `draft` amounts to; `name` is the collective that the log's own name contains."""
    findings = draft.findings.findings()
    outcome = outcome_of(draft, findings)
    collective = collective_of(draft, name)
    return Sweep(
        collective,
        draft.version,
        ranks_of(draft, collective),
        tuple(draft.devices.values()),
        tuple(draft.rows),
        draft.bounds.count if draft.bounds else None,
        draft.average.gb_s if draft.average else None,
        outcome,
        _errors(draft, outcome, findings),
        draft.transport.transport(),
        draft.layout is not None and draft.layout.cpu_time,
    )


def outcome_of(draft: Draft, findings: Sequence[Finding]) -> Outcome:
    """Numbers first: a footer counts more than what other lines say, and wrong values more than a footer.

    Without a footer a known cause makes an error of it; without a cause it merely ended early.
    """
    fatal = any(finding.fatal for finding in findings)
    if draft.rows:
        if draft.failed:
            return "failed"
        if draft.complete:
            return "ok"
        return "error" if fatal else "truncated"
    if fatal or (draft.phase == Phase.FOOTER and not draft.unreadable_rows) or not draft.seen:
        return "error"
    return "truncated"


def never_started(finding: Finding) -> bool:
    """Whether a finding after a footer means that the next program was kept from starting: the kind `launcher`."""
    starting = finding.kind == "launcher" or finding.cause == "nccl-tests printed its usage"
    return starting and finding.fatal and not finding.secondary and finding.rank is None


def launch_error(findings: Iterable[Finding]) -> Sweep:
    """What stands for a program that never printed anything: no rows, and the causes."""
    return Sweep(None, None, None, (), (), None, None, "error", _texts(findings))


def file_outcome(sweeps: Sequence[Sweep]) -> Outcome:
    """The outcome of a file: that of its worst sweep. Wrong values are worse than a sweep that could not run, which is
    worse than one that ended early. A file without sweeps is an error.
    """
    present = {sweep.outcome for sweep in sweeps}
    return next((outcome for outcome in _WORST_FIRST if outcome in present), "error")


def _errors(draft: Draft, outcome: Outcome, findings: Sequence[Finding]) -> tuple[str, ...]:
    notes = []
    if outcome == "error" and not any(finding.fatal for finding in findings) and draft.seen:
        notes.append(NO_ROWS)
    if draft.unreadable_rows:
        notes.append(f"{draft.unreadable_rows} rows hold no numbers")
    if draft.dropped_rows:
        notes.append(f"{draft.dropped_rows} more rows were not kept")
    reported = [finding for finding in findings if outcome != "ok" and (finding.fatal or finding.kind == "unknown")]
    reported += [finding for finding in draft.trailing.findings() if finding.fatal and not never_started(finding)]
    return (*notes, *_texts(reported))[:MAX_ERRORS]


def _texts(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(finding) for finding in findings))[:MAX_ERRORS]
