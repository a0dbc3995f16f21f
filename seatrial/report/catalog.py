"""`seatrial baseline list`: the catalog as two tables, or as JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from seatrial.catalog.listing import Listing
from seatrial.model.sizes import format_size
from seatrial.text import words
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
    console = Console()
    if not console.is_terminal:
        console.width = 400
    rows = (
        (r.hardware, f"{r.nodes} x {r.gpus_per_node}", r.fabric, r.collective, r.algorithm or "-",
         format_size(r.message_bytes), f"{short(r.busbw_gb_s)} GB/s", _kind(r.kind), r.source)
        for r in listing.collectives
    )  # fmt: skip
    figures = ((d.hardware, d.metric, f"{short(d.value)} {d.unit}", _kind(d.kind), d.source) for d in listing.devices)
    for table in (_table(_COLLECTIVES, rows, console.encoding), _table(_DEVICES, figures, console.encoding)):
        if table.row_count:
            console.print(table)
            console.print()


def _kind(kind: str) -> str:
    return "data sheet" if kind == "datasheet" else kind


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], encoding: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, no_wrap=name != "source", overflow="fold")
    for row in rows:
        table.add_row(*(Text(words.plain(cell, encoding)) for cell in row))
    return table
