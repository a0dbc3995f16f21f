"""What the streams between nodes say about each node and link. Pure.

A node's egress is its best outgoing stream and its ingress its best incoming one, so that a slow peer does not make a
healthy node look slow, and one slow link is held against neither end.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import TypeVar

from seatrial.checks.connectivity.reachability import Pair, link_name
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.text.numbers import short
from seatrial.text.words import some_of

DOUBTFUL_FACTOR = 3.0  # below the faster half: measured again
_SLOW_FACTOR = 4.0  # below the faster half, at the best of all tries: slow

_LEAST_NODES = 3  # of two, a slow stream may be the fault of either end
_ENOUGH, _SIGMAS, _MOST_NOISE = 8, 4.5, 3.0  # values that tell their noise; how far chance goes; on natural logs
_MAD_TO_SIGMA = 1.4826  # of normal noise
_CLEAR_MINORITY = 3  # one of three nodes and fewer; more are another group rather than odd ones

Key = TypeVar("Key")
Streams = Mapping[Pair, float]  # MB/s by (from, to); a stream that could not be measured is not there


def egress(streams: Streams) -> dict[str, float]:
    """MB/s that each node sends at best."""
    return {name: max(values) for name, values in _by_end(streams, 0).items()}


def ingress(streams: Streams) -> dict[str, float]:
    """MB/s that each node receives at best."""
    return {name: max(values) for name, values in _by_end(streams, 1).items()}


def _by_end(streams: Streams, end: int) -> dict[str, tuple[float, ...]]:
    by_end: dict[str, tuple[float, ...]] = {}
    for pair, mb_s in streams.items():
        by_end[pair[end]] = (*by_end.get(pair[end], ()), mb_s)
    return by_end


def slow_nodes(streams: Streams, factor: float = _SLOW_FACTOR) -> dict[str, str]:
    """What is slow about the nodes that fall `factor` behind the others, by name."""
    sends, receives = _slow_ends(streams, factor)
    words = {name: f"receives {short(mb_s)} MB/s" for name, mb_s in receives.items()}
    return words | {name: f"sends {short(mb_s)} MB/s" for name, mb_s in sends.items()}


def slow_links(streams: Streams, factor: float = _SLOW_FACTOR) -> dict[Pair, float]:
    """The streams that are slow though both ends do well with others."""
    sends, receives = _slow_ends(streams, factor)
    between_good = {(a, b): mb_s for (a, b), mb_s in streams.items() if a not in sends and b not in receives}
    return _far_below(between_good, factor)


def _slow_ends(streams: Streams, factor: float) -> tuple[dict[str, float], dict[str, float]]:
    """The nodes that send slowly, and those that receive slowly."""
    sends, receives = egress(streams), ingress(streams)
    if len(sends.keys() | receives.keys()) < _LEAST_NODES:
        return {}, {}
    return _far_below(sends, factor), _far_below(receives, factor)


def _far_below(values: Mapping[Key, float], factor: float) -> dict[Key, float]:
    """What is `factor` behind the faster half, and further behind the median than chance goes."""
    if not values:
        return {}
    rates = list(values.values())
    limit = min(_faster_half(rates) / factor, _beyond_chance(rates))
    return {key: value for key, value in values.items() if value < limit}


def _faster_half(rates: Collection[float]) -> float:
    """The median of the faster half of one rate and more: up to three in four may be slow without moving it."""
    return median(sorted(rates)[len(rates) // 2 :])


def _beyond_chance(values: Sequence[float]) -> float:
    """How low chance alone takes one of many `values`; infinite where they are too few to tell."""
    logs = [math.log(value) for value in values if value > 0]
    if len(logs) < _ENOUGH:
        return math.inf
    centre = median(logs)
    spread = _MAD_TO_SIGMA * median(abs(value - centre) for value in logs)
    return math.exp(centre - min(_SIGMAS * spread, _MOST_NOISE))


def slow_suspects(streams: Streams) -> list[Suspect]:
    """The nodes and links that fall far behind the others, each with its rate and what the faster half reaches.

    What peers and history make of the nodes' rates comes on top. Of many nodes that are slow together nobody knows
    which side is healthy: `divided` says so of few nodes, and the judge where the groups are large enough.
    """
    nodes = slow_nodes(streams)
    if not streams or _are_many(nodes, streams):
        return []
    usual = short(_faster_half(egress(streams).values()))
    suspects = [
        Suspect("node", name, 0.6, Reason.of("tcp-node-slow", what=what, usual=usual)) for name, what in nodes.items()
    ]
    slowest: dict[str, float] = {}
    for (a, b), mb_s in slow_links(streams).items():
        name = link_name(a, b)
        slowest[name] = min(mb_s, slowest.get(name, mb_s))
    links = [
        Suspect("link", name, 0.8, Reason.of("tcp-link-slow", rate=short(mb_s), usual=usual))
        for name, mb_s in slowest.items()
    ]
    return suspects + links


def _are_many(slow: Collection[str], streams: Streams) -> bool:
    return len(slow) * _CLEAR_MINORITY > len(egress(streams).keys() | ingress(streams).keys())


def divided(streams: Streams) -> str:
    """Why too many nodes are slow to blame them, where one side is too small for the judge to see a group; else ""."""
    slow, nodes = slow_nodes(streams), egress(streams).keys() | ingress(streams).keys()
    judge_sees = len(nodes) >= _ENOUGH and min(len(slow), len(nodes) - len(slow)) >= _LEAST_NODES
    if judge_sees or not _are_many(slow, streams):
        return ""
    usual = short(_faster_half(egress(streams).values()))
    return Reason.of("tcp-nodes-divided", slow=len(slow), nodes=len(nodes), names=some_of(slow), usual=usual)


def measurements(streams: Streams) -> list[Measurement]:
    """Egress and ingress per node, to be judged among peers; a slow link, which blames nobody, is only recorded."""
    nodes = [
        Measurement(metric, max(values), "MB/s", Subject("node", name), samples=values)
        for metric, end in (("tcp_egress", 0), ("tcp_ingress", 1))
        for name, values in _by_end(streams, end).items()
    ]
    links = [
        Measurement("tcp_stream", mb_s, "MB/s", Subject("link", link_name(a, b)), {"from": a}, better=None)
        for (a, b), mb_s in slow_links(streams).items()
    ]
    return [*nodes, *links]


def summary(streams: Streams) -> str:
    """One line for people: the range, or who falls behind it."""
    if not streams:
        return "not measured"
    slow = [f"{name} {what}" for name, what in slow_nodes(streams).items()]
    slow += [f"{a} to {b} alone is slow, {short(mb_s)} MB/s" for (a, b), mb_s in slow_links(streams).items()]
    if not slow:
        return f"{min(streams.values()):.0f} to {max(streams.values()):.0f} MB/s"
    more = f" (and {len(slow) - 3} more)" if len(slow) > 3 else ""
    return f"{'; '.join(slow[:3])}{more}; the faster half reaches {short(_faster_half(egress(streams).values()))} MB/s"
