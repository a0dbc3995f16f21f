"""How far the rates of TCP lie apart: the confidence in a slow node or link, and the judgement of its rates. Pure."""

from collections.abc import Mapping, Sequence

from seatrial.checks.connectivity.rates import SLOW_FACTOR, Streams, slow_cut, usual_by_node
from seatrial.model.baseline import FAIL_FACTOR
from seatrial.model.measurement import Measurement, once
from seatrial.model.reason import Reason, code_of
from seatrial.model.result import Check, Expected, Judgement
from seatrial.model.verdict import Verdict
from seatrial.text.words import measured, quantity

Usual = Mapping[str, float]  # MB/s that nodes of the same model carry, by node


def judged_rates(check: Check, model_by_node: Mapping[str, str]) -> list[Judgement]:
    """Hold the rates that the check blames nodes and links for against those of their peers.

    `model_by_node` are the nodes that are alike. The rates and suspects are those of the check itself, so that a stored
    run is judged in the same way.
    """
    readings = once(check.measurements)
    streams = _streams(readings)
    usual = usual_by_node(streams, model_by_node)
    if not usual:
        return []
    judgements = []
    for suspect in check.raw.suspects:
        match code_of(suspect.evidence):
            case "tcp-node-slow":
                found = _of_node(readings, suspect.name, usual)
            case "tcp-link-slow":
                found = _of_link(readings, suspect.name, usual)
            case "tcp-cut-slow":
                found = _across_cut(readings, streams, model_by_node, usual)
            case _:
                continue
        judgements += found
    return judgements


def _streams(readings: Sequence[Measurement]) -> Streams:
    of_links = (m for m in readings if m.metric == "tcp_stream")
    return {_ends(m): m.value for m in of_links if m.finite and len(m.subject.nodes) == 2}


def _ends(stream: Measurement) -> tuple[str, str]:
    """The sending and the receiving node."""
    first, second = stream.subject.nodes
    sender = str(stream.conditions.get("from", first))
    return sender, second if sender == first else first


def _of_node(readings: Sequence[Measurement], node: str, usual: Usual) -> list[Judgement]:
    own = [m for m in readings if m.subject.name == node and m.metric in ("tcp_egress", "tcp_ingress")]
    return _slow([(m, usual[node]) for m in own if node in usual])


def _of_link(readings: Sequence[Measurement], link: str, usual: Usual) -> list[Judgement]:
    own = [m for m in readings if m.subject.name == link and m.metric == "tcp_stream"]
    return _slow([(m, min(usual[node] for node in _ends(m))) for m in own if usual.keys() >= set(_ends(m))])


def _across_cut(
    readings: Sequence[Measurement], streams: Streams, model_by_node: Mapping[str, str], usual: Usual
) -> list[Judgement]:
    across = slow_cut(streams, model_by_node)
    return _slow([(m, min(usual.values())) for m in readings if m.metric == "tcp_stream" and _ends(m) in across])


def _slow(rates: Sequence[tuple[Measurement, float]]) -> list[Judgement]:
    """The judgements of the rates that are slow; of the lowest one where the median of its repeats is not."""
    slow = [(m, peers) for m, peers in rates if m.value < peers / SLOW_FACTOR]
    if not slow and rates:
        slow = [min(rates, key=lambda rate: rate[0].value / rate[1])]
    return [_judgement(m, peers) for m, peers in slow]


def _judgement(m: Measurement, peers: float) -> Judgement:
    low = peers / SLOW_FACTOR
    values = m.samples or (m.value,)
    reason = Reason.of(
        "worse-than-peers",
        number=measured(m),
        percent=f"{round(100 * (1 - m.value / peers), 1):g}",
        side="below",
        against=f"the {quantity(peers, m.unit)} of the faster half of the nodes",
        limit=f"{100 * (1 - 1 / SLOW_FACTOR):g}",
        agreeing=sum(value < low for value in values),
        readings=len(values),
        of_runs="",
    )
    verdict = Verdict.FAIL if m.value < low / FAIL_FACTOR else Verdict.DEGRADED
    return Judgement(m, verdict, reason, "peers", Expected(low=low), m.value / peers - 1)
