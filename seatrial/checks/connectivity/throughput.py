"""Whose link is slow: which streams to measure between nodes, and what they say about each node. Pure.

A node's egress is its best outgoing stream and its ingress its best incoming one, so that a slow peer does not make a
healthy node look slow, and one slow link is held against neither end.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import median
from typing import TypeVar

from seatrial.checks.connectivity.reachability import Pair, link_name
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.text.numbers import short
from seatrial.text.words import some_of

ONE_BY_ONE_UP_TO = 8  # nodes; these may share one machine's cores
AT_ONCE = 32  # streams above that
SECOND_TRIES = 2
_TURNS = 16  # of a healthy node in one try, so that it ends
_DOUBTFUL_FACTOR = 3.0  # below the faster half: measured again
_SLOW_FACTOR = 4.0  # below the faster half, at the best of all tries: slow

_LEAST_NODES = 3  # of two, a slow stream may be the fault of either end
_ENOUGH, _SIGMAS, _MOST_NOISE = 8, 4.5, 3.0  # values that tell their noise; how far chance goes; on natural logs
_MAD_TO_SIGMA = 1.4826  # of normal noise
_CLEAR_MINORITY = 3  # one of three nodes and fewer; more are another group rather than odd ones

Key = TypeVar("Key")
Streams = Mapping[Pair, float]  # MB/s by (from, to); a stream that could not be measured is not there
Measure = Callable[[Sequence[Pair]], Streams]


def explore(names: Sequence[str], measure: Measure) -> Streams:
    """The streams between ring neighbours, and between nodes that look slow and healthy ones.

    `measure` takes disjoint pairs, which may run at once, and returns the streams of both directions of each.
    """
    return _with_second_tries(rounds(names), len(names), measure)


def explore_again(names: Sequence[str], doubtful: Sequence[str], nth: int, measure: Measure) -> Streams:
    """What `explore` measures of the doubtful nodes once more, so that one is as good as the other."""
    return _with_second_tries(once_more(names, doubtful, nth), len(names), measure)


def _with_second_tries(batches: Sequence[Sequence[Pair]], nodes: int, measure: Measure) -> Streams:
    streams: dict[Pair, float] = {}
    for pairs in batches:
        _keep_best(streams, measure(pairs))
    lacking = [(a, b) for pairs in batches for a, b in pairs if (a, b) not in streams or (b, a) not in streams]
    for pair in lacking[:_TURNS]:  # too many started at once for them all to begin in time
        _keep_best(streams, measure([pair]))
    for _ in range(SECOND_TRIES):
        for disjoint in (*second_tries(streams), *_disjoint(slow_links(streams, _DOUBTFUL_FACTOR))):
            for pairs in _batches(disjoint, nodes):
                _keep_best(streams, measure(pairs))
    return streams


def _disjoint(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """The links of `pairs`, each once, in lists of which no node is in two links."""
    lists: list[list[Pair]] = []
    for link in dict.fromkeys(frozenset(pair) for pair in pairs):
        a, b = sorted(link)
        fitting = next((each for each in lists if not any(link & set(pair) for pair in each)), None)
        if fitting is None:
            lists.append([(a, b)])
        else:
            fitting.append((a, b))
    return lists[:_TURNS]


def rounds(names: Sequence[str]) -> list[list[Pair]]:
    """Every node with its neighbours in a ring, in batches of disjoint pairs."""
    return [batch for disjoint in _ring(names) for batch in _batches(disjoint, len(names))]


def _ring(names: Sequence[str]) -> list[list[Pair]]:
    """The edges of the ring, as up to three lists of disjoint ones."""
    if len(names) < 2:
        return []
    following = [*names[1:], names[0]] if len(names) > 2 else names[1:]
    edges = list(zip(names, following, strict=False))
    even, odd, last = edges[0::2], edges[1::2], []
    if len(edges) > 1 and len(edges) % 2:  # in an odd ring the last edge meets the first
        last = [even.pop()]
    return [even, odd, last]


def _batches(pairs: Sequence[Pair], nodes: int) -> list[list[Pair]]:
    size = 1 if nodes <= ONE_BY_ONE_UP_TO else AT_ONCE
    return [list(pairs[start : start + size]) for start in range(0, len(pairs), size)]


def _keep_best(streams: dict[Pair, float], new: Streams) -> None:
    for pair, mb_s in new.items():
        streams[pair] = max(mb_s, streams.get(pair, 0.0))


def second_tries(streams: Streams) -> list[list[Pair]]:
    """Each node that looks slow with a healthy one, at best a new one: a stolen time slice or bad company clears up.

    In lists of disjoint pairs, several where fewer are healthy than look slow: nobody is blamed untried.
    """
    doubtful = list(slow_nodes(streams, _DOUBTFUL_FACTOR))
    receiving = ingress(streams)
    free = [name for name in egress(streams) if name not in doubtful and name in receiving]
    starts = range(0, len(doubtful), len(free))[:_TURNS] if free else ()
    return [_partnered(doubtful[start : start + len(free)], free, streams) for start in starts]


def _partnered(doubtful: Sequence[str], free: Sequence[str], streams: Streams) -> list[Pair]:
    left, pairs = list(free), []
    for name in doubtful:
        partner = next((peer for peer in left if (name, peer) not in streams), left[0])
        left.remove(partner)
        pairs.append((name, partner))
    return pairs


def once_more(names: Sequence[str], doubtful: Sequence[str], nth: int) -> list[list[Pair]]:
    """Each of the doubtful nodes with its neighbours in the ring, in batches of disjoint pairs.

    Those whose neighbours are in doubt as well meet one that is not on top, another for each `nth` time.
    """
    requested = set(doubtful)
    ring = [[pair for pair in disjoint if requested.intersection(pair)] for disjoint in _ring(names)]
    trusted = {name for disjoint in ring for pair in disjoint if not requested.issuperset(pair) for name in pair}
    lonely = [name for name in doubtful if name not in trusted]
    free = [name for name in names if name not in requested]
    turned = [free[(i + nth) % len(free)] for i in range(len(free))]
    starts = range(0, len(lonely), len(free)) if free else ()
    on_top = [list(zip(lonely[start:], turned, strict=False)) for start in starts]
    return [batch for disjoint in (*ring, *on_top) for batch in _batches(disjoint, len(names))]


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
    if not _are_many(slow, streams) or min(len(slow), len(nodes) - len(slow)) >= _LEAST_NODES:
        return ""
    usual = short(_faster_half(egress(streams).values()))
    return Reason.of("tcp-nodes-divided", slow=len(slow), nodes=len(nodes), names=some_of(slow), usual=usual)


def not_measured(names: Sequence[str], streams: Streams) -> list[str]:
    """The links of the ring whose streams are missing in one direction or in both."""
    planned = [pair for batch in rounds(names) for pair in batch]
    return [link_name(a, b) for a, b in planned if (a, b) not in streams or (b, a) not in streams]


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
