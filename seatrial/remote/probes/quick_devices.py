"""The part of check.py that measures devices: right, and as fast and with the same results as the devices alike."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from processes import run_probe
from quick_checks import Part, broken, last_json, number, outliers, text, worst

_MAX_DEVICES = 256
_ALIKE = 3  # devices that it takes to tell a slow one
_SLOWEST = 0.9  # of the median of alike devices


def compute(gpus: int, timeout_s: float) -> Part:
    """Matrix multiplication and memory copy on every device: right, and as fast as on the devices alike."""
    ended = run_probe("devices", ("--gpus", str(gpus)), timeout_s)
    answer = last_json(ended)
    if answer is None or "error" in answer:
        return broken("COMPUTE", ended, "devices printed no JSON" if answer is None else text(answer["error"]))
    entries = answer.get("devices")
    devices = (
        [entry for entry in entries if isinstance(entry, dict)][:_MAX_DEVICES] if isinstance(entries, list) else []
    )
    if not devices:
        return broken("COMPUTE", ended, "no device was measured")
    figures = [device_figures(device) for device in devices]
    problems = [*own_problems(figures), *slow_devices(figures), *different_devices(devices, figures)]
    verdict = worst(verdict for verdict, _ in problems)
    lines = tuple(device_line(device) for device in figures)
    compared = max(Counter(device["model"] for device in figures).values()) >= _ALIKE
    note = f"rates are within {1 - _SLOWEST:.0%} of each other" if compared else "rates are compared with nothing"
    return Part("COMPUTE", lines, verdict, "; ".join(reason for _, reason in problems), figures, note)


def device_figures(device: Mapping[str, Any]) -> dict[str, Any]:
    """The names and texts of a device, and the median of each of its lists of samples."""
    figures: dict[str, Any] = {
        name: text(device.get(name, "")) for name in ("device", "model", "dtype", "wrong", "error")
    }
    for name, samples in device.items():
        values = [value for value in map(number, samples) if value and value > 0] if isinstance(samples, list) else []
        if values:
            figures[text(name)] = statistics.median(values)
    return figures


def device_line(figures: Mapping[str, Any]) -> str:
    matmul, copy = (figures.get(name, math.nan) for name in ("matmul_tflops", "copy_gb_s"))
    rates = f"matmul {figures['dtype']} {matmul:.4g} TFLOP/s, memory copy {copy:.4g} GB/s"
    return f"{figures['device']} {figures['model']}: {rates}"


def own_problems(devices: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for device in devices:
        if device["wrong"]:
            yield "corrupt", f"{device['device']}: {device['wrong']}"
        elif device["error"] or not {"matmul_tflops", "copy_gb_s"} <= device.keys():
            yield "fail", f"{device['device']}: {device['error'] or 'no samples'}"


def slow_devices(devices: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The devices that are slower than the others of their model."""
    for name, unit in (("matmul_tflops", "TFLOP/s"), ("copy_gb_s", "GB/s")):
        for model in sorted({device["model"] for device in devices}):
            rates = {each["device"]: each[name] for each in devices if each["model"] == model and name in each}
            middle = statistics.median(rates.values()) if len(rates) >= _ALIKE else 0.0
            for device, rate in rates.items():
                if rate < _SLOWEST * middle:
                    yield "degraded", f"{device}: {name.partition('_')[0]} {rate:.4g} {unit}, others {middle:.4g}"


def different_devices(
    devices: Sequence[Mapping[str, Any]], figures: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    """The devices whose digests of the same work differ from those of the others that are alike."""
    digests: dict[str, list[tuple[str, str]]] = {}
    for device, named in zip(devices, figures, strict=True):
        if isinstance(device.get("digests"), dict):
            alike = json.dumps([device.get(name) for name in ("model", "library", "software")])
            digest = json.dumps(device["digests"], sort_keys=True)
            digests.setdefault(alike, []).append((named["device"], digest))
    for group in digests.values():
        others = outliers([digest for _, digest in group])
        if others is None:
            yield "corrupt", f"{', '.join(device for device, _ in group)}: alike, and their results differ"
        for index in others or ():
            yield "corrupt", f"{group[index][0]}: its results differ from those of the devices alike"
