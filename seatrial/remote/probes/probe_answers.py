"""Read the answers of the programs that check.py starts, which may print anything. Standard library
only.
"""

from __future__ import annotations

import json
import math
from typing import Any, Dict

from processes import Ended

Json = Dict[str, Any]  # a JSON object
_MAX_TEXT = 200  # characters of a probe's text
_MAX_JSON = 1 << 20  # bytes


def measured(answer: Json, name: str) -> float:
    """Return a number of the answer; NaN if it is missing or 0."""
    return number(answer.get(name)) or math.nan


def last_json(ended: Ended) -> Json | None:
    """Return the JSON object in the last line of a program's output; None if there is none."""
    lines = ended.output.strip().splitlines()
    return _json_object(lines[-1]) if lines else None


def read_json(file: str) -> Json | None:
    """Return the JSON object in a file; None if it has none or is too large."""
    try:
        with open(file, errors="replace") as stream:
            content = stream.read(_MAX_JSON + 1)
    except OSError:
        return None
    if len(content) > _MAX_JSON:
        return None
    return _json_object(content)


def _json_object(content: str) -> Json | None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def objects(answer: Json, name: str) -> list[Json]:
    """Return the JSON objects in a list of the answer; empty if it is not a list."""
    entries = answer.get(name)
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, dict)]


def number(value: object) -> float | None:
    """Return a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < math.inf else None


def figure(value: float) -> str:
    """Format a number with three significant digits, but all digits of whole numbers, as in
    reports: 4.50, 386, 2,700.
    """
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:#.3g}"


def text(value: object) -> str:
    """Return the value as one printable line of limited length; "" for None."""
    words = "" if value is None else str(value)
    line = " ".join(words.split())
    printable = "".join(letter for letter in line if letter.isprintable())
    return printable[:_MAX_TEXT]


def machine_lines(facts: Json) -> list[str]:
    """Return two lines on a machine: its name, processors, GPUs and memory, and its software."""
    machine = []
    for name, unit in (("cpus", "CPUs"), ("gpus", "GPUs"), ("memory_gb", "GB of memory")):
        count = number(facts.get(name)) or 0
        machine.append(f"{count:.0f} {unit}")
    for name in ("cpu_model", "gpu_model"):
        model = text(facts.get(name))
        if model:
            machine.append(model)
    host = text(facts.get("hostname"))
    described = ", ".join(machine)
    lines = [f"{host}: {described}"]
    versions = facts.get("versions")
    if not isinstance(versions, dict):
        versions = {}
    software = [f"{text(name)} {text(version)}" for name, version in versions.items() if version]
    if software:
        lines.append(", ".join(software))
    return lines


def training_line(results: Json, over: str) -> str:
    """Return a line on a training: model and precision, `over` what it ran, rates, and the decrease
    of the loss.
    """
    model = text(results.get("model"))
    precision = text(results.get("precision"))
    rate = figure(measured(results, "throughput_samples_per_second"))
    step_ms = figure(1e3 * measured(results, "median_step_time_seconds"))
    first = measured(results, "loss_start")
    last = measured(results, "loss_end")
    return (
        f"{model} {precision} on {over}: {rate} samples/s, {step_ms} ms a step, "
        f"loss {first:.3f} to {last:.3f}"
    )
