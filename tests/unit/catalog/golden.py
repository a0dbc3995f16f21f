"""What is expected of busbw and trainings without an earlier run, kept in tests/golden/catalog.txt.

`python -m tests.unit.catalog.golden` writes it anew; read what changed: each row judges somebody's cluster.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seatrial.catalog import trainings, with_links
from seatrial.catalog.physics import as_slow_as_ethernet, is_far_below_links, wire
from seatrial.catalog.published import nearest_figure, published
from seatrial.catalog.reach import one_nic_less
from seatrial.model.baseline import Baseline
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.setup import INTRA, NETWORK, Setup

GOLDEN = Path(__file__).parents[2] / "golden" / "catalog.txt"
M, G = 1 << 20, 1 << 30
_SETUPS = [
    Setup("H100-SXM", 1, 8, 8),
    Setup("H100-SXM", 2, 8, 8, "IB-8x400G"),
    Setup("H100-SXM", 10, 8, 8, "IB-8x400G"),
    Setup("H100-SXM", 2, 1, 1, "IB-8x400G"),
    Setup("H100-SXM", 2, 8, 8, "GPUDirect-TCPXO"),
    Setup("H100-SXM", 4, 8, 8, "EFA"),
    Setup("H200-SXM", 1, 8, 8),
    Setup("A100-SXM", 4, 8, 8, "IB-8x200G"),
    Setup("GB200-NVL72", 18, 4, 4, "MNNVL"),
    Setup("GB200-NVL72", 36, 4, 4, "MNNVL+IB"),
    Setup("H100-SXM", 3, 8, 8),
]
_WAYS: list[dict[str, Any]] = [{}, {"algorithm": "Ring"}, {"algorithm": "NVLS"}, {"arm": NETWORK}, {"arm": INTRA}]


def lines() -> Iterator[str]:
    """One for each sweep or size."""
    for setup in map(with_links, _SETUPS):
        for operation in ("all_reduce", "all_gather", "alltoall", "sendrecv", "reduce", "gather"):
            for way in _WAYS if operation == "all_reduce" else _WAYS[:1]:
                yield from _of_sweep(setup, {"operation": operation, **way})
    yield from _of_trainings()


def _of_sweep(setup: Setup, conditions: dict[str, Any]) -> Iterator[str]:
    ranks = setup.slots_per_node if conditions.get("arm") == INTRA else setup.ranks
    named = f"{setup.nodes} of {setup.slots_per_node} {setup.hardware} {setup.fabric} {' '.join(conditions.values())}"
    conditions, sizes = {**conditions, "ranks": ranks}, [M << i for i in range(14)]

    def measured(gb_s: float, size: int | None = None) -> Measurement:
        at = {**conditions, "message_bytes": size} if size else conditions
        return Measurement("busbw" if size else "busbw_plateau", gb_s, "GB/s", Subject("cluster", ""), at)

    for size in (None, 64 * M, 128 * M, 2 * G):
        words = "; ".join(_words(b, in_full=size is None) for b in published(measured(30.0, size), setup, sizes))
        yield f"{named} {size or ''}: {words}"
    limit = wire(measured(1.0), setup)
    slow, ends = map(measured, (1.0, 8.5, 11.0, 25.0)), (100 * M, 128 * M, 8 * G)
    judged = [(as_slow_as_ethernet(m, setup, end), is_far_below_links(m, setup, end)) for m in slow for end in ends]
    flags = "".join("E" if ethernet else "f" if far else "." for ethernet, far in judged)
    whys = (
        one_nic_less([measured(share * limit.gb_s / (1 + M / size), size) for size in sizes if limit], setup)
        for share in (0.5, 0.8, 0.86, 0.95)
    )
    yield f"{named}: {limit and limit.words} {flags} {'; '.join(str(why or '-') for why in whys)}"


def _words(b: Baseline, *, in_full: bool) -> str:
    bounds = " ".join("-" if each is None else f"{each:.5g}" for each in (b.centre, b.low, b.high, b.floor))
    return f"{b.source} {bounds} ({b.samples}){f' {b.detail}' if in_full else ''}"


def _of_trainings() -> Iterator[str]:
    for row in trainings():
        for precision in (row.precision, "fp64"):
            conditions: dict[str, Any] = {
                "model": row.model.partition(",")[0],
                "precision": precision,
                "batch_per_rank": row.batch_per_rank,
                "ranks": row.gpus,
            }
            m = Measurement("throughput", 100.0, "samples/s", Subject("cluster", ""), conditions)
            setup = Setup(row.hardware, 1, row.gpus, row.gpus)
            yield f"{row.place} {precision}: {str(nearest_figure(m, setup)).rpartition('): ')[2]}"
            for b in published(m, setup, ()):
                yield f"{row.place} {precision}: {_words(b, in_full=False)}"


def written() -> str:
    return "".join(f"{line}\n" for line in lines())


if __name__ == "__main__":
    GOLDEN.write_text(written())
