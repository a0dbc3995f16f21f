"""What the other nodes (or GPUs) of the same run measured."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from statistics import NormalDist, median

from seatrial.judge.baselines.grouping import peer_key
from seatrial.judge.baselines.interval import around
from seatrial.judge.tolerance import log_width, tolerance_of
from seatrial.judge.node_groups import NodeGroups
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import Measurement
from seatrial.text.numbers import short

MIN_PEERS = 4
# Healthy groups of any size raise a false alarm this often, as far as their noise is normal.
_FALSE_ALARMS = 0.002


def from_peers(
    measurements: Iterable[Measurement], groups: NodeGroups | None = None, slower: Collection[str] = ()
) -> list[tuple[Measurement, Baseline]]:
    """Each node's and GPU's measurement with the baseline that its peers give.

    Peers share metric, unit, kind of subject, conditions and the group of their node; series that are `slower` by their
    numbers have peers of their own. Fewer than four give none: of three nobody can tell who is odd.

    What is not positive has no logarithm: a rate of zero is bad whatever its peers read; other metrics give none then.
    """
    judged = (m for m in measurements if m.subject.kind in ("node", "gpu") and m.better and m.finite)
    peers: dict[object, list[Measurement]] = defaultdict(list)
    for m in judged:
        peers[peer_key(m, groups or NodeGroups()), m.series() in slower].append(m)
    return [pair for group in peers.values() for pair in _judgeable(group)]


def _judgeable(group: list[Measurement]) -> list[tuple[Measurement, Baseline]]:
    group = [m for m in group if m.value > 0 or not m.above_zero]
    values = [m.value for m in group]
    if len({m.subject.name for m in group}) < max(MIN_PEERS, len(group)) or min(values) <= 0:
        return []
    baseline = _baseline(group[0], values)
    return [(m, baseline) for m in group]


def _baseline(example: Measurement, values: list[float]) -> Baseline:
    tolerance, centre = tolerance_of(example), median(values)
    detail = f"the median {short(centre)} {example.unit} of {len(values)} {example.subject.kind}s in this run"
    width = log_width(values, tolerance, _k(len(values)))
    return around(example, "peers", centre, width, len(values), detail)


def _k(peers: int) -> float:
    """The more peers, the further out the worst healthy one lies: Bonferroni over the group."""
    return NormalDist().inv_cdf(1 - _FALSE_ALARMS / peers)
