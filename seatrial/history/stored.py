"""A run back from the store's tables."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from sqlalchemy import Connection, Row, Text, and_, cast, literal, outerjoin, select

from seatrial.history.rows import RunRow
from seatrial.history.schema import checks, node_hardware, readings, runs, samples, series, suspects
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.node_hardware import NodeHardware
from seatrial.model.reason import recorded
from seatrial.model.result import Check, CheckResult, RunResult, Suspect, SuspectKind
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict

_DESCRIBED = ("check_name", "metric", "unit", "subject_kind", "subject_name", "conditions", "better")
_NOT_KEPT = "what it found by itself was not kept"


def run_row(row: Row[Any]) -> RunRow:
    known = {key: value for key, value in row._mapping.items() if key not in ("setup", "code")}
    return RunRow(**{**known, "verdict": Verdict(row.verdict), "reason": recorded(row.reason, row.code)})


def stored_measurements(connection: Connection, run_id: str) -> list[tuple[str, Measurement]]:
    """Every number of the run with its check, in the order of the series; NaN where it was not finite."""
    beside = and_(
        samples.c.run_id == readings.c.run_id,
        samples.c.series_id == readings.c.series_id,
        samples.c.nth == readings.c.nth,
    )
    query = (
        select(*(series.c[name] for name in _DESCRIBED), readings.c.value, samples.c.samples)
        .select_from(outerjoin(readings.join(series, readings.c.series_id == series.c.id), samples, beside))
        .where(readings.c.run_id == run_id)
        .order_by(readings.c.series_id, readings.c.nth)
    )
    return [(row.check_name, _measurement(row)) for row in connection.execute(query)]


def described_series(connection: Connection, subject: Subject) -> list[Measurement]:
    """Every series of the subject, each once, with NaN for a value."""
    of_subject = series.c.subject_kind == subject.kind, series.c.subject_name == subject.name
    query = select(series, literal(None).label("value"), literal(None).label("samples")).where(*of_subject)
    measured = (_measurement(row) for row in connection.execute(query.order_by(series.c.id)))
    return list({m.series(): m for m in measured}.values())


def hardware_of(connection: Connection, run_ids: Sequence[str]) -> dict[str, dict[str, NodeHardware]]:
    """By run and node; what is the same in several runs is read once."""
    names = ("gpu_model", "gpu_clock_mhz", "cpu_model", "driver")
    texts = (cast(node_hardware.c[name], Text) for name in ("nodes", "ids"))
    query = select(node_hardware.c.run_id, *(node_hardware.c[name] for name in names), *texts)
    nodes, by_run = cache(_nodes), dict[str, dict[str, NodeHardware]]()
    for run_id, *row in connection.execute(
        query.where(node_hardware.c.run_id.in_(run_ids)).order_by(node_hardware.c.id)
    ):
        by_run.setdefault(run_id, {}).update(nodes(*row))
    return by_run


def _nodes(
    gpu_model: str, gpu_clock_mhz: int | None, cpu_model: str, driver: str, nodes: str, ids: str | None
) -> dict[str, NodeHardware]:
    """The nodes of one row, of which `nodes` and `ids` are JSON; `ids` is null where none has any."""
    by_node = (json.loads(ids) if ids else None) or {}
    facts = gpu_model, gpu_clock_mhz, cpu_model, driver
    return {name: NodeHardware(*facts, frozenset(by_node.get(name, ()))) for name in json.loads(nodes)}


def stored_result(connection: Connection, run_id: str) -> RunResult | None:
    row = connection.execute(select(runs).where(runs.c.run_id == run_id)).first()
    if row is None:
        return None
    blamed = connection.execute(select(suspects).where(suspects.c.run_id == run_id).order_by(suspects.c.id))
    run = run_row(row)
    nodes = hardware_of(connection, [run_id]).get(run_id, {})
    return RunResult(
        run.run_id,
        run.cluster,
        run.suite,
        run.started,
        run.finished,
        run.verdict,
        run.reason,
        nodes=[{"name": name, **_hardware_fields(hardware)} for name, hardware in nodes.items()],
        checks=_checks(connection, run),
        suspects=[_suspect(s.kind, s.name, s.confidence, s.evidence, s.code) for s in blamed],
        fingerprint=run.fingerprint,
        setup=Setup(**row.setup) if row.setup else None,
    )


def _hardware_fields(hardware: NodeHardware) -> dict[str, Any]:
    facts = {name: value for name, value in asdict(hardware).items() if value and name != "ids"}
    return {**facts, "hardware_ids": sorted(hardware.ids)} if hardware.ids else facts


def _checks(connection: Connection, run: RunRow) -> list[Check]:
    measured: dict[str, list[Measurement]] = {}
    for name, m in stored_measurements(connection, run.run_id):
        measured.setdefault(name, []).append(m)
    query = select(checks).where(checks.c.run_id == run.run_id).order_by(checks.c.nth)
    stored = [_check(row, measured.pop(row.name, [])) for row in connection.execute(query)]
    return stored or [_older(run, name, some) for name, some in measured.items()]


def _check(row: Row[Any], measured: list[Measurement]) -> Check:
    blamed = tuple(_suspect(**suspect) for suspect in row.found["suspects"])
    check_result = CheckResult(
        Verdict(row.found["verdict"]), recorded(row.found["reason"], row.found.get("code")), blamed
    )
    return Check(
        row.name,
        Verdict(row.verdict),
        recorded(row.reason, row.code),
        row.seconds,
        tuple(measured),
        before_judging=check_result,
    )


def _suspect(kind: SuspectKind, name: str, confidence: float, evidence: str, code: str | None = None) -> Suspect:
    """Those that an earlier version saved have no code."""
    return Suspect(kind, name, confidence, recorded(evidence, code))


def _older(run: RunRow, name: str, measured: list[Measurement]) -> Check:
    """A check of a run that was saved before checks were: only where the run passed is it known what it found."""
    verdict = Verdict.PASS if run.verdict is Verdict.PASS else Verdict.INCONCLUSIVE
    return Check(name, verdict, "" if verdict is Verdict.PASS else _NOT_KEPT, measurements=tuple(measured))


def _measurement(row: Any) -> Measurement:
    subject = Subject(row.subject_kind, row.subject_name)
    value = math.nan if row.value is None else row.value
    taken = tuple(math.nan if sample is None else sample for sample in row.samples or ())
    return Measurement(row.metric, value, row.unit, subject, row.conditions, taken, row.better)
