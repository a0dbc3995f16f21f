"""What tools measured of a port against the rate that the fabric's name gives it. Pure."""

from dataclasses import replace
from operator import attrgetter

from seatrial.catalog import nic_of
from seatrial.catalog.physics import FILLS_A_PORT, PORT_BROKEN, PORT_MOST, PORT_SLOW
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason, join
from seatrial.model.result import Check, Expected, Judgement
from seatrial.model.verdict import Verdict, worst

_value = attrgetter("value")
_AS_RATED = 0.95  # of the rate that a port itself reports
_CODES = {
    Verdict.PASS: "port-as-rated",
    Verdict.INCONCLUSIVE: "port-above-rate",
    Verdict.DEGRADED: "port-below-rate",
    Verdict.FAIL: "port-below-rate",
}


def against_port(check: Check, fabric: str | None) -> Check:
    """Return the check with its RDMA bandwidth, and the rates of its ports, compared with one NIC
    of the fabric.
    """
    rate_gb = nic_of(fabric).gbit_s
    if not rate_gb:
        return check
    judgements = [_judged(measurement, rate_gb / 8) for measurement in _of_each(check.measurements)]
    if not judgements:
        return check
    bad = [judgement.reason for judgement in judgements if not judgement.passed]
    verdict = worst([check.verdict, *(judgement.verdict for judgement in judgements)])
    return replace(
        check, verdict=verdict, reason=join((*bad, check.reason)), judgements=tuple(judgements)
    )


def _of_each(measurements: tuple[Measurement, ...]) -> list[Measurement]:
    """Return the fastest large message of each device, of several rows of a size the slowest
    (`--run_infinitely` prints one every few seconds); and the rates of ports.
    """
    by_size = {}
    for measurement in sorted(measurements, key=_value, reverse=True):
        size = measurement.conditions.get("message_bytes", FILLS_A_PORT)
        if measurement.metric in ("rdma_bandwidth", "port_rate") and int(size) >= FILLS_A_PORT:
            by_size[measurement.metric, measurement.subject.name, size] = measurement
    kept = {}
    for measurement in sorted(by_size.values(), key=_value):
        kept[measurement.metric, measurement.subject.name] = measurement
    return list(kept.values())


def _judged(measurement: Measurement, port_gb_s: float) -> Judgement:
    """Judge a rate by its share of what the port carries, both directions for a bidirectional
    test.
    """
    ways = 2 if measurement.conditions.get("bidirectional") else 1
    rated = ways * port_gb_s
    share = measurement.value / rated
    enough = PORT_SLOW
    if measurement.metric == "port_rate":
        enough = _AS_RATED
    if share < enough:
        verdict = Verdict.FAIL if share < PORT_BROKEN else Verdict.DEGRADED
    else:
        verdict = Verdict.PASS if share <= PORT_MOST else Verdict.INCONCLUSIVE
    reason = Reason.of(
        _CODES[verdict],
        device=measurement.subject.name,
        value=f"{measurement.value * 8:.0f}",
        rate=f"{rated * 8:.0f}",
        percent=f"{share * 100:.0f}",
    )
    return Judgement(
        measurement=measurement,
        verdict=verdict,
        reason=reason,
        source="physics",
        expected=Expected(low=enough * ways * port_gb_s),
        deviation=share - 1,
        share=share,
    )
