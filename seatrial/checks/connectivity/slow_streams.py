"""Suspects and remarks from slow TCP streams. Pure."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import NormalDist, fmean

from seatrial.checks.connectivity.rates import (
    ENOUGH,
    LEAST_NODES,
    SLOW_FACTOR,
    Key,
    Rates,
    Streams,
    cut_of,
    egress,
    faster_half,
    ingress,
    levelled,
    slow_ends,
    slow_links,
    slow_nodes,
    usual_by_node,
)
from seatrial.checks.connectivity.reachability import Pair, Side, cut_names, link_name
from seatrial.checks.metrics import TCP
from seatrial.model.baseline import FAIL_FACTOR
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.model.verdict import Verdict
from seatrial.text.words import number, some_of

_CLEAR_MINORITY = 3  # at most one of three nodes; more are a group, not outliers
_MOST_SHOWN = 3
_MOST_SURE = 0.97  # best share of right suspects in docs/error-rates.md


def slow_suspects(streams: Streams, models: Mapping[str, str] = {}) -> list[Suspect]:
    """Return the nodes and links far slower than the others, each with its rate and that of its
    peers.

    Empty if so many nodes are slow that either group may be the healthy one. In that case `divided`
    returns a reason for a few nodes, and the judge compares the groups if they are large enough.
    """
    level = levelled(streams, models)
    nodes = slow_nodes(level)
    if not streams or _are_many(nodes, len(_nodes_of(level))):
        return []
    usual = usual_by_node(streams, models)
    suspects = [*_node_suspects(nodes, streams, level, usual)]
    sides, across = cut_of(level)
    if across:
        suspects.append(_cut_suspect(sides, across, streams, level, usual))
    slow = slow_links(level).keys()
    in_doubt = slow | across
    for pair in level:
        if not set(nodes).isdisjoint(pair):
            in_doubt.add(pair)
    suspects += _link_suspects(slow - across, in_doubt, streams, level, usual)
    return suspects


def _node_suspects(
    nodes: Sequence[str], streams: Streams, level: Streams, usual: Rates
) -> Iterator[Suspect]:
    """Yield the slow nodes, with the verdict of the slower direction of each."""
    fastest = max(usual.values())
    rates = _rates_of(streams, level)
    ends = (egress(level), ingress(level))
    for name in nodes:
        own = [end for end in ends if name in end]
        slower = min(end[name] for end in own)
        reached = number(usual[name])
        yield Suspect(
            kind="node",
            name=name,
            confidence=max(_confidence(name, end, nodes) for end in own),
            evidence=Reason.of("tcp-node-slow", what=rates[name], usual=reached),
            verdict=verdict_of(slower, fastest),
        )


def _link_suspects(
    slow: Collection[Pair],
    in_doubt: Collection[Pair],
    streams: Streams,
    level: Streams,
    usual: Rates,
) -> Iterator[Suspect]:
    """Yield the slow links, with the verdict of the slower direction of each."""
    fastest = max(usual.values())
    fastest_first = sorted(slow, key=lambda pair: -streams[pair])
    slowest = {link_name(*pair): pair for pair in fastest_first}
    for name, pair in slowest.items():
        reached = min(usual[end] for end in pair)
        yield Suspect(
            kind="link",
            name=name,
            confidence=_confidence(pair, level, in_doubt),
            evidence=Reason.of("tcp-link-slow", rate=number(streams[pair]), usual=number(reached)),
            verdict=verdict_of(level[pair], fastest),
        )


def _cut_suspect(
    sides: Sequence[Side], across: set[Pair], streams: Streams, level: Streams, usual: Rates
) -> Suspect:
    """Return the slow cut as one link, with the best of the streams across it."""
    name, parties = cut_names(sides)
    fastest_across = max(across, key=lambda pair: level[pair])
    rate = max(streams[pair] for pair in across)
    reached = min(usual.values())
    return Suspect(
        kind="link",
        name=name,
        confidence=_confidence(fastest_across, level, across),
        evidence=Reason.of(
            "tcp-cut-slow",
            parties=parties,
            streams=len(across),
            rate=number(rate),
            usual=number(reached),
        ),
        verdict=verdict_of(level[fastest_across], max(usual.values())),
    )


def verdict_of(rate: float, usual: float) -> Verdict:
    """Return the verdict of a slow rate: `fail` if it is twice as far below the usual one as it
    must be to be slow.
    """
    if rate < usual / SLOW_FACTOR / FAIL_FACTOR:
        return Verdict.FAIL
    return Verdict.DEGRADED


def _confidence(slow: Key, rates: Mapping[Key, float], doubted: Collection[Key]) -> float:
    """Return the share of healthy clusters in which no rate is as low by chance.

    The noise is estimated from the rates not in `doubted`: the posterior predictive distribution is
    Student's t, with the assumed noise as a prior that counts as ENOUGH values (Gelman et al.,
    "Bayesian Data Analysis", 3.3). The number of rates is corrected for.
    """
    rate = rates[slow]
    logs = [math.log(peer) for key, peer in rates.items() if key not in doubted and peer > 0]
    if not logs or rate <= 0:
        return _MOST_SURE
    peers = len(logs)
    centre = fmean(logs)
    freedom = ENOUGH + peers - 1
    assumed = ENOUGH * TCP.sigma**2
    squares = assumed + sum((log - centre) ** 2 for log in logs)
    scale = math.sqrt(squares / freedom * (1 + 1 / peers))
    distance = max(0.0, centre - math.log(rate)) / scale
    deviate = _normal_deviate(distance, freedom)
    chance = len(rates) * NormalDist().cdf(-deviate)
    sure = min(max(1 - chance, 0.0), _MOST_SURE)
    return round(sure, 2)


def _normal_deviate(t: float, freedom: int) -> float:
    """Return the normal deviate with the same probability as Student's t (Wallace, "Bounds on
    normal approximations to Student's", 1959).
    """
    correction = (8 * freedom + 1) / (8 * freedom + 3)
    return correction * math.sqrt(freedom * math.log1p(t**2 / freedom))


def _rates_of(streams: Streams, level: Streams) -> dict[str, str]:
    """Describe the slow direction of each slow node, by name."""
    sends, receives = slow_ends(level, SLOW_FACTOR)
    described = {}
    into = ingress(streams)
    for name in receives:
        rate = number(into[name])
        described[name] = f"receives {rate} MB/s"
    out = egress(streams)
    for name in sends:
        rate = number(out[name])
        described[name] = f"sends {rate} MB/s"
    return described


def _nodes_of(streams: Streams) -> set[str]:
    """Return the nodes that send or receive."""
    return egress(streams).keys() | ingress(streams).keys()


def _are_many(slow: Collection[str], nodes: int) -> bool:
    """Return whether the slow nodes are too many to be outliers."""
    return len(slow) * _CLEAR_MINORITY > nodes


def divided(streams: Streams, models: Mapping[str, str] = {}) -> Reason:
    """Return the reason if too many nodes are slow to blame any, but too few for the judge to
    compare groups.

    Empty otherwise.
    """
    slow = slow_nodes(levelled(streams, models))
    nodes = len(_nodes_of(streams))
    smaller_group = min(len(slow), nodes - len(slow))
    judge_sees = nodes >= ENOUGH and smaller_group >= LEAST_NODES
    if judge_sees or not _are_many(slow, nodes):
        return Reason()
    return Reason.of(
        "tcp-nodes-divided",
        slow=len(slow),
        nodes=nodes,
        names=some_of(slow),
        usual=number(faster_half(egress(streams).values())),
    )


def summary(streams: Streams, models: Mapping[str, str] = {}) -> str:
    """Return one line for people: the range of rates, and the slow nodes and links."""
    if not streams:
        return "not measured"
    slowest = number(min(streams.values()))
    fastest = number(max(streams.values()))
    span = f"{slowest} to {fastest} MB/s"
    slow = [f"{suspect.name}: {suspect.evidence}" for suspect in slow_suspects(streams, models)]
    return "; ".join([span, *slow[:_MOST_SHOWN]])
