"""Convert a run to rows of the tables."""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
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
    """Return a digest of fixed length for the series in indexes."""
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


def keyed(result: RunResult) -> list[tuple[Key, Check, Measurement]]:
    """Return every measurement with its check and the key of its series."""
    return [
        ((series_key(m.series()), name, clean(m.unit)), check, m)
        for check in result.checks
        for name in [clean(check.name)]
        for m in check.measurements
    ]


def series(measured: Sequence[tuple[Key, Check, Measurement]]) -> dict[Key, Record]:
    """Return a description of each series."""
    one_of_each = {key: (check, m) for key, check, m in measured}
    return {key: _described(key, check, m) for key, (check, m) in one_of_each.items()}


def readings(
    result: RunResult, measured: Sequence[tuple[Key, Check, Measurement]], ids: Mapping[Key, int]
) -> tuple[list[Record], list[Record]]:
    """Return every number with the worst verdict of its series in its check, and its samples."""
    verdicts = {id(check): _judged(check) for check in result.checks}
    numbers, raw, counts = [], [], Counter[int]()
    for key, check, m in measured:
        series_id = ids[key]
        place = {"run_id": result.run_id, "series_id": series_id, "nth": counts[series_id]}
        counts[series_id] += 1
        numbers.append({**place, "value": _number(m.value), "verdict": verdicts[id(check)].get(m.series())})
        if m.samples:
            raw.append({**place, "samples": [_number(sample) for sample in m.samples]})
    return numbers, raw


def node_hardware(result: RunResult) -> list[Record]:
    """Return one row for nodes that differ only in their serials."""
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


def _described(key: Key, check: Check, m: Measurement) -> Record:
    return {
        "series_key": key[0],
        "check_name": check.name,
        "unit": m.unit,
        "series": m.series(),
        "metric": m.metric,
        "subject_kind": m.subject.kind,
        "subject_name": m.subject.name,
        "conditions": {key: _condition(value) for key, value in m.conditions.items()},
        "better": m.better,
    }


def _judged(check: Check) -> dict[str, str]:
    """Return the worst verdict by series."""
    verdicts: dict[str, Verdict] = {}
    for judgement in check.judgements:
        name = judgement.measurement.series()
        verdicts[name] = worst((judgement.verdict, verdicts[name])) if name in verdicts else judgement.verdict
    return {name: verdict.value for name, verdict in verdicts.items()}


def _number(value: float) -> float | None:
    """Return the value, None for NaN and infinity, which JSON does not have."""
    return float(value) if math.isfinite(value) else None


def _condition(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
