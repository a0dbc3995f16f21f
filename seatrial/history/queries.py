"""Read runs back from the tables."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache
from typing import Any

from sqlalchemy import Connection, Text, cast, select

from seatrial.history.measured import stored_measurements
from seatrial.history.records import Record
from seatrial.history.rows import RunRow
from seatrial.history.schema import checks, node_hardware, runs, suspects
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason
from seatrial.model.result import Check, CheckResult, RunResult, Suspect
from seatrial.model.setup import Hardware, NodeHardware, Setup
from seatrial.model.verdict import Verdict

# Of the table of runs, as a RunRow has them
RUN_COLUMNS = [runs.c[field.name] for field in fields(RunRow)]


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
    ids_by_node = json.loads(ids or "null") or {}
    by_node = {}
    for name in json.loads(nodes):
        own_ids = frozenset(ids_by_node.get(name, ()))
        by_node[name] = NodeHardware(gpu_model, gpu_clock_mhz, cpu_model, driver, own_ids)
    return by_node


def stored_result(connection: Connection, run_id: str) -> RunResult | None:
    run = connection.execute(select(runs).where(runs.c.run_id == run_id)).first()
    if run is None:
        return None
    of_run = select(suspects).where(suspects.c.run_id == run_id)
    rows = connection.execute(of_run.order_by(suspects.c.id))
    return RunResult(
        run.run_id,
        run.cluster,
        run.suite,
        run.started,
        run.finished,
        run.verdict,
        run.reason,
        nodes=_stored_nodes(connection, run_id),
        checks=_stored_checks(connection, run_id),
        suspects=[
            Suspect(row.kind, row.name, row.confidence, row.reason, row.verdict) for row in rows
        ],
        fingerprint=run.fingerprint,
        setup=Setup(**run.setup) if run.setup else None,
    )


def _stored_nodes(connection: Connection, run_id: str) -> list[Record]:
    """Return the nodes with their hardware, as run.json has it."""
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
    return nodes


def _stored_checks(connection: Connection, run_id: str) -> list[Check]:
    measured: dict[str, list[Measurement]] = defaultdict(list)
    for name, m in stored_measurements(connection, run_id):
        measured[name].append(m)
    of_run = select(checks).where(checks.c.run_id == run_id)
    rows = connection.execute(of_run.order_by(checks.c.nth))
    stored = []
    for row in rows:
        of_check = measured.pop(row.name, [])
        found = row.found
        raw_result = CheckResult(
            verdict=Verdict(found["verdict"]),
            reason=Reason.from_dict(found),
            suspects=tuple(map(_suspect, found["suspects"])),
        )
        stored.append(
            Check(
                row.name,
                row.verdict,
                row.reason,
                row.seconds,
                tuple(of_check),
                raw_result=raw_result,
            )
        )
    return stored


def _suspect(saved: Any) -> Suspect:
    """Return a suspect that a check found itself; earlier versions saved none with a verdict."""
    verdict = saved.get("verdict")
    return Suspect(
        kind=saved["kind"],
        name=saved["name"],
        confidence=saved["confidence"],
        evidence=Reason.from_dict(saved, "evidence"),
        verdict=Verdict(verdict) if verdict else None,
    )
