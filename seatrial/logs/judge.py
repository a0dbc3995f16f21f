"""A verdict on logs that already exist, from any launcher, by the rules that a run is judged by.

Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from seatrial.catalog import with_links
from seatrial.catalog.hardware_names import gpu_model
from seatrial.catalog.log_facts import older_nccl
from seatrial.catalog.published import nearest_figures
from seatrial.causes.table import GENERIC
from seatrial.checks.collectives.logs import (
    Arm,
    by_kind,
    no_control,
    settings_of,
    switched_off,
    treatments_of,
    wrote_at_once,
)
from seatrial.checks.collectives.outcome import SweepOutcome
from seatrial.logs.against import checked
from seatrial.logs.cluster import Claim, LogsConfig, claim_of, telling, with_named_fabric
from seatrial.logs.numbers import judged_alone
from seatrial.logs.outcome import begins_late, outcome_of
from seatrial.model.reason import Reason, extended, join
from seatrial.model.result import Check, Coverage, coverage
from seatrial.model.setup import ENVIRONMENT, INTRA, Setup
from seatrial.model.verdict import Verdict
from seatrial.nccl import Sweep
from seatrial.readers.ports import against_port
from seatrial.text.headline import conclude as conclude_logs
from seatrial.text.words import some_of

_MAX_REASONS = 4
_RATES = ("throughput", "tokens_per_gpu")  # of a training


@dataclass(frozen=True, slots=True)
class Log:
    """One log by the name that reasons call it by, and its parts: sweeps, and checks made of other
    tools' output.

    `hosts` are the names in a list of hosts; `why` it has no part.
    """

    name: str
    parts: tuple[Sweep | Check, ...]
    hosts: tuple[str, ...] = ()
    why: Reason | None = None

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """The parts that nccl-tests printed."""
        return tuple(part for part in self.parts if isinstance(part, Sweep))

    @property
    def checks(self) -> tuple[Check, ...]:
        """The parts that other tools printed."""
        return tuple(part for part in self.parts if isinstance(part, Check))


@dataclass(frozen=True, slots=True)
class LogsJudgement:
    """The verdict on logs: a check for each sweep, named as its log, and one for what was found
    across them.
    """

    verdict: Verdict
    reason: Reason
    checks: tuple[Check, ...]

    @property
    def coverage(self) -> Coverage:
        """How many series were compared with a baseline."""
        return coverage(self.checks)


def judge_logs(logs: Sequence[Log], config: LogsConfig) -> LogsJudgement:
    """Return the verdict on `logs`, which are all of one run."""
    parts = [part for log in logs for part in _named_parts(log)]
    arms = [part for part in parts if isinstance(part, Arm)]
    sweeps = [arm.sweep for arm in arms]
    known = telling(sweeps)
    claims = [claim_of(sweep, known, config) for sweep in sweeps]
    nodes = config.nodes or max((claim.nodes for claim in claims), default=1)
    if any(len(sweep.hosts) >= nodes for sweep in sweeps):
        claims = list(map(_of_one_node, sweeps, claims))
    hardware = config.hardware or ""
    for claim in claims:
        hardware = hardware or claim.hardware

    checks = []
    judged_arms = []
    waiting = zip(claims, treatments_of(arms, nodes), strict=True)
    for part in parts:
        if isinstance(part, Check):
            of_tool = against_port(part, config.fabric)
            checks.append(_judged_tool(of_tool, hardware))
        else:
            claim, treatment = next(waiting)
            is_control = treatment is not None
            check, judged = _judged_arm(part, claim, is_control, several=len(arms) > 1)
            checks.append(check)
            judged_arms.append(judged)
    for log in logs:
        if log.hosts:
            nodes_are_known = config.nodes or arms
            checks.append(_hosts_check(log, nodes if nodes_are_known else None))
    flaw = no_control(judged_arms, nodes)
    if flaw:
        checks.append(flaw)
    return _concluded(checks)


def _concluded(checks: Sequence[Check]) -> LogsJudgement:
    """Return the verdict of all checks, and the reason: that of the worst, or of the first few
    where all pass.
    """
    # A reason that names a consequence, or a failure without its cause, comes last.
    telling_first = sorted(checks, key=lambda check: check.reason.code in GENERIC)
    verdict, reason = conclude_logs(telling_first)
    if len(checks) == 1:
        reason = checks[0].reason
    elif verdict is Verdict.PASS:
        reason = join(check.reason for check in checks[:_MAX_REASONS])
        more = len(checks) - _MAX_REASONS
        if more > 0:
            reason = extended(reason, f"; and {more} more")
    return LogsJudgement(verdict, reason, tuple(checks))


def _hosts_check(log: Log, nodes: int | None) -> Check:
    """Check that a list of hosts has as many different ones as there are nodes."""
    hosts = len(set(log.hosts))
    if nodes is not None and hosts < nodes:
        missing = Reason.of("log-hosts-missing", found=hosts, nodes=nodes)
        return Check(log.name, Verdict.FAIL, missing)
    return Check(log.name, Verdict.PASS, Reason.of("log-hosts", hosts=hosts))


def _judged_tool(check: Check, hardware: str) -> Check:
    """Return the check of another tool; the rate of a training is compared with what is published
    of its GPUs.
    """
    rates = [m for m in check.measurements if m.metric in _RATES and "ranks" in m.conditions]
    if not rates:
        return check
    conditions = rates[0].conditions
    ranks = int(conditions["ranks"])
    named = gpu_model(str(conditions.get("device", "")))
    setup = with_links(
        Setup(hardware=named or hardware, nodes=1, gpus_per_node=ranks, slots_per_node=ranks)
    )
    judged = judged_alone(replace(check, measurements=tuple(rates)), setup)
    reason = join((judged.reason, *nearest_figures(judged, setup)))
    return replace(judged, reason=reason, measurements=check.measurements)


def _named_parts(log: Log) -> Iterator[Arm | Check]:
    """Yield the parts of a log under its name, with a number if it has several.

    Where programs ran on one node each, the number does not say which: the node is named, too.
    A log in which nothing was read yields one inconclusive check.
    """
    if not log.parts and not log.hosts:
        yield Check(
            name=log.name, verdict=Verdict.INCONCLUSIVE, reason=log.why or Reason.of("log-empty")
        )
    parts = log.parts
    if wrote_at_once(log.sweeps):
        yield Check(log.name, Verdict.INCONCLUSIVE, Reason.of("sweeps-interleaved"))
        # Wrong results and named causes count, whichever program they are of
        kept = [sweep for sweep in log.sweeps if sweep.outcome == "failed" or sweep.findings]
        parts = (*kept, *log.checks)
    hosts = frozenset[str]().union(*(sweep.hosts for sweep in log.sweeps))
    for place, part in enumerate(parts, start=1):
        name = log.name
        if len(parts) > 1:
            name += f"#{place}"
        if isinstance(part, Check):
            yield replace(part, name=name)
            continue
        if len(part.hosts) == 1 < len(hosts):
            name += f" on {min(part.hosts)}"
        for suffix, sweep in by_kind(part):
            yield Arm(f"{name}{suffix}", sweep)


def _judged_arm(arm: Arm, claimed: Claim, is_control: bool, *, several: bool) -> tuple[Check, Arm]:
    """Return the check of one sweep, and its arm with the plateau; `several` if there are more."""
    claim = with_named_fabric(claimed, arm.sweep)
    outcome = outcome_of(arm.sweep, claim, is_control)
    named = _named(arm, outcome, several=several)
    check = checked(named, arm.sweep, claim, is_control)
    notes = _notes(arm.sweep, claim, claimed)
    check = replace(check, reason=join((check.reason, *notes)))
    for m in outcome.measurements:
        if m.metric == "busbw_plateau":
            return check, replace(arm, plateau_gb_s=m.value)
    return check, arm


def _notes(sweep: Sweep, claim: Claim, claimed: Claim) -> Iterator[Reason]:
    """Yield what else the log names, and the fabric that its numbers were compared with."""
    noted = []
    for finding in sweep.notes:
        if finding not in sweep.findings:
            noted.append(finding.place)
    if noted:
        yield Reason.of("log-noted", what=some_of(noted))
    yield from begins_late(sweep)
    if claim != claimed:
        yield Reason.of("log-names-fabric", fabric=claim.fabric)
    older = older_nccl(claim.hardware, sweep.nccl_version)
    if older:
        yield older


def _of_one_node(sweep: Sweep, claim: Claim) -> Claim:
    """Claim a single node for a sweep of the arm inside a node, where another is of all nodes."""
    settings = settings_of(sweep)
    is_inside = all(settings.get(name) == value for name, value in ENVIRONMENT[INTRA].items())
    if not is_inside or len(sweep.hosts) != 1:
        return claim
    return replace(claim, nodes=1, fabric=None)


def _named(arm: Arm, outcome: SweepOutcome, several: bool) -> Check:
    """Return the outcome as a check named as its log; with several logs, every measurement names
    its log.
    """
    off = ""
    for name, value in sorted(switched_off(arm.sweep).items()):
        off += f", with {name}={value}"
    measurements = outcome.measurements
    if several:
        measurements = tuple(
            replace(m, conditions={**m.conditions, "log": arm.name}) for m in measurements
        )
    return Check(
        name=arm.name,
        verdict=outcome.verdict,
        reason=extended(outcome.reason, off),
        measurements=measurements,
    )
