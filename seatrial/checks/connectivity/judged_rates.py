"""Judgements of the TCP rates of slow nodes and links, compared with their peers. Pure."""

from collections.abc import Sequence

from seatrial.checks.connectivity.rates import SLOW_FACTOR, Models, slow_cut, usual_by_node
from seatrial.checks.connectivity.slow_streams import verdict_of
from seatrial.model.measurement import Measurement, once
from seatrial.model.reason import Reason
from seatrial.model.result import Check, Expected, Judgement
from seatrial.text.words import measured, quantity


def judged_rates(check: Check, model_by_node: Models) -> list[Judgement]:
    """Judge the rates for which the check blames nodes and links, by the rates of their peers.

    `model_by_node` determines which nodes are peers. Rates and suspects come from the check itself,
    so a stored run is judged in the same way.
    """
    rates = _Rates(once(check.measurements), model_by_node)
    if not rates.usual:
        return []
    judgements = []
    for suspect in check.raw.suspects:
        match suspect.evidence.code:
            case "tcp-node-slow":
                judgements += rates.of_node(suspect.name)
            case "tcp-link-slow":
                judgements += rates.of_link(suspect.name)
            case "tcp-cut-slow":
                judgements += rates.across_cut()
    return judgements


class _Rates:
    """The rates of a check; `usual` is the rate of the model of each node, in MB/s."""

    def __init__(self, readings: Sequence[Measurement], model_by_node: Models) -> None:
        self._model_by_node = model_by_node
        self._of_nodes = []
        self._of_links = []
        for m in readings:
            if m.metric in ("tcp_egress", "tcp_ingress"):
                self._of_nodes.append(m)
            elif m.metric == "tcp_stream" and len(m.subject.nodes) == 2:
                self._of_links.append(m)
        self._streams = {_ends(m): m.value for m in self._of_links if m.finite}
        self.usual = usual_by_node(self._streams, model_by_node)

    def of_node(self, node: str) -> list[Judgement]:
        """Return judgements of the slow directions of a node."""
        if node not in self.usual:
            return []
        usual = self.usual[node]
        rates = [(m, usual) for m in self._of_nodes if m.subject.name == node]
        return _slow(rates)

    def of_link(self, link: str) -> list[Judgement]:
        """Return judgements of the slow directions of a link."""
        rates = []
        for m in self._of_links:
            if m.subject.name == link and m.finite:
                slower_end = min(self.usual[node] for node in _ends(m))
                rates.append((m, slower_end))
        return _slow(rates)

    def across_cut(self) -> list[Judgement]:
        """Return judgements of the streams across the cut."""
        across = slow_cut(self._streams, self._model_by_node)
        within = min(self.usual.values())
        rates = [(m, within) for m in self._of_links if _ends(m) in across]
        return _slow(rates)


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
