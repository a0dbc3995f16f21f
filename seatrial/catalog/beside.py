"""Published figures that are shown beside a check's numbers without judging them."""

from collections.abc import Iterator

from seatrial.catalog import DeviceFigure, devices
from seatrial.catalog.training import beside
from seatrial.model.measurement import Measurement
from seatrial.model.result import Check
from seatrial.model.setup import Setup
from seatrial.text.numbers import short

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "fp8"}


def figures_beside(check: Check, setup: Setup) -> list[str]:
    """Each figure once, in words."""
    notes = (note for m in check.measurements for note in (beside(m, setup), *_of_devices(m, setup)) if note)
    return list(dict.fromkeys(notes))


def _of_devices(m: Measurement, setup: Setup) -> Iterator[str]:
    """Single GPUs: what others reached is the best of many shapes or tools, so it is no bound."""
    metric = f"{m.metric}_{_DTYPES.get(str(m.conditions['dtype']))}" if "dtype" in m.conditions else m.metric
    if m.subject.kind == "gpu":
        yield from (_words(row) for row in devices() if (row.hardware, row.metric) == (setup.hardware, metric))


def _words(row: DeviceFigure) -> str:
    figure = f"{short(row.value)} {row.unit} of {row.metric.replace('_', ' ')} on {row.hardware}"
    return f"not judged by the {figure} ({row.kind}, {row.source})"
