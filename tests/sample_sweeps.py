"""Sweeps of the sample runs, judged."""

import math
from collections.abc import Sequence

from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import Check, Expected, Judgement, Suspect
from seatrial.model.verdict import Verdict

CLUSTER = Subject("cluster", "cluster")
# Peak busbw (GB/s) and base latency (us) of each operation on 8 nodes of 8 H100 with 8x400G
# InfiniBand.
_H100 = {
    "all_reduce": (387.0, 41.0),
    "all_gather": (362.0, 33.0),
    "reduce_scatter": (364.0, 34.0),
    "broadcast": (318.0, 30.0),
    "alltoall": (47.8, 58.0),
}
_BUS_FACTOR = {
    "all_reduce": 2.0,
    "all_gather": 1.0,
    "reduce_scatter": 1.0,
    "broadcast": 1.0,
    "alltoall": 1.0,
}
_SLOW = 0.531  # one node of eight with a NIC at a quarter of its rate


def _curve(peak: float, base_us: float, factor: float, size: int) -> tuple[float, float]:
    """busbw (GB/s) and latency (us) at `size`: a start-up time, then a rate (the alpha-beta
    model).
    """
    time_us = base_us + size * factor / (peak * 1e3)
    return size * factor / time_us / 1e3, time_us


def _sweep(
    operation: str, sizes: Sequence[int], ranks: int, peak: float, base_us: float, slow: float = 1.0
) -> list[Measurement]:
    measurements = []
    for size in sizes:
        conditions: dict[str, ConditionValue] = {
            "operation": operation,
            "message_bytes": size,
            "dtype": "float32",
            "ranks": ranks,
        }
        for placement, tilt in (("out_of_place", 1.0), ("in_place", 1.006)):
            busbw, time_us = _curve(peak * slow * tilt, base_us, _BUS_FACTOR[operation], size)
            samples = tuple(busbw * (1 + 0.004 * math.sin(7 * i + size)) for i in range(5))
            at: dict[str, ConditionValue] = {**conditions, "placement": placement}
            measurements.append(Measurement("busbw", busbw, "GB/s", CLUSTER, at, samples))
            measurements.append(Measurement("latency", time_us, "us", CLUSTER, at, better="lower"))
    return measurements


def plateau(
    value: float, ranks: int = 4, operation: str = "all_reduce", **at: ConditionValue
) -> Measurement:
    """The busbw plateau of a sweep over the cluster."""
    conditions: dict[str, ConditionValue] = {
        "operation": operation,
        "dtype": "float32",
        "ranks": ranks,
        **at,
    }
    return Measurement("busbw_plateau", value, "GB/s", CLUSTER, conditions)


def busbw(
    value: float, message_bytes: int = 1 << 24, ranks: int = 4, **at: ConditionValue
) -> Measurement:
    """The busbw at one size of a sweep over the cluster, by itself all_reduce out of place."""
    conditions: dict[str, ConditionValue] = {
        "operation": "all_reduce",
        "message_bytes": message_bytes,
    }
    conditions |= {"dtype": "float32", "ranks": ranks, "placement": "out_of_place", **at}
    return Measurement("busbw", value, "GB/s", CLUSTER, conditions)


def judge(measurement: Measurement, centre: float, spread: float, source: str) -> Judgement:
    """`measurement` against `centre` +- `spread` (a fraction); the floor is 40 % below the
    centre.
    """
    low, high = centre * (1 - spread), centre * (1 + spread)
    deviation = measurement.value / centre - 1
    verdict = (
        Verdict.PASS
        if measurement.value >= low
        else Verdict.DEGRADED
        if deviation > -0.4
        else Verdict.FAIL
    )
    size = measurement.conditions.get("message_bytes", "large messages")
    reason = (
        f"{measurement.value:.3g} {measurement.unit} at {size}, expected {low:.3g} to "
        f"{high:.3g} ({source})"
    )
    return Judgement(measurement, verdict, uncoded(reason), source, Expected(low, high), deviation)


def local_collectives() -> Check:
    sizes = [4096 * 4**n for n in range(7)]
    sweep = _sweep("all_reduce", sizes, 4, 0.71, 190.0)
    whole = plateau(0.694)
    judged = [judge(whole, 0.68, 0.15, "history")]
    judged += [
        judge(m, m.value * 0.97, 0.2, "history") for m in sweep if m.metric == "busbw" and m.samples
    ]
    return Check(
        "collectives",
        Verdict.PASS,
        uncoded("all_reduce: plateau 0.694 GB/s, within 15 % of the last 12 runs"),
        21.7,
        (*sweep, whole),
        tuple(judged),
    )


def h100_collectives() -> Check:
    measured: list[Measurement] = []
    judged: list[Judgement] = []
    for operation, (peak, base_us) in _H100.items():
        sweep = _sweep(operation, [65536 * 2**n for n in range(18)], 64, peak, base_us, _SLOW)
        whole = plateau(peak * _SLOW * 0.997, 64, operation)
        source = "catalog" if operation == "all_reduce" else "history"
        judged.append(judge(whole, peak, 0.06, source))
        for m in sweep:
            if m.metric == "busbw":
                expected, _ = _curve(
                    peak, base_us, _BUS_FACTOR[operation], int(m.conditions["message_bytes"])
                )
                judged.append(judge(m, expected, 0.08, source))
        measured += [*sweep, whole]
    pairs = [
        Measurement(
            "busbw",
            196.0 if "5" in (a, b) else 372.0 + int(a),
            "GB/s",
            Subject("link", f"node-{a}--node-{b}"),
            {"operation": "all_reduce", "message_bytes": 1 << 30, "ranks": 16},
        )
        for a, b in ("01", "23", "45", "67", "05", "15")
    ]
    suspects = (
        Suspect(
            "node",
            "node-5",
            0.97,
            uncoded(
                "every pair with node-5 reaches 196 GB/s of 373; pairs without it reach 372 to 378"
            ),
        ),
        Suspect("link", "node-0--node-5", 0.12, uncoded("slow too, which node-5 alone explains")),
    )
    reason = (
        "all_reduce at 8G reaches 205 GB/s, 47 % below the 387 GB/s of the catalog; node-5 is "
        "the likely cause (97 %)"
    )
    return Check(
        "collectives",
        Verdict.FAIL,
        uncoded(reason),
        248.3,
        (*measured, *pairs),
        tuple(judged),
        suspects,
    )
