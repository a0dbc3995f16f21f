"""Read runs, series and readings back from the tables."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
from sqlalchemy import (
    JSON,
    Connection,
    Row,
    Select,
    Text,
    and_,
    case,
    cast,
    func,
    literal,
    outerjoin,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from seatrial.history.node_tests import NodeTest
from seatrial.history.records import Key, Record, series_key
from seatrial.history.rows import VERDICTS, Readings, RunRow
from seatrial.history.schema import checks, node_hardware, readings, runs, samples, series, suspects
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Check, CheckResult, RunResult, Suspect
from seatrial.model.setup import Hardware, NodeHardware, Setup
from seatrial.model.verdict import Verdict


def node_test(row: Row[Any]) -> NodeTest:
    fields = {**row._mapping, "verdict": Verdict(row.verdict)}
    return NodeTest(**fields)


def listed(connection: Connection, values: Sequence[str | int]) -> Select[Any]:
    """Return a query of the values as one parameter, since databases limit the number of
    parameters.
    """
    each = func.json_array_elements_text
    if connection.dialect.name == "sqlite":
        each = func.json_each
    return select(each(literal(list(values), JSON)).table_valued("value").c.value)


def series_ids(connection: Connection, requested: Mapping[Key, Record]) -> dict[Key, int]:
    """Return the id of each series, adding new ones; others may add the same at the same time."""
    ids = _ids(connection, requested)
    # Always in the same order, or two runs that add the same series could wait for each other for
    # ever.
    new = [requested[key] for key in sorted(requested) if key not in ids]
    if not new:
        return ids
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(series).on_conflict_do_nothing(), new)
    return _ids(connection, requested)


def _ids(connection: Connection, requested: Mapping[Key, Record]) -> dict[Key, int]:
    columns = (series.c.series_key, series.c.check_name, series.c.unit, series.c.id)
    digests = sorted({digest for digest, _, _ in requested})
    is_requested = series.c.series_key.in_(listed(connection, digests))
    query = select(*columns).where(is_requested)
    return {
        (digest, check, unit): series_id
        for digest, check, unit, series_id in _plain(connection, query)
    }


def numbers_of(connection: Connection, run_ids: Sequence[str], names: Sequence[str]) -> Readings:
    """Return the readings of the series in the runs, as indexes of both lists."""
    place = {series_key(name): i for i, name in enumerate(names)}
    is_requested = series.c.series_key.in_(listed(connection, sorted(place)))
    query = select(series.c.series_key, series.c.id).where(is_requested)
    index = {series_id: place[digest] for digest, series_id in _plain(connection, query)}
    at = np.full(max(index, default=0) + 2, -1, dtype=np.int64)
    for series_id, i in index.items():
        at[series_id] = i
    # A few series are looked up one by one; of more, runs are read whole.
    few = sorted(index) if len(index) <= 500 else None
    tables = []
    for run_id in run_ids:
        table = np.array(_rows(connection, run_id, few), dtype=np.float64)
        tables.append(table.reshape(-1, 3))
    run = np.repeat(np.arange(len(tables)), list(map(len, tables)))
    ids, value, verdict = np.concatenate([np.empty((0, 3)), *tables]).T
    known = np.minimum(ids.astype(np.int64), at.size - 1)
    where = at[known]
    stored = Readings(run, where, value, verdict.astype(np.int64))
    return stored.moved(where)


def _rows(connection: Connection, run_id: str, few: Sequence[int] | None) -> list[Any]:
    """Return the finite numbers of the run, of all series if `few` is None."""
    # Nearly all passed
    common_first = (Verdict.PASS, *VERDICTS)
    places = {verdict.value: VERDICTS.index(verdict) for verdict in common_first}
    verdict = case(places, value=readings.c.verdict, else_=-1)
    is_finite = readings.c.value.is_not(None)
    query = (
        select(readings.c.series_id, readings.c.value, verdict)
        .where(readings.c.run_id == run_id, is_finite)
        .order_by(readings.c.series_id, readings.c.nth)
    )
    if few is not None:
        query = query.where(readings.c.series_id.in_(few))
    return _plain(connection, query)


def _plain(connection: Connection, query: Select[Any]) -> list[Any]:
    """Return the driver's rows: SQLAlchemy's cost three times as much as reading."""
    cursor = connection.execute(query).cursor
    assert cursor is not None
    return list(cursor.fetchall())


def run_row(row: Row[Any]) -> RunRow:
    fields = dict(row._mapping)
    for name in ("setup", "code"):
        fields.pop(name, None)
    fields["verdict"] = Verdict(row.verdict)
    fields["reason"] = Reason(row.code, {}, row.reason)
    return RunRow(**fields)


def stored_measurements(connection: Connection, run_id: str) -> list[tuple[str, Measurement]]:
    """Return every measurement of the run with its check; NaN for values that were not finite."""
    beside = and_(
        samples.c.run_id == readings.c.run_id,
        samples.c.series_id == readings.c.series_id,
        samples.c.nth == readings.c.nth,
    )
    described = (
        "check_name",
        "metric",
        "unit",
        "subject_kind",
        "subject_name",
        "conditions",
        "better",
    )
    columns = [series.c[name] for name in described]
    of_series = readings.join(series, readings.c.series_id == series.c.id)
    query = (
        select(*columns, readings.c.value, samples.c.samples)
        .select_from(outerjoin(of_series, samples, beside))
        .where(readings.c.run_id == run_id)
        .order_by(readings.c.series_id, readings.c.nth)
    )
    return [(row.check_name, _measurement(row)) for row in connection.execute(query)]


def described_series(connection: Connection, subject: Subject) -> list[Measurement]:
    """Return every series of the subject with NaN for a value."""
    nothing = [literal(None).label(name) for name in ("value", "samples")]
    of_kind = series.c.subject_kind == subject.kind
    of_name = series.c.subject_name == subject.name
    query = select(series, *nothing).where(of_kind, of_name).order_by(series.c.id)
    measured = map(_measurement, connection.execute(query))
    return list({m.series(): m for m in measured}.values())


def hardware_of(connection: Connection, run_ids: Sequence[str]) -> Mapping[str, Hardware]:
    """Return the hardware by run and node."""
    columns = node_hardware.c
    query = (
        select(
            columns.run_id,
            columns.gpu_model,
            columns.gpu_clock_mhz,
            columns.cpu_model,
            columns.driver,
            cast(columns.nodes, Text),
            cast(columns.ids, Text),
        )
        .where(columns.run_id.in_(run_ids))
        .order_by(columns.id)
    )
    nodes = cache(_nodes)
    by_run: dict[str, dict[str, NodeHardware]] = defaultdict(dict)
    for run_id, *row in connection.execute(query):
        by_run[run_id].update(nodes(*row))
    return by_run


def _nodes(
    gpu_model: str,
    gpu_clock_mhz: int | None,
    cpu_model: str,
    driver: str,
    nodes: str,
    ids: str | None,
) -> Hardware:
    """Parse the nodes of one row; `nodes` and `ids` are JSON."""
    ids_by_node = (json.loads(ids) if ids else None) or {}
    by_node = {}
    for name in json.loads(nodes):
        own_ids = frozenset(ids_by_node.get(name, ()))
        by_node[name] = NodeHardware(gpu_model, gpu_clock_mhz, cpu_model, driver, own_ids)
    return by_node


def stored_result(connection: Connection, run_id: str) -> RunResult | None:
    row = connection.execute(select(runs).where(runs.c.run_id == run_id)).first()
    if row is None:
        return None
    of_run = select(suspects).where(suspects.c.run_id == run_id)
    blamed = connection.execute(of_run.order_by(suspects.c.id))
    run = run_row(row)
    hardware_by_name = hardware_of(connection, [run_id]).get(run_id, {})
    nodes = []
    for name, hardware in hardware_by_name.items():
        node: Record = {"name": name}
        for key, value in asdict(hardware).items():
            if value and key != "ids":
                node[key] = value
        if hardware.ids:
            node["hardware_ids"] = sorted(hardware.ids)
        nodes.append(node)
    return RunResult(
        run.run_id,
        run.cluster,
        run.suite,
        run.started,
        run.finished,
        run.verdict,
        run.reason,
        nodes=nodes,
        checks=_checks(connection, run),
        suspects=[_suspect(row._mapping) for row in blamed],
        fingerprint=run.fingerprint,
        setup=Setup(**row.setup) if row.setup else None,
    )


def _checks(connection: Connection, run: RunRow) -> list[Check]:
    measured: dict[str, list[Measurement]] = defaultdict(list)
    for name, m in stored_measurements(connection, run.run_id):
        measured[name].append(m)
    of_run = select(checks).where(checks.c.run_id == run.run_id)
    rows = connection.execute(of_run.order_by(checks.c.nth))
    return [_check(row, measured.pop(row.name, [])) for row in rows]


def _check(row: Row[Any], measured: list[Measurement]) -> Check:
    own = row.found
    check_result = CheckResult(
        Verdict(own["verdict"]),
        reason=_reason(own, own["reason"]),
        suspects=tuple(map(_suspect, own["suspects"])),
    )
    return Check(
        row.name,
        Verdict(row.verdict),
        Reason(row.code, {}, row.reason),
        row.seconds,
        tuple(measured),
        raw_result=check_result,
    )


def _reason(saved: Any, sentence: str) -> Reason:
    """Return the reason; earlier versions saved no code or values."""
    return Reason(saved.get("code"), saved.get("values", {}), sentence)


def _suspect(saved: Any) -> Suspect:
    """Return the suspect; earlier versions saved none with a verdict."""
    verdict = saved.get("verdict")
    return Suspect(
        kind=saved["kind"],
        name=saved["name"],
        confidence=saved["confidence"],
        evidence=_reason(saved, saved["evidence"]),
        verdict=Verdict(verdict) if verdict else None,
    )


def _measurement(row: Any) -> Measurement:
    return Measurement(
        row.metric,
        _number(row.value),
        row.unit,
        subject=Subject(row.subject_kind, row.subject_name),
        conditions=row.conditions,
        samples=tuple(map(_number, row.samples or ())),
        better=row.better,
    )


def _number(stored: float | None) -> float:
    """Return the number, which is null where it was not finite."""
    return math.nan if stored is None else stored
