"""Judgements of the TCP rates of slow nodes and links, compared with their peers. Pure."""

from collections.abc import Sequence, Set

from seatrial.checks.connectivity.rates import (
    SLOW_FACTOR,
    Models,
    Rates,
    slow_cut,
    usual_by_node,
)
from seatrial.checks.connectivity.reachability import Pair
from seatrial.checks.connectivity.slow_streams import verdict_of
from seatrial.model.measurement import Measurement, once
from seatrial.model.reason import Reason
from seatrial.model.result import Check, Expected, Judgement, Suspect
from seatrial.text.words import measured, quantity

_OF_NODES = ("tcp_egress", "tcp_ingress")
_STREAM = "tcp_stream"


def judged_rates(check: Check, model_by_node: Models) -> list[Judgement]:
    """Judge the rates for which the check blames nodes and links, by the rates of their peers.

    `model_by_node` determines which nodes are peers. Rates and suspects come from the check itself,
    so a stored run is judged in the same way.
    """
    readings = []
    streams = {}
    for m in once(check.measurements):
        is_stream = m.metric == _STREAM and len(m.subject.nodes) == 2
        if m.finite and (is_stream or m.metric in _OF_NODES):
            readings.append(m)
        if m.finite and is_stream:
            streams[_ends(m)] = m.value
    usual = usual_by_node(streams, model_by_node)
    if not usual:
        return []
    across = slow_cut(streams, model_by_node)
    judgements = []
    for suspect in check.raw.suspects:
        rates = []
        for m in readings:
            peers = _peers_rate(m, suspect, usual, across)
            if peers is not None:
                rates.append((m, peers))
        judgements += _slow(rates)
    return judgements


def _peers_rate(m: Measurement, suspect: Suspect, usual: Rates, across: Set[Pair]) -> float | None:
    """Return what the peers reach, in MB/s; None for a rate that the suspect is not blamed for.

    `usual` is the rate of the model of each node; `across` are the slow streams across a cut.
    """
    is_own = m.subject.name == suspect.name
    match suspect.evidence.code:
        case "tcp-node-slow" if is_own:
            return usual.get(suspect.name)
        case "tcp-link-slow" if is_own:
            return min(usual[node] for node in m.subject.nodes)
        case "tcp-cut-slow" if m.metric == _STREAM and _ends(m) in across:
            return min(usual.values())
    return None


def _ends(stream: Measurement) -> tuple[str, str]:
    """Return the sending and the receiving node."""
    first, second = stream.subject.nodes
    sender = str(stream.conditions.get("from", first))
    if sender == first:
        return sender, second
    return sender, first


def _slow(rates: Sequence[tuple[Measurement, float]]) -> list[Judgement]:
    """Return judgements of the slow rates; if the medians of repeats are not slow, of the lowest
    rate.

    Each rate comes with that of its peers.
    """
    slow = [(m, peers) for m, peers in rates if m.value < peers / SLOW_FACTOR]
    if not slow and rates:
        slow = [min(rates, key=lambda rate: rate[0].value / rate[1])]
    return [_judgement(m, peers) for m, peers in slow]


def _judgement(m: Measurement, peers: float) -> Judgement:
    """Return the judgement of a slow rate, given that of its peers."""
    low = peers / SLOW_FACTOR
    ratio = m.value / peers
    percent_below = round(100 * (1 - ratio), 1)
    usual = quantity(peers, m.unit)
    values = m.samples or (m.value,)
    reason = Reason.of(
        "worse-than-peers",
        number=measured(m),
        percent=f"{percent_below:g}",
        side="below",
        against=f"the {usual} of the faster half of the nodes",
        limit=f"{100 * (1 - 1 / SLOW_FACTOR):g}",
        agreeing=sum(value < low for value in values),
        readings=len(values),
        since="",
    )
    return Judgement(
        measurement=m,
        verdict=verdict_of(m.value, peers),
        reason=reason,
        source="peers",
        expected=Expected(low=low),
        deviation=ratio - 1,
    )
