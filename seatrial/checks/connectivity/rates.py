"""Slow nodes and links by the TCP streams between nodes. Pure.

A node's egress is its best outgoing stream and its ingress its best incoming one, so that a slow
peer does not make a healthy node look slow, and one slow link blames neither end.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import NormalDist, fmean, median
from typing import TypeVar

from seatrial.checks.connectivity.reachability import Pair, Side, connected, cut_names, link_name
from seatrial.checks.metrics import TCP
from seatrial.model.baseline import FAIL_FACTOR
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.model.verdict import Verdict
from seatrial.text.words import number, some_of

DOUBTFUL_FACTOR = 3.0  # below the faster half: measured again
SLOW_FACTOR = 4.0  # below the faster half, at the best of all tries: slow

LEAST_LINKS = 2  # slow ones between the same sides that are one finding
_LEAST_STREAMS = 4  # of a mode: two links, both ways
LEAST_NODES = 3  # of two, a slow stream may be the fault of either end
_ENOUGH = 8  # values that tell their noise
_SIGMAS = 4.5  # how far chance goes
_MOST_NOISE = 3.0  # on natural logs
_MAD_TO_SIGMA = 1.4826  # of normal noise
_CLEAR_MINORITY = 3  # one of three nodes and fewer; more are another group rather than odd ones
_MOST_SURE = 0.97  # how often a suspect was right, at best, in docs/error-rates.md

Key = TypeVar("Key")
# MB/s by (from, to); a stream that could not be measured is not there
Streams = Mapping[Pair, float]
Rates = dict[str, float]  # MB/s by node
Models = Mapping[str, str]  # by node


def keep_best(best: dict[Key, float], new: Mapping[Key, float]) -> None:
    """Update `best` with the rates of `new` that are faster."""
    for key, mb_s in new.items():
        best[key] = max(mb_s, best.get(key, 0.0))


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
        by_end[pair[end]].append(mb_s)
    return {name: tuple(rates) for name, rates in by_end.items()}


def slow_nodes(streams: Streams, factor: float = SLOW_FACTOR) -> list[str]:
    """Return the nodes that fall `factor` behind the others."""
    sends, receives = _slow_ends(streams, factor)
    return [*dict.fromkeys((*receives, *sends))]


def slow_links(streams: Streams, factor: float = SLOW_FACTOR) -> dict[Pair, float]:
    """Return the streams that are slow though both ends do well with others."""
    sends, receives = _slow_ends(streams, factor)
    between_good = {
        (a, b): mb_s for (a, b), mb_s in streams.items() if a not in sends and b not in receives
    }
    return _far_below(between_good, factor)


def _slow_ends(streams: Streams, factor: float) -> tuple[Rates, Rates]:
    """Return the nodes that send slowly, and those that receive slowly."""
    sends = egress(streams)
    receives = ingress(streams)
    if len(sends.keys() | receives.keys()) < LEAST_NODES:
        return {}, {}
    return _far_below(sends, factor), _far_below(receives, factor)


def _far_below(values: Mapping[Key, float], factor: float) -> dict[Key, float]:
    """Return values `factor` below the faster half and further below the median than chance
    explains.
    """
    if not values:
        return {}
    rates = list(values.values())
    limit = min(_faster_half(rates) / factor, _beyond_chance(rates))
    return {key: value for key, value in values.items() if value < limit}


def _lower_mode(values: Streams) -> Streams:
    """Return the slower rates if rates form two modes that are SLOW_FACTOR apart, and further than
    chance explains.

    Half of all streams may be slow, as between two halves of a cluster; that is no noise around one
    median.
    """
    ordered = sorted((math.log(value), key) for key, value in values.items() if value > 0)
    logs = [rate for rate, _ in ordered]
    splits = range(_LEAST_STREAMS, len(logs) - _LEAST_STREAMS + 1)
    split = max(splits, key=lambda i: logs[i] - logs[i - 1], default=0)
    lower = logs[:split]
    upper = logs[split:]
    if not lower or not upper:
        return {}
    deviations = _deviations(lower) + _deviations(upper)
    spread = _MAD_TO_SIGMA * median(deviations)
    if upper[0] - lower[-1] < max(math.log(SLOW_FACTOR), _SIGMAS * spread):
        return {}
    return {key: values[key] for _, key in ordered[:split]}


def _deviations(values: Sequence[float]) -> list[float]:
    """Return how far each value is from the median."""
    centre = median(values)
    return [abs(value - centre) for value in values]


def _faster_half(rates: Collection[float]) -> float:
    """Return the median of the faster half of one rate and more: up to three in four may be slow
    without moving it.
    """
    return median(sorted(rates)[len(rates) // 2 :])


def _beyond_chance(values: Sequence[float]) -> float:
    """Return the lowest value that chance explains among many; infinite for few."""
    logs = [math.log(value) for value in values if value > 0]
    if len(logs) < _ENOUGH:
        return math.inf
    spread = _MAD_TO_SIGMA * median(_deviations(logs))
    return math.exp(median(logs) - min(_SIGMAS * spread, _MOST_NOISE))


def levelled(streams: Streams, model_by_node: Models) -> Streams:
    """Scale the streams as if every node carried what the fastest model does: a slower model is not
    taken for slow.

    What a model carries is the median of the faster half of its nodes, of three at least; one or
    two nodes are compared with all, so that a slow one does not pass as slow by its model. A stream
    is compared with the slower of its ends.
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
    """Return MB/s that nodes of the same model carry; what all carry, for unknown models and few
    nodes.
    """
    best = egress(streams)
    keep_best(best, ingress(streams))
    if not best:
        return {}
    best_by_model = defaultdict(list)
    for name, rate in best.items():
        best_by_model[model_by_node.get(name, "")].append(rate)
    usual_by_model = {
        model: _faster_half(rates)
        for model, rates in best_by_model.items()
        if model and len(rates) >= LEAST_NODES
    }
    of_all = _faster_half(best.values())
    return {name: usual_by_model.get(model_by_node.get(name, ""), of_all) for name in best}


def slow_suspects(streams: Streams, models: Mapping[str, str] = {}) -> list[Suspect]:
    """Return the nodes and links that fall far behind the others, each with its rate and what the
    faster half reaches.

    The judge compares the nodes' rates with peers and history as well. If many nodes are slow
    together, it is unknown which side is healthy: `divided` says so of few nodes, and the judge if
    the groups are large enough.
    """
    level = levelled(streams, models)
    nodes = slow_nodes(level)
    if not streams or _are_many(nodes, len(_nodes_of(level))):
        return []
    usual = usual_by_node(streams, models)
    suspects = [*_node_suspects(nodes, streams, level, usual)]
    sides, across = _cut(level)
    if across:
        suspects.append(_cut_suspect(sides, across, streams, level, usual))
    slow = slow_links(level).keys()
    in_doubt = [
        pair for pair in level if pair in slow or pair in across or not set(nodes).isdisjoint(pair)
    ]
    fastest_first = sorted(slow - across, key=lambda pair: -streams[pair])
    slowest = {link_name(*pair): pair for pair in fastest_first}  # of a link's two directions
    fastest = max(usual.values())
    for name, (a, b) in slowest.items():
        reached = number(min(usual[a], usual[b]))
        suspects.append(
            Suspect(
                kind="link",
                name=name,
                confidence=_confidence((a, b), level, in_doubt),
                evidence=Reason.of("tcp-link-slow", rate=number(streams[a, b]), usual=reached),
                verdict=verdict_of(level[a, b], fastest),
            )
        )
    return suspects


def _node_suspects(
    nodes: Sequence[str], streams: Streams, level: Streams, usual: Rates
) -> Iterator[Suspect]:
    """Yield the slow nodes, each with the slower one of its ends."""
    fastest = max(usual.values())
    rates = _rates_of(streams, level)
    ends = (egress(level), ingress(level))
    for name in nodes:
        own = [end for end in ends if name in end]
        yield Suspect(
            kind="node",
            name=name,
            confidence=max(_confidence(name, end, nodes) for end in own),
            evidence=Reason.of("tcp-node-slow", what=rates[name], usual=number(usual[name])),
            verdict=verdict_of(min(end[name] for end in own), fastest),
        )


def _cut_suspect(
    sides: Sequence[Side], across: set[Pair], streams: Streams, level: Streams, usual: Rates
) -> Suspect:
    """Return the slow cut as one link, with the best of its streams."""
    name, parties = cut_names(sides)
    fastest_across = max(across, key=lambda pair: level[pair])
    return Suspect(
        kind="link",
        name=name,
        confidence=_confidence(fastest_across, level, across),
        evidence=Reason.of(
            "tcp-cut-slow",
            parties=parties,
            streams=len(across),
            rate=number(max(streams[pair] for pair in across)),
            usual=number(min(usual.values())),
        ),
        verdict=verdict_of(level[fastest_across], max(usual.values())),
    )


def verdict_of(rate: float, usual: float) -> Verdict:
    """Return the verdict of a slow rate: `fail` if it is twice as far below as a slow one has to
    be.
    """
    if rate < usual / SLOW_FACTOR / FAIL_FACTOR:
        return Verdict.FAIL
    return Verdict.DEGRADED


def _confidence(slow: Key, rates: Mapping[Key, float], doubted: Collection[Key]) -> float:
    """Return the share of healthy clusters in which no rate is as low by chance.

    The noise is that of the rates that are not `doubted`: a rate of the posterior predictive
    distribution, Student's t, where the noise of few peers is drawn towards the assumed one, which
    counts as _ENOUGH values (Gelman et al., "Bayesian Data Analysis", 3.3). Each rate is another
    chance.
    """
    logs = [math.log(rate) for key, rate in rates.items() if key not in doubted and rate > 0]
    if not logs or rates[slow] <= 0:
        return _MOST_SURE
    centre = fmean(logs)
    freedom = _ENOUGH + len(logs) - 1
    squares = _ENOUGH * TCP.sigma**2 + sum((rate - centre) ** 2 for rate in logs)
    scale = math.sqrt(squares / freedom * (1 + 1 / len(logs)))
    distance = max(0.0, centre - math.log(rates[slow])) / scale
    # Student's t as a normal deviate: Wallace, "Bounds on normal approximations to Student's",
    # 1959.
    correction = (8 * freedom + 1) / (8 * freedom + 3)
    deviate = correction * math.sqrt(freedom * math.log1p(distance**2 / freedom))
    chance = len(rates) * NormalDist().cdf(-deviate)
    sure = min(max(1 - chance, 0.0), _MOST_SURE)
    return round(sure, 2)


def slow_cut(streams: Streams, model_by_node: Models) -> set[Pair]:
    """Return the slow streams across a cut; empty without one."""
    return _cut(levelled(streams, model_by_node))[1]


def _cut(streams: Streams) -> tuple[list[Side], set[Pair]]:
    """Return the sides of a slow cut, and the slow streams across it, at least those of two links;
    empty without a cut.

    Where streams are of two modes the slower ones are across, or nodes are slow and no cut.
    """
    slower = _lower_mode(streams)
    sides = _sides(streams, slower)
    across = {pair for pair in slower if _crosses(pair, sides)}
    if len(across) < len(slower) or not across:
        sides = _sides(streams, _far_below(streams, SLOW_FACTOR))
        across = {pair for pair in slow_links(streams) if _crosses(pair, sides)}
    links = {frozenset(pair) for pair in across}
    if len(links) < LEAST_LINKS:
        return [], set()
    return sides, across


def _sides(streams: Streams, slow: Collection[Pair]) -> list[Side]:
    """Return the groups of two and more nodes that streams which are not slow connect."""
    neighbours: dict[str, set[str]] = {name: set() for pair in streams for name in pair}
    for a, b in streams:
        if (a, b) not in slow and (b, a) not in slow:
            neighbours[a].add(b)
            neighbours[b].add(a)
    return connected(neighbours)


def _crosses(pair: Pair, sides: Sequence[Side]) -> bool:
    """Return whether the ends of a stream are on two sides, which share no node."""
    touched = [side for side in sides if not side.isdisjoint(pair)]
    return len(touched) == 2


def _rates_of(streams: Streams, level: Streams) -> dict[str, str]:
    """Describe the slow direction of each slow node."""
    sends, receives = _slow_ends(level, SLOW_FACTOR)
    out = egress(streams)
    into = ingress(streams)
    receiving = {name: f"receives {number(into[name])} MB/s" for name in receives}
    return receiving | {name: f"sends {number(out[name])} MB/s" for name in sends}


def _nodes_of(streams: Streams) -> set[str]:
    """Return the nodes that send or receive."""
    return egress(streams).keys() | ingress(streams).keys()


def _are_many(slow: Collection[str], nodes: int) -> bool:
    """Return whether so many nodes are slow that they are another group."""
    return len(slow) * _CLEAR_MINORITY > nodes


def divided(streams: Streams, models: Mapping[str, str] = {}) -> Reason:
    """Return the reason if too many nodes are slow to blame any, and too few for the judge to see a
    group.
    """
    slow = slow_nodes(levelled(streams, models))
    nodes = len(_nodes_of(streams))
    smaller_group = min(len(slow), nodes - len(slow))
    judge_sees = nodes >= _ENOUGH and smaller_group >= LEAST_NODES
    if judge_sees or not _are_many(slow, nodes):
        return Reason()
    return Reason.of(
        "tcp-nodes-divided",
        slow=len(slow),
        nodes=nodes,
        names=some_of(slow),
        usual=number(_faster_half(egress(streams).values())),
    )


def measurements(streams: Streams) -> list[Measurement]:
    """Return egress and ingress per node, which are judged among peers, and the streams, which are
    recorded only.
    """
    nodes = [
        Measurement(
            metric=metric,
            value=max(values),
            unit="MB/s",
            subject=Subject("node", name),
            samples=values,
        )
        for metric, end in (("tcp_egress", 0), ("tcp_ingress", 1))
        for name, values in _by_end(streams, end).items()
    ]
    links = [
        Measurement(
            metric="tcp_stream",
            value=mb_s,
            unit="MB/s",
            subject=Subject("link", link_name(a, b)),
            conditions={"from": a},
            better=None,
        )
        for (a, b), mb_s in streams.items()
    ]
    return [*nodes, *links]


def summary(streams: Streams, models: Mapping[str, str] = {}) -> str:
    """Return one line for people: the range of rates, or who falls behind it."""
    if not streams:
        return "not measured"
    level = levelled(streams, models)
    slow = [f"{name} {rate}" for name, rate in _rates_of(streams, level).items()]
    for a, b in slow_links(level):
        slow.append(f"{a} to {b} alone is slow, {number(streams[a, b])} MB/s")
    if not slow:
        return f"{number(min(streams.values()))} to {number(max(streams.values()))} MB/s"
    words = "; ".join(slow[:3])
    if len(slow) > 3:
        words += f" (and {len(slow) - 3} more)"
    usual = number(_faster_half(egress(streams).values()))
    return f"{words}; the faster half reaches {usual} MB/s"
