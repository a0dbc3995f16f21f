"""Slow nodes and links by the TCP streams between nodes. Pure.

A node's egress is its best outgoing stream and its ingress its best incoming one, so that a slow
peer does not make a healthy node look slow, and one slow link blames neither end.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import TypeVar

from seatrial.checks.connectivity.reachability import Pair, Side, connected, link_name
from seatrial.model.measurement import Measurement, Subject

DOUBTFUL_FACTOR = 3.0  # a rate this factor below the faster half is measured again
SLOW_FACTOR = 4.0  # a rate whose best try is this factor below the faster half is slow

LEAST_LINKS = 2  # least number of slow links between the same sides that form a cut
_LEAST_STREAMS = 4  # least streams of a mode: two links, both ways
LEAST_NODES = 3  # with two nodes, either end may be at fault
ENOUGH = 8  # number of values from which their noise is known
_SIGMAS = 4.5  # distance from the median, in sigma, that chance explains
_MOST_NOISE = 3.0  # upper limit of the noise, in natural logs
_MAD_TO_SIGMA = 1.4826  # ratio of sigma to the median absolute deviation of normal noise


Key = TypeVar("Key")
# MB/s by (from, to), without streams that could not be measured
Streams = Mapping[Pair, float]
Rates = dict[str, float]  # MB/s by node
Models = Mapping[str, str]  # model by node


def keep_best(best: dict[Key, float], new: Mapping[Key, float]) -> None:
    """Update `best` with the rates of `new` that are faster."""
    for key, mb_s in new.items():
        known = best.get(key, 0.0)
        best[key] = max(mb_s, known)


def egress(streams: Streams) -> Rates:
    """Return MB/s that each node sends at best."""
    return {name: max(values) for name, values in _by_end(streams, 0).items()}


def ingress(streams: Streams) -> Rates:
    """Return MB/s that each node receives at best."""
    return {name: max(values) for name, values in _by_end(streams, 1).items()}


def _by_end(streams: Streams, end: int) -> dict[str, tuple[float, ...]]:
    """Return the rates of each node's streams, as the sender (`end` 0) or the receiver (1)."""
    by_end = defaultdict(list)
    for pair, mb_s in streams.items():
        name = pair[end]
        by_end[name].append(mb_s)
    return {name: tuple(rates) for name, rates in by_end.items()}


def slow_nodes(streams: Streams, factor: float = SLOW_FACTOR) -> list[str]:
    """Return the nodes whose egress or ingress is `factor` below that of the others."""
    sends, receives = slow_ends(streams, factor)
    names = dict.fromkeys((*receives, *sends))
    return list(names)


def slow_links(streams: Streams, factor: float = SLOW_FACTOR) -> dict[Pair, float]:
    """Return the slow streams between nodes that are not slow themselves."""
    sends, receives = slow_ends(streams, factor)
    between_good = {}
    for (a, b), mb_s in streams.items():
        if a not in sends and b not in receives:
            between_good[a, b] = mb_s
    return _far_below(between_good, factor)


def slow_ends(streams: Streams, factor: float) -> tuple[Rates, Rates]:
    """Return the nodes that send slowly and the nodes that receive slowly, with their rates."""
    sends = egress(streams)
    receives = ingress(streams)
    nodes = sends.keys() | receives.keys()
    if len(nodes) < LEAST_NODES:
        return {}, {}
    return _far_below(sends, factor), _far_below(receives, factor)


def _far_below(values: Mapping[Key, float], factor: float) -> dict[Key, float]:
    """Return values `factor` below the faster half and further below the median than chance
    explains.
    """
    if not values:
        return {}
    rates = list(values.values())
    least = faster_half(rates) / factor
    limit = min(least, _beyond_chance(rates))
    return {key: value for key, value in values.items() if value < limit}


def _lower_mode(values: Streams) -> Streams:
    """Return the slower rates if rates have two modes, at least SLOW_FACTOR and more than noise
    apart; else {}.

    Half of all streams may be slow, as between two halves of a cluster, so they are no outliers of
    one mode.
    """
    ordered = sorted((math.log(value), key) for key, value in values.items() if value > 0)
    logs = [rate for rate, _ in ordered]
    split = _widest_gap(logs)
    lower = logs[:split]
    upper = logs[split:]
    if not lower or not upper:
        return {}
    gap = upper[0] - lower[-1]
    deviations = _deviations(lower) + _deviations(upper)
    noise = _SIGMAS * _spread(deviations)
    if gap < max(math.log(SLOW_FACTOR), noise):
        return {}
    return {key: values[key] for _, key in ordered[:split]}


def _widest_gap(logs: Sequence[float]) -> int:
    """Return the index at which the upper mode begins; 0 for too few values."""
    splits = range(_LEAST_STREAMS, len(logs) - _LEAST_STREAMS + 1)
    return max(splits, key=lambda i: logs[i] - logs[i - 1], default=0)


def _deviations(values: Sequence[float]) -> list[float]:
    """Return the distance of each value from the median."""
    centre = median(values)
    return [abs(value - centre) for value in values]


def _spread(deviations: Sequence[float]) -> float:
    """Return sigma of normal noise, estimated so that outliers do not affect it."""
    return _MAD_TO_SIGMA * median(deviations)


def faster_half(rates: Collection[float]) -> float:
    """Return the median of the faster half, which does not move if up to three in four rates are
    slow.

    There must be at least one rate.
    """
    slower = len(rates) // 2
    return median(sorted(rates)[slower:])


def _beyond_chance(values: Sequence[float]) -> float:
    """Return the lowest value that chance explains among so many; infinite for too few values."""
    logs = [math.log(value) for value in values if value > 0]
    if len(logs) < ENOUGH:
        return math.inf
    noise = _SIGMAS * _spread(_deviations(logs))
    lowest = median(logs) - min(noise, _MOST_NOISE)
    return math.exp(lowest)


def levelled(streams: Streams, model_by_node: Models) -> Streams:
    """Scale the streams to the fastest model, so that a slower model does not look slow.

    The rate of a model is the median of the faster half of its nodes. Models with fewer than three
    nodes are compared with all nodes, so that a slow node is not excused by its model. A stream is
    scaled by the slower of its ends.
    """
    if len(set(model_by_node.values())) < 2:
        return streams
    usual = usual_by_node(streams, model_by_node)
    most = max(usual.values(), default=0.0)
    level = {}
    for (a, b), mb_s in streams.items():
        slower = min(usual[a], usual[b]) or 1.0
        level[a, b] = mb_s * most / slower
    return level


def usual_by_node(streams: Streams, model_by_node: Models) -> Rates:
    """Return, for each node, the rate of its model in MB/s; of all nodes if the model is unknown or
    has too few nodes.
    """
    best = egress(streams)
    keep_best(best, ingress(streams))
    if not best:
        return {}
    best_by_model = defaultdict(list)
    for name, rate in best.items():
        model = model_by_node.get(name, "")
        best_by_model[model].append(rate)
    of_all = faster_half(best.values())
    usual_by_model = {}
    for model, rates in best_by_model.items():
        usual_by_model[model] = of_all
        if model and len(rates) >= LEAST_NODES:
            usual_by_model[model] = faster_half(rates)
    return {name: usual_by_model[model_by_node.get(name, "")] for name in best}


def slow_cut(streams: Streams, model_by_node: Models) -> set[Pair]:
    """Return the slow streams across a cut; empty without one."""
    level = levelled(streams, model_by_node)
    _, across = cut_of(level)
    return across


def cut_of(streams: Streams) -> tuple[list[Side], set[Pair]]:
    """Return the sides of a slow cut, and the slow streams across it; empty without a cut.

    The streams across are those of the slower mode, if there are two modes and all of that mode are
    across; else the slow links between groups that fast streams connect. A cut has at least two
    links.
    """
    slower = _lower_mode(streams)
    sides = _sides(streams, slower)
    across = {pair for pair in slower if _crosses(pair, sides)}
    if len(across) < len(slower) or not across:
        slow = _far_below(streams, SLOW_FACTOR)
        sides = _sides(streams, slow)
        across = {pair for pair in slow_links(streams) if _crosses(pair, sides)}
    links = {frozenset(pair) for pair in across}
    if len(links) < LEAST_LINKS:
        return [], set()
    return sides, across


def _sides(streams: Streams, slow: Collection[Pair]) -> list[Side]:
    """Return the groups of two or more nodes that are connected by streams not in `slow`."""
    neighbours: dict[str, set[str]] = defaultdict(set)
    for a, b in streams:
        of_a = neighbours[a]
        of_b = neighbours[b]
        if (a, b) not in slow and (b, a) not in slow:
            of_a.add(b)
            of_b.add(a)
    return connected(neighbours)


def _crosses(pair: Pair, sides: Sequence[Side]) -> bool:
    """Return whether the ends of a stream are on two different sides."""
    touched = [side for side in sides if not side.isdisjoint(pair)]
    return len(touched) == 2


def measurements(streams: Streams) -> list[Measurement]:
    """Return egress and ingress of each node, which are judged among peers, and the streams, which
    are only recorded.
    """
    measured = []
    for metric, end in (("tcp_egress", 0), ("tcp_ingress", 1)):
        for name, values in _by_end(streams, end).items():
            subject = Subject("node", name)
            measured.append(Measurement(metric, max(values), "MB/s", subject, samples=values))
    for (a, b), mb_s in streams.items():
        measured.append(
            Measurement(
                metric="tcp_stream",
                value=mb_s,
                unit="MB/s",
                subject=Subject("link", link_name(a, b)),
                conditions={"from": a},
                better=None,
            )
        )
    return measured
