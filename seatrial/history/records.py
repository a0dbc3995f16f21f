"""Convert a run to rows of the tables, and read runs, series and readings back."""

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
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
from seatrial.history.rows import VERDICTS, Pin, Readings, RunRow
from seatrial.history.schema import (
    checks,
    clean,
    node_hardware,
    readings,
    runs,
    samples,
    series,
    suspects,
)
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Check, CheckResult, RunResult, Suspect
from seatrial.model.setup import Hardware, NodeHardware, Setup, hardware_by_node
from seatrial.model.verdict import Verdict, worst

Record = dict[str, Any]
Key = tuple[str, str, str]  # of a series: digest, check, unit


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
        "verdict": result.verdict.value,
        "code": result.reason.code,
        "reason": result.reason.sentence,
        "fingerprint": dict(result.fingerprint),
        "out": str(out),
        "setup": asdict(result.setup) if result.setup else None,
        "judged": result.coverage.extent or "none",
    }


def check_records(result: RunResult) -> list[Record]:
    rows = (
        {"run_id": result.run_id, "nth": nth, **check.summary()}
        for nth, check in enumerate(result.checks)
    )
    return [{column.name: row[column.name] for column in checks.c} for row in rows]


def keyed(result: RunResult) -> list[tuple[Key, Check, Measurement]]:
    """Return every measurement with its check and the key of its series."""
    return [
        ((series_key(m.series()), clean(check.name), clean(m.unit)), check, m)
        for check in result.checks
        for m in check.measurements
    ]


def series_records(measured: Sequence[tuple[Key, Check, Measurement]]) -> dict[Key, Record]:
    """Return a description of each series."""
    one_of_each = {key: (check, m) for key, check, m in measured}
    return {key: _described(key, check, m) for key, (check, m) in one_of_each.items()}


def reading_records(
    result: RunResult, measured: Sequence[tuple[Key, Check, Measurement]], ids: Mapping[Key, int]
) -> tuple[list[Record], list[Record]]:
    """Return every number with the worst verdict of its series in its check, and its samples."""
    verdicts = {id(check): _judged(check) for check in result.checks}
    numbers, raw, counts = [], [], Counter[int]()
    for key, check, m in measured:
        series_id = ids[key]
        place = {"run_id": result.run_id, "series_id": series_id, "nth": counts[series_id]}
        counts[series_id] += 1
        numbers.append(
            {**place, "value": _number(m.value), "verdict": verdicts[id(check)].get(m.series())}
        )
        if m.samples:
            raw.append({**place, "samples": [_number(sample) for sample in m.samples]})
    return numbers, raw


def hardware_records(result: RunResult) -> list[Record]:
    """Return one row for nodes that differ only in their serials."""
    alike: dict[NodeHardware, dict[str, list[str]]] = defaultdict(dict)
    for name, hardware in hardware_by_node(result.nodes).items():
        alike[replace(hardware, ids=frozenset())][name] = sorted(hardware.ids)
    rows = []
    for hardware, ids_by_node in alike.items():
        facts = {key: value for key, value in asdict(hardware).items() if key != "ids"}
        known = {name: ids for name, ids in ids_by_node.items() if ids}
        rows.append(
            {"run_id": result.run_id, **facts, "nodes": list(ids_by_node), "ids": known or None}
        )
    return rows


def suspect_records(result: RunResult) -> list[Record]:
    columns = ("kind", "name", "confidence", "code", "evidence")
    blamed = (suspect.to_dict() for suspect in result.suspects)
    return [
        {"run_id": result.run_id, **{column: each[column] for column in columns}} for each in blamed
    ]


def node_test_record(test: NodeTest) -> Record:
    return {**asdict(test), "verdict": test.verdict.value}


def node_test(row: Row[Any]) -> NodeTest:
    return NodeTest(**{**row._mapping, "verdict": Verdict(row.verdict)})


def pin_record(cluster: str, pin: Pin) -> Record:
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
        "conditions": {
            key: (str(value) if isinstance(value, float) and not math.isfinite(value) else value)
            for key, value in m.conditions.items()
        },
        "better": m.better,
    }


def _judged(check: Check) -> dict[str, str]:
    """Return the worst verdict by series."""
    verdicts: dict[str, Verdict] = {}
    for judgement in check.judgements:
        name = judgement.measurement.series()
        verdicts[name] = (
            worst((judgement.verdict, verdicts[name])) if name in verdicts else judgement.verdict
        )
    return {name: verdict.value for name, verdict in verdicts.items()}


def _number(value: float) -> float | None:
    """Return the value, None for NaN and infinity, which JSON does not have."""
    return float(value) if math.isfinite(value) else None


def listed(connection: Connection, values: Sequence[str | int]) -> Select[Any]:
    """Return a query of the values as one parameter, since databases limit the number of
    parameters.
    """
    each = func.json_each if connection.dialect.name == "sqlite" else func.json_array_elements_text
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
    query = select(*columns).where(series.c.series_key.in_(listed(connection, digests)))
    return {
        (digest, check, unit): series_id
        for digest, check, unit, series_id in _plain(connection, query)
    }


def numbers_of(connection: Connection, run_ids: Sequence[str], names: Sequence[str]) -> Readings:
    """Return the readings of the series in the runs, as indexes of both lists."""
    place = {series_key(name): i for i, name in enumerate(names)}
    query = select(series.c.series_key, series.c.id).where(
        series.c.series_key.in_(listed(connection, sorted(place)))
    )
    stored = [(series_id, place[digest]) for digest, series_id in _plain(connection, query)]
    at = np.full(max((series_id for series_id, _ in stored), default=0) + 2, -1, dtype=np.int64)
    for series_id, i in stored:
        at[series_id] = i
    # A few series are looked up one by one; of more, runs are read whole.
    few = sorted(series_id for series_id, _ in stored) if len(stored) <= 500 else None
    tables = [
        np.array(_rows(connection, run_id, few), dtype=np.float64).reshape(-1, 3)
        for run_id in run_ids
    ]
    run = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    ids, value, verdict = np.concatenate([np.empty((0, 3)), *tables]).T
    where = at[np.minimum(ids.astype(np.int64), at.size - 1)]
    return Readings(run, where, value, verdict.astype(np.int64)).moved(where)


def _rows(connection: Connection, run_id: str, few: Sequence[int] | None) -> list[Any]:
    """Return the finite numbers of the run, of all series if `few` is None."""
    # Nearly all passed
    places = {verdict.value: VERDICTS.index(verdict) for verdict in (Verdict.PASS, *VERDICTS)}
    verdict = case(places, value=readings.c.verdict, else_=-1)
    query = (
        select(readings.c.series_id, readings.c.value, verdict)
        .where(and_(readings.c.run_id == run_id, readings.c.value.is_not(None)))
        .order_by(readings.c.series_id, readings.c.nth)
    )
    return _plain(connection, query if few is None else query.where(readings.c.series_id.in_(few)))


def _plain(connection: Connection, query: Select[Any]) -> list[Any]:
    """Return the driver's rows: SQLAlchemy's cost three times as much as reading."""
    cursor = connection.execute(query).cursor
    assert cursor is not None
    return list(cursor.fetchall())


def run_row(row: Row[Any]) -> RunRow:
    fields = {key: value for key, value in row._mapping.items() if key not in ("setup", "code")}
    return RunRow(
        **{**fields, "verdict": Verdict(row.verdict), "reason": Reason(row.code, {}, row.reason)}
    )


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
    query = (
        select(*(series.c[name] for name in described), readings.c.value, samples.c.samples)
        .select_from(
            outerjoin(readings.join(series, readings.c.series_id == series.c.id), samples, beside)
        )
        .where(readings.c.run_id == run_id)
        .order_by(readings.c.series_id, readings.c.nth)
    )
    return [(row.check_name, _measurement(row)) for row in connection.execute(query)]


def described_series(connection: Connection, subject: Subject) -> list[Measurement]:
    """Return every series of the subject with NaN for a value."""
    of_subject = series.c.subject_kind == subject.kind, series.c.subject_name == subject.name
    query = select(series, literal(None).label("value"), literal(None).label("samples")).where(
        *of_subject
    )
    measured = (_measurement(row) for row in connection.execute(query.order_by(series.c.id)))
    return list({m.series(): m for m in measured}.values())


def hardware_of(connection: Connection, run_ids: Sequence[str]) -> Mapping[str, Hardware]:
    """Return the hardware by run and node."""
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
    gpu_model: str,
    gpu_clock_mhz: int | None,
    cpu_model: str,
    driver: str,
    nodes: str,
    ids: str | None,
) -> Hardware:
    """Parse the nodes of one row; `nodes` and `ids` are JSON."""
    by_node = (json.loads(ids) if ids else None) or {}
    facts = gpu_model, gpu_clock_mhz, cpu_model, driver
    return {
        name: NodeHardware(*facts, frozenset(by_node.get(name, ()))) for name in json.loads(nodes)
    }


def stored_result(connection: Connection, run_id: str) -> RunResult | None:
    row = connection.execute(select(runs).where(runs.c.run_id == run_id)).first()
    if row is None:
        return None
    blamed = connection.execute(
        select(suspects).where(suspects.c.run_id == run_id).order_by(suspects.c.id)
    )
    run = run_row(row)
    nodes = []
    for name, hardware in hardware_of(connection, [run_id]).get(run_id, {}).items():
        facts = {key: value for key, value in asdict(hardware).items() if value and key != "ids"}
        ids = {"hardware_ids": sorted(hardware.ids)} if hardware.ids else {}
        nodes.append({"name": name, **facts, **ids})
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
    measured: dict[str, list[Measurement]] = {}
    for name, m in stored_measurements(connection, run.run_id):
        measured.setdefault(name, []).append(m)
    query = select(checks).where(checks.c.run_id == run.run_id).order_by(checks.c.nth)
    return [_check(row, measured.pop(row.name, [])) for row in connection.execute(query)]


def _check(row: Row[Any], measured: list[Measurement]) -> Check:
    own = row.found  # earlier versions saved no code or values
    reason = Reason(own.get("code"), own.get("values", {}), own["reason"])
    check_result = CheckResult(
        Verdict(own["verdict"]), reason, tuple(map(_suspect, own["suspects"]))
    )
    return Check(
        row.name,
        Verdict(row.verdict),
        Reason(row.code, {}, row.reason),
        row.seconds,
        tuple(measured),
        raw_result=check_result,
    )


def _suspect(saved: Any) -> Suspect:
    """Return the suspect; earlier versions saved none with a code, a verdict or values."""
    verdict, evidence = (
        saved.get("verdict"),
        Reason(saved.get("code"), saved.get("values", {}), saved["evidence"]),
    )
    return Suspect(
        saved["kind"],
        saved["name"],
        saved["confidence"],
        evidence,
        Verdict(verdict) if verdict else None,
    )


def _measurement(row: Any) -> Measurement:
    subject = Subject(row.subject_kind, row.subject_name)
    value = math.nan if row.value is None else row.value
    taken = tuple(math.nan if sample is None else sample for sample in row.samples or ())
    return Measurement(row.metric, value, row.unit, subject, row.conditions, taken, row.better)
