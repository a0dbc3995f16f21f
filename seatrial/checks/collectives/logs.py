"""Sweeps read from logs: their parts, ranks and groups, and control arms. Pure.

Under NCCL_TESTS_SPLIT every group ran the collective by itself, at the same time as the others.
nccl-tests prints the time that all groups took on average and the wrong elements of all of them, so
one group stands for each. It is judged as a cluster of its own: of its nodes, with as many GPUs on
each, and their part of the NICs. Source: BenchTime and Allreduce in nccl-tests src/common.cu.

A control arm is a sweep without NVLink or the network. Where it is as fast as the same collective
with that link, the switch had no effect or the link is not used, and the pair proves neither.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from seatrial.causes import Finding
from seatrial.checks.collectives.problems import Problem, interleaved
from seatrial.model.reason import Reason, join
from seatrial.model.result import Check
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from seatrial.nccl import Sweep
from seatrial.remote.mpi_result import MpiResult
from seatrial.text.words import number

_DTYPES = {"float": "float32", "double": "float64", "half": "float16", "int": "int32"}
# Two tools on one machine agree within 1 %, while NVLink or a fabric multiplies the rate.
_AS_FAST = 0.95
_OFF = frozenset({"0", "off", "false"})
_kind = attrgetter("type", "redop", "root")


def by_kind(sweep: Sweep) -> list[tuple[str, Sweep]]:
    """Split a sweep by data type, reduction and root (-d, -o, -r all), each with a suffix for its
    name.

    Each kind has a different speed. A suffix begins with a space and has only what differs ("
    float32 sum"); it is empty for a sweep of one kind, and for a sweep with interleaved rows.
    """
    kinds = dict.fromkeys(map(_kind, sweep.rows))
    if len(kinds) < 2 or interleaved([row for row in sweep.rows if row.size]):
        return [("", sweep)]
    varies = [len(set(values)) > 1 for values in zip(*kinds, strict=True)]
    parts = []
    for kind in kinds:
        rows = tuple(row for row in sweep.rows if _kind(row) == kind)
        part = replace(sweep, rows=rows)
        # The footer counts wrong results of all kinds, and this kind has none
        if sweep.wrong_total and part.wrong_total == 0:
            part = replace(part, out_of_bounds=0)
            if sweep.outcome == "failed":
                part = replace(part, outcome="ok")
        suffix = ""
        words = (dtype_of(part), rows[0].redop, f"root {rows[0].root}")
        for word, differs in zip(words, varies, strict=True):
            if differs:
                suffix += f" {word}"
        parts.append((suffix, part))
    return parts


def wrote_at_once(sweeps: Sequence[Sweep]) -> bool:
    """Return whether the sweeps of a log are pieces of programs that wrote at the same time.

    Behind a header whose footer is missing, a footer then has no header, or a table the rows of
    several programs.
    """
    is_open = False
    for sweep in sweeps:
        is_open = is_open or (sweep.outcome == "truncated" and bool(sweep.devices))
        is_mixed = interleaved([row for row in sweep.rows if row.size])
        is_footer = not sweep.devices and sweep.avg_busbw_gb_s is not None
        if is_open and (is_mixed or is_footer):
            return True
    return False


def is_of_cpus(sweep: Sweep) -> bool:
    """Return whether the gloo probe printed the sweep, on nodes without GPUs."""
    return bool(sweep.devices) and all(device.name == "CPU" for device in sweep.devices)


@dataclass(frozen=True, slots=True)
class LogResult(MpiResult):
    """The result of a launcher as derived from a log; `named` are the causes found while reading
    it.
    """

    named: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.named


def as_mpi_result(sweep: Sweep) -> LogResult:
    """Return the result that mpirun would have had, with a made-up exit status and the causes in
    the log.
    """
    is_broken = any(finding.fatal for finding in sweep.findings)
    if sweep.outcome == "error" and not sweep.findings:
        is_broken = not sweep.empty
    return LogResult(1 if is_broken else 0, sweep.errors, 0.0, named=sweep.findings)


def dtype_of(sweep: Sweep) -> str:
    """Return the data type of the sweep by its name in suites; float32 if no row has one."""
    name = next((row.type for row in sweep.rows if row.type), "float")
    return _DTYPES.get(name, name)


def algorithms_of(sweep: Sweep) -> Mapping[int, str]:
    """Return NCCL's algorithm by message size, with 0 for the largest size; empty if it is
    unknown.
    """
    transport = sweep.transport
    if transport is None or transport.algorithm is None:
        return {}
    chosen = {size: algorithm for size, algorithm, _ in transport.choices}
    if not chosen:
        chosen = {row.size: transport.algorithm for row in sweep.rows}
    chosen[0] = transport.algorithm
    return chosen


@dataclass(frozen=True, slots=True)
class Group:
    """The group of rank 0, which stands for all groups: its sweep as if run alone, and its size."""

    sweep: Sweep
    nodes: int
    gpus_per_node: int


def group_of(sweep: Sweep) -> Group | None:
    """Return the first group of equal ones; None if there is only one, or if groups or nodes
    differ.
    """
    first = min(sweep.devices, key=lambda device: device.rank, default=None)
    if first is None or sweep.groups < 2:
        return None
    by_group = Counter(device.group for device in sweep.devices)
    if len(set(by_group.values())) > 1:
        return None
    members = tuple(device for device in sweep.devices if device.group == first.group)
    by_host = Counter(device.host for device in members)
    if len(set(by_host.values())) > 1:
        return None
    return Group(replace(sweep, devices=members), len(by_host), by_host[first.host])


def with_own_nics(setup: Setup) -> Setup:
    """Return the setup of one group with its GPUs' part of the NICs: other groups on the node use
    theirs meanwhile.

    An unknown speed of the NICs stays unknown.
    """
    link_gb_s = setup.node_link_gb_s
    if link_gb_s:
        link_gb_s *= setup.part_of_node or 1.0
    return replace(setup, node_link_gb_s=link_gb_s, part_of_node=1.0)


def not_all_ranks(nodes: int, ranks: int | None, sweep: Sweep) -> Problem | None:
    """Return a problem if groups differ in size, or do not have `ranks` (None: unknown) on `nodes`
    together.
    """
    if sweep.groups < 2:
        return None
    listed = len(sweep.devices)
    hosts = sweep.hosts
    if ranks and listed != ranks:
        return Verdict.FAIL, Reason.of("ranks-missing", took_part=f"{listed} of {ranks}", cause="")
    if len(hosts) < nodes:
        reason = Reason.of(
            "ranks-on-fewer-nodes", ranks=listed, hosts=len(hosts), nodes=nodes, min=min(hosts)
        )
        return Verdict.FAIL, reason
    if group_of(sweep) is None:
        return Verdict.INCONCLUSIVE, Reason.of("ranks-in-groups", groups=sweep.groups)
    return None


def more_hosts(nodes: int, ranks: int, sweep: Sweep) -> Reason | None:
    """Return the reason if the header names all ranks on more hosts than `nodes`; else None."""
    if len(sweep.devices) != ranks or sweep.groups > 1:
        return None
    if len(sweep.hosts) <= nodes:
        return None
    return Reason.of("log-of-more-hosts", ranks=ranks, hosts=len(sweep.hosts), nodes=nodes)


@dataclass(frozen=True, slots=True)
class Arm:
    """One sweep, with its `name` in reasons and its plateau in GB/s, if it has one."""

    name: str
    sweep: Sweep
    plateau_gb_s: float | None = None


def settings_of(sweep: Sweep) -> dict[str, str]:
    """Return the variables of NCCL in a sweep's log, by their full names."""
    if sweep.transport is None:
        return {}
    settings = dict(sweep.transport.settings)
    return {f"NCCL_{name}": value for name, value in settings.items()}


def switched_off(sweep: Sweep) -> dict[str, str]:
    """Return the settings in a sweep's log that keep NCCL off a link, by name: {"NCCL_P2P_DISABLE":
    "1"}.
    """
    return {
        name: value
        for name, value in settings_of(sweep).items()
        if _is_off(name.removeprefix("NCCL_"), value)
    }


def treatments_of(arms: Sequence[Arm], nodes: int) -> list[Arm | None]:
    """Return for each arm the one to compare it with, or None: the first of the same collective
    and ranks with fewer links off.
    """
    kinds = [
        ((arm.sweep.collective, arm.sweep.ranks), frozenset(_effective_switches(arm.sweep, nodes)))
        for arm in arms
    ]
    # Thousands of sweeps are of a few kinds, of which the first one counts
    alike: dict[object, dict[frozenset[str], Arm]] = defaultdict(dict)
    for (tested, off), arm in zip(kinds, arms, strict=True):
        alike[tested].setdefault(off, arm)
    treatments = []
    for tested, off in kinds:
        fewer_off = (arm for others, arm in alike[tested].items() if others < off)
        treatments.append(next(fewer_off, None))
    return treatments


def no_control(arms: Sequence[Arm], nodes: int) -> Check | None:
    """Return an inconclusive check if a control arm is as fast as its treatment; None otherwise.

    Arms without a plateau are ignored.
    """
    reasons = []
    for control, treatment in zip(arms, treatments_of(arms, nodes), strict=True):
        if treatment is None:
            continue
        slow = control.plateau_gb_s
        fast = treatment.plateau_gb_s
        if not slow or not fast or slow < _AS_FAST * fast:
            continue
        switches = sorted(switched_off(control.sweep).items())
        reason = Reason.of(
            "control-has-no-effect",
            control=control.name,
            collective=control.sweep.collective,
            off=", ".join(f"{name}={value}" for name, value in switches),
            treatment=treatment.name,
            slow=number(slow),
            fast=number(fast),
        )
        reasons.append(reason)
    if reasons:
        return Check(name="control", verdict=Verdict.INCONCLUSIVE, reason=join(reasons))
    return None


def _is_off(name: str, value: str) -> bool:
    """Return whether a setting of NCCL switches something off."""
    if name.endswith("_DISABLE"):
        return value.lower() not in _OFF
    if name == "MNNVL_ENABLE":
        return value.lower() in _OFF
    return (name, value.lower()) in (("NET", "socket"), ("P2P_LEVEL", "loc"), ("P2P_LEVEL", "0"))


def _effective_switches(sweep: Sweep, nodes: int) -> set[str]:
    """Return the settings in use that must have an effect.

    Network settings have none on one node, and settings for links within a node have none with one
    GPU per node.
    """
    network = {"NCCL_IB_DISABLE", "NCCL_NET", "NCCL_MNNVL_ENABLE"}
    inside = {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"}
    effective = set[str]()
    if nodes > 1:
        effective |= network
    if sweep.ranks is None or sweep.ranks > nodes:
        effective |= inside
    return effective.intersection(switched_off(sweep))
