"""A verdict on logs that already exist, from any launcher, by the rules that a run is judged by. Pure.

What was asked of a run is known; of a log only what it says, so the sizes that it holds are those that were asked for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from seatrial.catalog import usual_gpus, with_links
from seatrial.catalog.hardware_names import gpu_model
from seatrial.catalog.log_facts import mixed_models, other_model, other_network
from seatrial.catalog.nearest import missing_reference
from seatrial.catalog.physics import MANY_GPUS, as_slow_as_ethernet, plateau_words, with_shares
from seatrial.catalog.published import figures_beside
from seatrial.catalog.reach import one_nic_less
from seatrial.causes.table import GENERIC
from seatrial.checks.collectives.logs import (
    Arm,
    algorithms_of,
    as_mpi_result,
    by_kind,
    dtype_of,
    group_of,
    is_of_cpus,
    more_hosts,
    no_control,
    not_all_ranks,
    settings_of,
    switched_off,
    treatment_of,
    with_own_nics,
)
from seatrial.checks.collectives.outcome import SweepOutcome, conclude, wrong_results
from seatrial.checks.collectives.problems import Setting, fewer_nodes, network_of
from seatrial.checks.failures import log_reason
from seatrial.judge.assess import assess
from seatrial.judge.knowledge import Knowledge
from seatrial.judge.log_cluster import Claim, LogsConfig, claim_of, hosts_of, with_named_fabric
from seatrial.model.curves import SHARE
from seatrial.model.reason import Reason, caused, code_of, join, placed, rewritten
from seatrial.model.result import Check, Coverage, coverage
from seatrial.model.setup import ENVIRONMENT, INTRA, Setup, arm_of_settings
from seatrial.model.sizes import format_size
from seatrial.model.verdict import Verdict, worst
from seatrial.nccl import Sweep
from seatrial.nccl.collectives import COLLECTIVES
from seatrial.readers.ports import against_port
from seatrial.text.headline import conclude as conclude_logs
from seatrial.text.words import fraction, number, some_of

_MAX_REASONS = 4
_GROSS_LOSS = 0.1  # of the link rate: what another network, or one link of many, carries
_CUT_OFF = 4  # small sizes at the beginning that people leave out of what they publish, where a lost line is one


@dataclass(frozen=True, slots=True)
class Log:
    """One log by the name that reasons call it by, and its parts: sweeps, and checks made of other tools' output.

    `hosts` are the names in a list of hosts.
    """

    name: str
    parts: tuple[Sweep | Check, ...]
    hosts: tuple[str, ...] = ()

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        return tuple(part for part in self.parts if isinstance(part, Sweep))

    @property
    def checks(self) -> tuple[Check, ...]:
        return tuple(part for part in self.parts if isinstance(part, Check))


@dataclass(frozen=True, slots=True)
class LogsJudgement:
    """The verdict on logs: a check for each sweep, named as its log, and one for what was found across them."""

    verdict: Verdict
    reason: str
    checks: tuple[Check, ...]

    @property
    def coverage(self) -> Coverage:
        return coverage(self.checks)


def judge_logs(logs: Sequence[Log], config: LogsConfig) -> LogsJudgement:
    """The verdict on `logs`, several of them being one run's."""
    parts = [part for log in logs for part in _named_parts(log)]
    arms = [part for part in parts if isinstance(part, Arm)]
    sweeps = [arm.sweep for arm in arms]
    claims = [claim_of(arm.sweep, sweeps, config) for arm in arms]
    nodes = config.nodes or max((claim.nodes for claim in claims), default=1)
    judged = [_judged_arm(arm, arms, claim, nodes) for arm, claim in zip(arms, claims, strict=True)]
    flaw = no_control([arm for _, arm in judged], nodes)
    in_turn = (check for check, _ in judged)
    hardware = config.hardware or next((claim.hardware for claim in claims if claim.hardware), "")
    of_parts = [
        _judged_tool(against_port(part, config.fabric), hardware) if isinstance(part, Check) else next(in_turn)
        for part in parts
    ]
    of_hosts = [_hosts_check(log, config.nodes or (nodes if arms else None)) for log in logs if log.hosts]
    checks = (*of_parts, *of_hosts, *([flaw] if flaw else []))
    verdict, reason = conclude_logs(sorted(checks, key=_is_generic))
    if len(checks) == 1:
        reason = checks[0].reason
    elif verdict is Verdict.PASS:
        more = f"; and {len(checks) - _MAX_REASONS} more" if len(checks) > _MAX_REASONS else ""
        reason = "; ".join(dict.fromkeys(check.reason for check in checks[:_MAX_REASONS])) + more
    return LogsJudgement(verdict, reason, checks)


def _hosts_check(log: Log, nodes: int | None) -> Check:
    """The check of a list of hosts: as many different ones as nodes."""
    found = len(set(log.hosts))
    if nodes is not None and found < nodes:
        return Check(log.name, Verdict.FAIL, Reason.of("log-hosts-missing", found=found, nodes=nodes))
    return Check(log.name, Verdict.PASS, f"{found} hosts")


def _judged_tool(check: Check, hardware: str) -> Check:
    """The check of another tool; a training's throughput is held against what is published of its GPUs."""
    trained = next((m for m in check.measurements if m.metric == "throughput" and "ranks" in m.conditions), None)
    if trained is None:
        return check
    named = gpu_model(str(trained.conditions.get("device", ""))) or hardware
    setup = with_links(Setup(named, 1, int(trained.conditions["ranks"]), int(trained.conditions["ranks"])))
    (judged,) = assess([check], Knowledge(setup)).checks
    beside = figures_beside(judged, setup)
    return replace(judged, reason=join((judged.reason, *beside))) if beside else judged


def _named_parts(log: Log) -> Iterator[Arm | Check]:
    """The parts of a log under its name, with a number if it has several."""
    if not log.parts and not log.hosts:
        yield Check(log.name, Verdict.INCONCLUSIVE, Reason.of("log-empty"))
    for place, part in enumerate(log.parts, start=1):
        name = log.name if len(log.parts) == 1 else f"{log.name}#{place}"
        if isinstance(part, Check):
            yield replace(part, name=name)
        else:
            yield from (Arm(f"{name}{suffix}", sweep) for suffix, sweep in by_kind(part))


def _is_generic(check: Check) -> bool:
    """Whether the reason names a consequence, or a failure without its cause."""
    return code_of(check.reason) in GENERIC


def _judged_arm(arm: Arm, arms: Sequence[Arm], claimed: Claim, nodes: int) -> tuple[Check, Arm]:
    """One sweep among all as a check, and with its plateau; `nodes` are those of the whole run."""
    claimed = _of_one_node(arm, arms, claimed, nodes)
    is_control = treatment_of(arm, arms, nodes) is not None
    claim = with_named_fabric(claimed, arm.sweep)
    outcome = _outcome(arm.sweep, claim, is_control)
    check = _check(_named(arm, outcome, several=len(arms) > 1), arm.sweep, claim, is_control)
    noted = [finding.place for finding in arm.sweep.notes if finding not in arm.sweep.findings]
    notes = [Reason.of("log-noted", what=some_of(noted))] if noted else []
    notes += _begins_late(arm.sweep)
    notes += [Reason.of("log-names-fabric", fabric=claim.fabric)] if claim != claimed else []
    check = replace(check, reason=join((check.reason, *notes))) if notes else check
    plateau = next((m.value for m in outcome.measurements if m.metric == "busbw_plateau"), None)
    return check, replace(arm, plateau_gb_s=plateau)


def _of_one_node(arm: Arm, arms: Sequence[Arm], claim: Claim, nodes: int) -> Claim:
    """Claim a single node for a log of the arm inside a node, if another log is of all nodes."""
    settings, is_whole = settings_of(arm.sweep), any(len(hosts_of(other.sweep)) >= nodes for other in arms)
    is_inside = all(settings.get(name) == value for name, value in ENVIRONMENT[INTRA].items())
    is_one = is_whole and is_inside and len(hosts_of(arm.sweep)) == 1
    return replace(claim, nodes=1, fabric=None) if is_one else claim


def _outcome(whole: Sweep, claim: Claim, is_control: bool) -> SweepOutcome:
    """Conclude from one sweep by itself, as in a run."""
    operation = whole.collective or "all_reduce"  # where there are no rows, any will do
    if unread := _without_a_measurement(whole):
        named = placed(whole.collective, unread) if whole.collective else unread
        return SweepOutcome(operation, Verdict.INCONCLUSIVE, named)
    each = claim.gpus_per_node or usual_gpus(claim.hardware)
    problem = not_all_ranks(claim.nodes, each and each * claim.nodes, whole)
    if problem and not whole.findings:
        return SweepOutcome(operation, *(wrong_results(whole) or problem))
    group = group_of(whole)
    claim, sweep = _within_a_group(claim, whole), group.sweep if group else whole
    setting = _setting(operation, sweep, claim, is_control)
    unusual = _other_gpus(claim, sweep) if fewer_nodes(setting, sweep) is None else None
    if unusual:
        setting = replace(setting, ranks=sweep.ranks or 0)
    outcome = conclude(setting, as_mpi_result(sweep), sweep, sweep.transport)
    if not claim.is_placed:
        outcome = replace(outcome, measurements=())
    if strange := _of_another_cluster(sweep, claim, setting):
        return _of_others(outcome, sweep, strange)
    if group:
        note = Reason.of("log-of-groups", groups=whole.groups, ranks=setting.ranks)
        outcome = replace(outcome, reason=rewritten(outcome.reason, lambda reason: f"{reason}, {note}"))
    return _limited(outcome, sweep, unusual or _unplaced(claim, sweep))


def _of_others(outcome: SweepOutcome, sweep: Sweep, strange: str) -> SweepOutcome:
    """The outcome of numbers of another cluster: wrong results and a cause that the log names count, numbers do not."""
    if outcome.verdict is Verdict.PASS or not (sweep.findings or wrong_results(sweep)):
        return SweepOutcome(outcome.operation, Verdict.INCONCLUSIVE, strange)
    verdict = worst((outcome.verdict, Verdict.INCONCLUSIVE))
    return replace(outcome, verdict=verdict, reason=join((outcome.reason, strange)), measurements=())


def _unplaced(claim: Claim, sweep: Sweep) -> str | None:
    """The reason not to hold the numbers against anything, if the number of nodes is unknown."""
    return None if claim.is_placed else Reason.of("log-nodes-unknown", ranks=sweep.ranks or "an unknown number of")


def _without_a_measurement(sweep: Sweep) -> Reason | None:
    """The reason of a log that holds another program's table, or a header after which nothing came."""
    of_mscclpp = next((finding for finding in sweep.findings if finding.code == "log-mscclpp"), None)
    if of_mscclpp:
        return log_reason(of_mscclpp)
    if sweep.outcome == "truncated" and sweep.devices and not sweep.rows and not sweep.findings:
        return Reason.of("log-hung-at-first-size")
    return None


def _setting(operation: str, sweep: Sweep, claim: Claim, is_control: bool) -> Setting:
    setup = setup_of(claim, sweep)
    fabric = None if is_control or setup.nodes < 2 else network_of(claim.fabric)
    sizes = _asked_sizes(sweep)
    return Setting(
        operation, dtype_of(sweep), setup.ranks, claim.hardware, sizes, fabric, claim.nodes, algorithms_of(sweep),
        is_whole_on_gpus=not is_of_cpus(sweep), arm=arm_of_settings(settings_of(sweep)),
    )  # fmt: skip


def _asked_sizes(sweep: Sweep) -> tuple[int, ...]:
    """The sizes that must have a row: those of the header, from the first row on if the small ones were cut off.

    Without a header, or with that of another table, the sizes of the rows.
    """
    printed = sorted({row.size for row in sweep.rows if row.size})
    if not printed or not sweep.requested or printed[-1] > sweep.requested[-1]:
        return tuple(printed)
    begun = tuple(size for size in sweep.requested if size >= printed[0])
    return begun if len(sweep.requested) - len(begun) >= _CUT_OFF else sweep.requested


def _begins_late(sweep: Sweep) -> list[Reason]:
    """A note if the header asks for smaller sizes than the table begins with."""
    asked, requested = _asked_sizes(sweep), sweep.requested
    if not asked or not requested or asked[0] <= requested[0] or asked[-1] > requested[-1]:
        return []
    return [Reason.of("log-begins-late", first=format_size(asked[0]), asked=format_size(requested[0]))]


def _of_another_cluster(sweep: Sweep, claim: Claim, setting: Setting) -> str | None:
    """Return why the numbers are not of the cluster that the log is said to be of."""
    strange = (
        other_model(claim.hardware, sweep.devices)
        or other_network(setting.fabric, sweep.transport)
        or more_hosts(claim.nodes, setting.ranks, sweep)
    )
    if strange is None and sweep.collective not in COLLECTIVES and sweep.rows:
        return Reason.of("log-without-collective")
    return strange


def _limited(outcome: SweepOutcome, sweep: Sweep, unusual: str | None) -> SweepOutcome:
    """The outcome, at best inconclusive where a GPU may be missing or rows were not read, or degraded by an odd GPU."""
    if unusual:
        verdict = worst((outcome.verdict, Verdict.INCONCLUSIVE))
        reason = unusual if outcome.verdict in (Verdict.PASS, Verdict.INCONCLUSIVE) else join((outcome.reason, unusual))
        return replace(outcome, verdict=verdict, reason=reason)
    if outcome.verdict is Verdict.PASS and sweep.errors:  # rows that hold no numbers, or were not kept
        problem_of_rows = Reason.of("log-rows-unread", measured=outcome.reason, problem=sweep.errors[0])
        return replace(outcome, verdict=Verdict.INCONCLUSIVE, reason=problem_of_rows)
    if mixed := mixed_models(sweep.devices):
        reasons = (mixed, outcome.reason) if outcome.verdict is Verdict.PASS else (outcome.reason, mixed)
        return replace(outcome, verdict=worst((outcome.verdict, Verdict.DEGRADED)), reason=join(reasons))
    without_operation = rewritten(outcome.reason, lambda reason: reason.removeprefix(f"{outcome.operation}: "))
    return outcome if sweep.collective else replace(outcome, reason=without_operation)


def _named(arm: Arm, outcome: SweepOutcome, several: bool) -> Check:
    """The outcome as a check named as its log; of several logs every measurement says which it is of."""
    off = "".join(f", with {name}={value}" for name, value in sorted(switched_off(arm.sweep).items()))
    mark = {"log": arm.name} if several else {}
    measurements = tuple(replace(m, conditions={**m.conditions, **mark}) for m in outcome.measurements)
    return Check(arm.name, outcome.verdict, rewritten(outcome.reason, lambda r: r + off), measurements=measurements)


def _check(measured: Check, sweep: Sweep, claim: Claim, is_control: bool) -> Check:
    """The check held against what is known. Nothing is known of a cluster with a link switched off on purpose."""
    if _other_gpus(claim, sweep):  # of the GPUs that took part, though another number is usual
        claim = replace(claim, gpus_per_node=(sweep.ranks or 0) // claim.nodes)
    setup = setup_of(_within_a_group(claim, sweep), sweep)
    setup = with_own_nics(setup) if group_of(sweep) else setup
    knowledge = Knowledge(Setup("", setup.nodes, setup.gpus_per_node, setup.slots_per_node) if is_control else setup)
    (check,) = assess([with_shares(measured, setup)], knowledge).checks
    verdict, doubt = (Verdict.PASS, None) if is_control else _doubt(check, setup, sweep)
    missing = "a control arm, held against nothing" if is_control else missing_reference(check, setup)
    # A bad number may be a fallback to sockets, of which such a log says nothing.
    is_bad = check.verdict in (Verdict.FAIL, Verdict.DEGRADED) and check.judgements
    is_silent = not (sweep.transport and sweep.transport.networks)
    suspicious = is_bad and is_silent and setup.nodes > 1 and network_of(setup.fabric)
    hint = Reason.of("log-without-network") if suspicious else None
    notes = (
        _far_below(check, setup),
        doubt,
        *_worst_first(check, measured),
        *plateau_words(check, setup),
        missing,
        hint,
    )
    return replace(check, verdict=worst((check.verdict, verdict)), reason=join(note for note in notes if note))


def _far_below(check: Check, setup: Setup) -> str | None:
    """The reason to look for another way that the data took, if a plateau fails at a small share of its links."""
    failed = [j for j in check.judgements if j.measurement.metric == "busbw_plateau" and j.verdict is Verdict.FAIL]
    if not failed:
        return None
    plateau = failed[0].measurement.value
    share = next((m.value for m in check.measurements if m.metric == SHARE), None)
    if share is None and setup.gpu_link_gb_s:
        share = plateau / setup.gpu_link_gb_s  # the fabric of such GPUs carries about as much
    if not share or share >= _GROSS_LOSS:
        return None
    links = "the fabric" if setup.nodes > 1 else "the GPUs' own links"
    return Reason.of("far-below-link-rate", share=fraction(share), rate=number(plateau / share), links=links)


def _doubt(check: Check, setup: Setup, sweep: Sweep) -> tuple[Verdict, str | None]:
    """The verdict that a check gets although its numbers pass, and its reason."""
    if sockets := _sockets(check, setup, sweep):
        return Verdict.INCONCLUSIVE, sockets
    slow = one_nic_less(check.measurements, setup) if check.verdict is Verdict.PASS else None
    return Verdict.DEGRADED if slow else Verdict.PASS, slow


def _sockets(check: Check, setup: Setup, sweep: Sweep) -> str | None:
    """The reason to suspect TCP between GPUs with links of their own, if no fabric was claimed."""
    if setup.fabric or setup.nodes < 2 or not (setup.gpu_link_gb_s or setup.slots_per_node >= MANY_GPUS):
        return None
    if sweep.transport and sweep.transport.sockets_only and sweep.transport.nodes != 1:
        return Reason.of("log-over-sockets", seen=f"the data went over sockets ({sweep.transport.evidence})")
    plateau = next((m for m in check.measurements if m.metric == "busbw_plateau"), None)
    largest_bytes = max((row.size for row in sweep.rows), default=None)
    if plateau is None or not as_slow_as_ethernet(plateau, setup, largest_bytes):
        return None
    return Reason.of("log-over-sockets", seen=f"{number(plateau.value)} GB/s between nodes is what TCP sockets reach")


def _worst_first(check: Check, sweep_check: Check) -> tuple[str, ...]:
    """The parts of the reason: that of the worst measurement before that of the sweep itself."""
    if check.verdict is not sweep_check.verdict:
        own = sweep_check.reason
        rest = rewritten(check.reason, lambda reason: reason.removeprefix(f"{own}; "))
        if rest != check.reason:  # it has the code of its first part no more
            rest = caused(rest, next((j.reason for j in check.judgements if rest.startswith(j.reason)), rest))
        return rest, own
    plateau = next((j for j in check.judgements if j.measurement.metric == "busbw_plateau"), None)
    is_as_expected = plateau and plateau.source != "sanity" and plateau.verdict is Verdict.PASS
    if plateau and is_as_expected and check.verdict is not Verdict.PASS:  # something else keeps it from passing
        return check.reason, Reason.of("as-fast-as-expected", source=plateau.source)
    return (check.reason,)


def setup_of(config: Claim, sweep: Sweep) -> Setup:
    """The claimed cluster; with as many GPUs per node as took part if that was not claimed."""
    usual = config.gpus_per_node or usual_gpus(config.hardware) or max(1, ceil((sweep.ranks or 0) / config.nodes))
    return with_links(Setup(config.hardware, config.nodes, usual, usual, config.fabric))


def _other_gpus(config: Claim, sweep: Sweep) -> str | None:
    """The reason why a GPU may be missing: as many on each node, but another number than is usual."""
    usual = usual_gpus(config.hardware)
    each, rest = divmod(sweep.ranks or 0, config.nodes)
    if config.gpus_per_node or not usual or not sweep.rows or not each or each == usual:
        return None
    if rest and config.is_whole:
        return None
    nodes, hardware = config.nodes * usual, config.hardware
    return Reason.of("log-ranks-unusual", ranks=sweep.ranks, nodes=nodes, usual=usual, hardware=hardware)


def _within_a_group(config: Claim, sweep: Sweep) -> Claim:
    """Under NCCL_TESTS_SPLIT each group of ranks is a communicator of its own, inside a node or across nodes."""
    group = group_of(sweep)
    if group is None:
        return config
    fabric = config.fabric if group.nodes > 1 else None
    return replace(config, nodes=group.nodes, gpus_per_node=group.gpus_per_node, fabric=fabric)
