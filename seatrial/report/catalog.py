"""`seatrial baseline list`: the catalog as three tables, or as JSON."""

from dataclasses import asdict
from typing import Any

from seatrial.catalog.listing import Listing
from seatrial.model.sizes import format_size
from seatrial.report.console import output, table
from seatrial.text.numbers import short

_COLLECTIVES = ("hardware", "nodes", "fabric", "collective", "algorithm", "arm", "size", "busbw", "kind", "source")
_DEVICES = ("hardware", "metric", "value", "kind", "source")
_TRAININGS = ("hardware", "GPUs", "model", "precision", "batch per GPU", "throughput", "kind", "source")


def catalog_json(listing: Listing) -> dict[str, Any]:
    """{"collectives": [...], "devices": [...], "trainings": [...]}, each row as in the shipped tables."""
    return {
        "collectives": [asdict(row) for row in listing.collectives],
        "devices": [asdict(row) for row in listing.devices],
        "trainings": [asdict(row) for row in listing.trainings],
    }


def show_catalog(listing: Listing) -> None:
    """Three tables; nodes are written as nodes x GPUs per node. Where there is no terminal, no line is wrapped."""
    console = output(width=400)
    rows = (
        (r.hardware, f"{r.nodes} x {r.gpus_per_node}", r.fabric, r.collective, r.algorithm or "-", r.arm or "-",
         format_size(r.message_bytes), _range(r.low_gb_s, r.busbw_gb_s, "GB/s"), _kind(r.kind), r.source)
        for r in listing.collectives
    )  # fmt: skip
    figures = ((d.hardware, d.metric, f"{short(d.value)} {d.unit}", _kind(d.kind), d.source) for d in listing.devices)
    trained = (
        (t.hardware, f"{t.gpus}", t.model, t.precision, f"{t.batch_per_rank}",
         _range(t.low_samples_s, t.samples_s, "samples/s"), _kind(t.kind), t.source)
        for t in listing.trainings
    )  # fmt: skip
    for columns, lines in ((_COLLECTIVES, rows), (_DEVICES, figures), (_TRAININGS, trained)):
        grid = table(columns, lines, console.encoding, folded=("source",))
        if grid.row_count:
            console.print(grid)
            console.print()


def _range(low: float | None, value: float, unit: str) -> str:
    return f"{short(value)} {unit}" if low is None else f"{short(low)} to {short(value)} {unit}"


def _kind(kind: str) -> str:
    return "data sheet" if kind == "datasheet" else kind
