"""Conclude from one sweep of a log by itself, by the rules of a run. Pure.

What was asked of a run is known; of a log only what it says, so the sizes that it holds are those
that were asked for.
"""

from dataclasses import replace

from seatrial.catalog import usual_gpus
from seatrial.catalog.log_facts import mixed_models, other_model, other_network
from seatrial.checks.collectives.logs import (
    algorithms_of,
    as_mpi_result,
    dtype_of,
    group_of,
    is_of_cpus,
    more_hosts,
    not_all_ranks,
    settings_of,
)
from seatrial.checks.collectives.outcome import SweepOutcome, conclude, wrong_results
from seatrial.checks.collectives.problems import Setting, fewer_nodes, network_of
from seatrial.checks.failures import log_reason
from seatrial.logs.cluster import Claim, other_gpus, setup_of, within_a_group
from seatrial.model.reason import Reason, extended, join, placed, unplaced
from seatrial.model.setup import arm_of_settings
from seatrial.model.sizes import format_size
from seatrial.model.verdict import Verdict, worst
from seatrial.nccl import Sweep
from seatrial.nccl.collectives import COLLECTIVES

# Small sizes at the beginning that people leave out of what they publish, where a lost line is one
_CUT_OFF = 4


def outcome_of(whole: Sweep, claim: Claim, is_control: bool) -> SweepOutcome:
    """Conclude from one sweep by itself, as in a run.

    `claim` is what is given or assumed of the cluster. A control arm (`is_control`) is expected to
    do without the fabric.
    """
    operation = whole.collective or "all_reduce"  # where there are no rows, any will do
    unread = _without_a_measurement(whole)
    if unread:
        if whole.collective:
            unread = placed(whole.collective, unread)
        return SweepOutcome(operation, Verdict.INCONCLUSIVE, unread)
    each = claim.gpus_per_node or usual_gpus(claim.hardware)
    problem = not_all_ranks(claim.nodes, each and each * claim.nodes, whole)
    if problem and not whole.findings:
        return SweepOutcome(operation, *(wrong_results(whole) or problem))
    group = group_of(whole)
    sweep = group.sweep if group else whole
    claim = within_a_group(claim, whole)
    setting = _setting(operation, sweep, claim, is_control)
    unusual = None
    if fewer_nodes(setting, sweep) is None:
        unusual = other_gpus(claim, sweep)
    if not claim.is_placed:
        unusual = Reason.of("log-nodes-unknown", ranks=sweep.ranks or "an unknown number of")
    if unusual:
        setting = replace(setting, ranks=sweep.ranks or 0)
    outcome = conclude(setting, as_mpi_result(sweep), sweep, sweep.transport)
    strange = _of_another_cluster(sweep, claim, setting)
    if strange:
        return _of_others(outcome, sweep, strange)
    if group:
        note = Reason.of("log-of-groups", groups=whole.groups, ranks=setting.ranks)
        outcome = replace(outcome, reason=extended(outcome.reason, f", {note}"))
    return _limited(outcome, sweep, unusual)


def _of_others(outcome: SweepOutcome, sweep: Sweep, strange: Reason) -> SweepOutcome:
    """Return the outcome of a sweep with numbers of another cluster: wrong results and named causes
    count, numbers do not.
    """
    has_causes = sweep.findings or wrong_results(sweep)
    if outcome.verdict is Verdict.PASS or not has_causes:
        return SweepOutcome(outcome.operation, Verdict.INCONCLUSIVE, strange)
    verdict = worst((outcome.verdict, Verdict.INCONCLUSIVE))
    both = join((outcome.reason, strange))
    return replace(outcome, verdict=verdict, reason=both, measurements=())


def _without_a_measurement(sweep: Sweep) -> Reason | None:
    """Return the reason of a log that holds another program's table, or a header after which
    nothing came.
    """
    for finding in sweep.findings:
        if finding.code == "log-mscclpp":
            return log_reason(finding)
    is_header_alone = sweep.devices and not sweep.rows
    if is_header_alone and sweep.outcome == "truncated" and not sweep.findings:
        return Reason.of("log-hung-at-first-size")
    return None


def _setting(operation: str, sweep: Sweep, claim: Claim, is_control: bool) -> Setting:
    """Return the setting in which a run would have started the log's sweep.

    The hardware stands for the name of the cluster, which no log has.
    """
    setup = setup_of(claim, sweep)
    fabric = None
    if setup.nodes > 1 and not is_control:
        fabric = network_of(claim.fabric)
    return Setting(
        operation=operation,
        dtype=dtype_of(sweep),
        ranks=setup.ranks,
        cluster=claim.hardware,
        sizes=_asked_sizes(sweep),
        fabric=fabric,
        nodes=claim.nodes,
        algorithms=algorithms_of(sweep),
        is_whole_on_gpus=not is_of_cpus(sweep),
        arm=arm_of_settings(settings_of(sweep)),
    )


def _asked_sizes(sweep: Sweep) -> tuple[int, ...]:
    """Return the sizes that must have a row: those of the header, from the first row on if the
    small ones were cut off.

    Without a header, or with that of another table, the sizes of the rows.
    """
    printed = tuple(sorted({row.size for row in sweep.rows if row.size}))
    if not printed:
        return ()
    if not sweep.requested or printed[-1] > sweep.requested[-1]:
        return printed
    begun = tuple(size for size in sweep.requested if size >= printed[0])
    if len(sweep.requested) - len(begun) >= _CUT_OFF:
        return begun
    return sweep.requested


def begins_late(sweep: Sweep) -> list[Reason]:
    """Return a note if the header asks for smaller sizes than the table begins with.

    A header of another table, which ends at smaller sizes, says nothing.
    """
    asked = _asked_sizes(sweep)
    requested = sweep.requested
    if not asked or not requested:
        return []
    if asked[0] <= requested[0] or asked[-1] > requested[-1]:
        return []
    first = format_size(asked[0])
    return [Reason.of("log-begins-late", first=first, asked=format_size(requested[0]))]


def _of_another_cluster(sweep: Sweep, claim: Claim, setting: Setting) -> Reason | None:
    """Return why the numbers are not of the cluster that the log is said to be of; None if nothing
    in the log contradicts it.
    """
    strange = (
        other_model(claim.hardware, sweep.devices)
        or other_network(setting.fabric, sweep.transport)
        or more_hosts(claim.nodes, setting.ranks, sweep)
    )
    if strange is None and sweep.collective not in COLLECTIVES and sweep.rows:
        return Reason.of("log-without-collective")
    return strange


def _limited(outcome: SweepOutcome, sweep: Sweep, unusual: Reason | None) -> SweepOutcome:
    """Limit the outcome: inconclusive if a GPU may be missing or rows were not read, degraded by an
    odd GPU.

    What is worse stays so. `unusual` says why the number of GPUs is in doubt, None if it is not.
    """
    if unusual:
        return _at_most(Verdict.INCONCLUSIVE, unusual, outcome)
    # Rows that hold no numbers, or were not kept
    if outcome.verdict is Verdict.PASS and sweep.errors:
        unread = Reason.of("log-rows-unread", measured=outcome.reason, problem=sweep.errors[0])
        return replace(outcome, verdict=Verdict.INCONCLUSIVE, reason=unread)
    if mixed := mixed_models(sweep.devices):
        return _at_most(Verdict.DEGRADED, mixed, outcome)
    if sweep.collective:
        return outcome
    return replace(outcome, reason=unplaced(outcome.reason))


def _at_most(limit: Verdict, why: Reason, outcome: SweepOutcome) -> SweepOutcome:
    """Return the outcome at that verdict or a worse one; the reason of the worse comes first."""
    verdict = worst((outcome.verdict, limit))
    reasons = (why, outcome.reason) if verdict is limit else (outcome.reason, why)
    return replace(outcome, verdict=verdict, reason=join(reasons))
