"""Convert a run to rows of the tables. Pure."""

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
from seatrial.model.result import Check, RunResult
from seatrial.model.setup import NodeHardware, hardware_by_node
from seatrial.model.verdict import Verdict, worst

Record = dict[str, Any]
Key = tuple[str, str, str]  # of a series: digest, check, unit
Keyed = tuple[Key, Check, Measurement]


def series_key(series: str) -> str:
    """Return a digest of fixed length for the series in indexes."""
    return hashlib.sha256(series.encode("utf-8", "replace")).hexdigest()


def run_record(result: RunResult, out: Path) -> Record:
    return {
        "run_id": result.run_id,
        "cluster": result.cluster,
        "suite": result.suite,
        "started": result.started,
        "finished": result.finished,
        "verdict": result.verdict,
        "reason": result.reason,
        "fingerprint": dict(result.fingerprint),
        "out": str(out),
        "setup": asdict(result.setup) if result.setup else None,
        "judged": result.coverage.extent or "none",
    }


def check_records(result: RunResult) -> list[Record]:
    records = []
    for nth, check in enumerate(result.checks):
        records.append(
            {
                "run_id": result.run_id,
                "nth": nth,
                "name": check.name,
                "verdict": check.verdict,
                "reason": check.reason,
                "seconds": round(check.seconds, 3),
                "found": check.raw.to_dict(),
            }
        )
    return records


def keyed(result: RunResult) -> list[Keyed]:
    """Return every measurement with its check and the key of its series."""
    measured = []
    for check in result.checks:
        name = clean(check.name)
        for m in check.measurements:
            key = (series_key(m.series()), name, clean(m.unit))
            measured.append((key, check, m))
    return measured


def series_records(measured: Sequence[Keyed]) -> dict[Key, Record]:
    """Return a description of each series."""
    one_of_each = {key: (check, m) for key, check, m in measured}
    records = {}
    for key, (check, m) in one_of_each.items():
        digest, _, _ = key
        subject = m.subject
        records[key] = {
            "series_key": digest,
            "check_name": check.name,
            "unit": m.unit,
            "series": m.series(),
            "metric": m.metric,
            "subject_kind": subject.kind,
            "subject_name": subject.name,
            "conditions": dict(m.conditions),
            "better": m.better,
        }
    return records


def reading_records(
    result: RunResult, measured: Sequence[Keyed], ids: Mapping[Key, int]
) -> tuple[list[Record], list[Record]]:
    """Return every number with the worst verdict of its series in its check, and its samples."""
    verdicts_by_check = {id(check): _judged(check) for check in result.checks}
    numbers = []
    raw = []
    counts = Counter[int]()
    for key, check, m in measured:
        series_id = ids[key]
        place = {"run_id": result.run_id, "series_id": series_id, "nth": counts[series_id]}
        counts[series_id] += 1
        verdicts = verdicts_by_check[id(check)]
        verdict = verdicts.get(m.series())
        numbers.append({**place, "value": _number(m.value), "verdict": verdict})
        if m.samples:
            of_number = list(map(_number, m.samples))
            raw.append({**place, "samples": of_number})
    return numbers, raw


def hardware_records(result: RunResult) -> list[Record]:
    """Return one row for nodes that differ only in their serials."""
    alike: dict[NodeHardware, dict[str, list[str]]] = defaultdict(dict)
    for name, hardware in hardware_by_node(result.nodes).items():
        stored = replace(hardware, ids=frozenset(), nvlink_domain="")
        alike[stored][name] = sorted(hardware.ids)
    rows = []
    for hardware, ids_by_node in alike.items():
        known_ids = {name: ids for name, ids in ids_by_node.items() if ids}
        rows.append(
            {
                "run_id": result.run_id,
                "gpu_model": hardware.gpu_model,
                "gpu_clock_mhz": hardware.gpu_clock_mhz,
                "cpu_model": hardware.cpu_model,
                "driver": hardware.driver,
                "nodes": list(ids_by_node),
                "ids": known_ids or None,
            }
        )
    return rows


def suspect_records(result: RunResult) -> list[Record]:
    records = []
    for suspect in result.suspects:
        records.append(
            {
                "run_id": result.run_id,
                "kind": suspect.kind,
                "name": suspect.name,
                "confidence": suspect.confidence,
                "verdict": suspect.verdict,
                "reason": suspect.evidence,
            }
        )
    return records


def pin_record(cluster: str, pin: Pin) -> Record:
    digest = series_key(pin.series)
    return {"cluster": cluster, "series_key": digest, **asdict(pin)}


def _judged(check: Check) -> dict[str, str]:
    """Return the worst verdict by series."""
    verdicts: dict[str, Verdict] = {}
    for judgement in check.judgements:
        name = judgement.measurement.series()
        verdict = judgement.verdict
        so_far = verdicts.get(name, verdict)
        verdicts[name] = worst((verdict, so_far))
    return {name: verdict.value for name, verdict in verdicts.items()}


def _number(value: float) -> float | None:
    """Return the value, None for NaN and infinity, which JSON does not have."""
    if not math.isfinite(value):
        return None
    return float(value)
