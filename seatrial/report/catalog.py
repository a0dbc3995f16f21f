"""`seatrial baseline list`: the catalog as two tables, or as JSON."""

from dataclasses import asdict
from typing import Any

from seatrial.catalog.listing import Listing
from seatrial.model.sizes import format_size
from seatrial.report.console import output, table
from seatrial.text.numbers import short

_COLLECTIVES = ("hardware", "nodes", "fabric", "collective", "algorithm", "size", "busbw", "kind", "source")
_DEVICES = ("hardware", "metric", "value", "kind", "source")


def catalog_json(listing: Listing) -> dict[str, Any]:
    """{"collectives": [...], "devices": [...]}, each row as in the shipped tables."""
    return {
        "collectives": [asdict(row) for row in listing.collectives],
        "devices": [asdict(row) for row in listing.devices],
    }


def show_catalog(listing: Listing) -> None:
    """Two tables; nodes are written as nodes x GPUs per node. Where there is no terminal, no line is wrapped."""
    console = output(width=400)
    rows = (
        (r.hardware, f"{r.nodes} x {r.gpus_per_node}", r.fabric, r.collective, r.algorithm or "-",
         format_size(r.message_bytes), f"{short(r.busbw_gb_s)} GB/s", _kind(r.kind), r.source)
        for r in listing.collectives
    )  # fmt: skip
    figures = ((d.hardware, d.metric, f"{short(d.value)} {d.unit}", _kind(d.kind), d.source) for d in listing.devices)
    for columns, lines in ((_COLLECTIVES, rows), (_DEVICES, figures)):
        grid = table(columns, lines, console.encoding, folded=("source",))
        if grid.row_count:
            console.print(grid)
            console.print()


def _kind(kind: str) -> str:
    return "data sheet" if kind == "datasheet" else kind
