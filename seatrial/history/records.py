"""A run as rows of the store's tables."""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from seatrial.history.rows import Pin
from seatrial.history.schema import clean
from seatrial.model.measurement import Measurement
from seatrial.model.node_hardware import NodeHardware, hardware_by_node
from seatrial.model.reason import code_of
from seatrial.model.result import Check, RunResult
from seatrial.model.verdict import Verdict, worst

Record = dict[str, Any]


def series_key(series: str) -> str:
    """A digest of fixed length that stands for the series in indexes."""
    return hashlib.sha256(series.encode("utf-8", "replace")).hexdigest()


def run(result: RunResult, out: Path) -> Record:
    return {
        "run_id": result.run_id,
        "cluster": result.cluster,
        "suite": result.suite,
        "started": result.started,
        "finished": result.finished,
        "verdict": result.verdict.value,
        "code": code_of(result.reason),
        "reason": result.reason,
        "fingerprint": dict(result.fingerprint),
        "out": str(out),
        "setup": asdict(result.setup) if result.setup else None,
    }


def checks(result: RunResult) -> list[Record]:
    return [{"run_id": result.run_id, "nth": nth, **check.summary()} for nth, check in enumerate(result.checks)]


Key = tuple[str, str, str]  # of a series: digest, check, unit


def series(result: RunResult) -> dict[Key, Record]:
    """What the run measured, each series described once."""
    return {_key(check, m): _described(check, m) for check in result.checks for m in check.measurements}


def readings(result: RunResult, ids: Mapping[Key, int]) -> tuple[list[Record], list[Record]]:
    """Every number, with the worst verdict that its series was judged in that check; and the samples behind it."""
    numbers, raw, counts = [], [], Counter[int]()
    for check in result.checks:
        verdicts = _judged(check)
        for m in check.measurements:
            series_id, verdict = ids[_key(check, m)], verdicts.get(m.series())
            place = {"run_id": result.run_id, "series_id": series_id, "nth": counts[series_id]}
            counts[series_id] += 1
            numbers.append({**place, "value": _number(m.value), "verdict": verdict.value if verdict else None})
            if m.samples:
                raw.append({**place, "samples": [_number(sample) for sample in m.samples]})
    return numbers, raw


def node_hardware(result: RunResult) -> list[Record]:
    """Nodes that are alike but for their serials in one row."""
    alike: dict[NodeHardware, dict[str, list[str]]] = defaultdict(dict)
    for name, hardware in hardware_by_node(result.nodes).items():
        alike[replace(hardware, ids=frozenset())][name] = sorted(hardware.ids)
    return [_hardware_row(result.run_id, hardware, ids) for hardware, ids in alike.items()]


def _hardware_row(run_id: str, hardware: NodeHardware, ids_by_node: Mapping[str, list[str]]) -> Record:
    facts = {key: value for key, value in asdict(hardware).items() if key != "ids"}
    ids = {name: ids for name, ids in ids_by_node.items() if ids}
    return {"run_id": run_id, **facts, "nodes": list(ids_by_node), "ids": ids or None}


def suspects(result: RunResult) -> list[Record]:
    return [{"run_id": result.run_id, **suspect.to_dict()} for suspect in result.suspects]


def pin(cluster: str, pin: Pin) -> Record:
    return {"cluster": cluster, "series_key": series_key(pin.series), **asdict(pin)}


def _key(check: Check, m: Measurement) -> Key:
    return series_key(m.series()), clean(check.name), clean(m.unit)


def _described(check: Check, m: Measurement) -> Record:
    return {
        "series_key": series_key(m.series()),
        "check_name": check.name,
        "unit": m.unit,
        "series": m.series(),
        "metric": m.metric,
        "subject_kind": m.subject.kind,
        "subject_name": m.subject.name,
        "conditions": _json_safe(m.conditions),
        "better": m.better,
    }


def _judged(check: Check) -> dict[str, Verdict]:
    verdicts: dict[str, list[Verdict]] = defaultdict(list)
    for judgement in check.judgements:
        verdicts[judgement.measurement.series()].append(judgement.verdict)
    return {series: worst(worst_of) for series, worst_of in verdicts.items()}


def _number(value: float) -> float | None:
    """Neither JSON nor an average has room for NaN or infinity: they are stored as null."""
    return float(value) if math.isfinite(value) else None


def _json_safe(conditions: Mapping[str, Any]) -> Record:
    return {key: _condition(value) for key, value in conditions.items()}


def _condition(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
