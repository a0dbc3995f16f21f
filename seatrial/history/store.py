"""Save runs and incidents, and query them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from sqlalchemy import ColumnElement, Connection, Engine, Row, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from seatrial.history.campaigns import CampaignState, campaign_of
from seatrial.history.engine import explained, lock
from seatrial.history.incident import Incident, Receipt, RunOutcome, advance
from seatrial.history.minutes import MetricMinutes, unpacked
from seatrial.history.node_tests import NodeTest, node_tests_of
from seatrial.history.queries import (
    described_series,
    hardware_of,
    listed,
    node_test,
    numbers_of,
    run_row,
    series_ids,
    stored_measurements,
    stored_result,
)
from seatrial.history.records import (
    check_records,
    hardware_records,
    keyed,
    node_test_record,
    pin_record,
    reading_records,
    run_record,
    series_key,
    series_records,
    suspect_records,
)
from seatrial.history.rows import Pin, Readings, RunRow
from seatrial.history.schema import (
    baselines,
    campaigns,
    checks,
    incidents,
    minutes,
    node_hardware,
    node_tests,
    readings,
    runs,
    samples,
    series,
    suspects,
)
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.result import RunResult
from seatrial.model.setup import Hardware
from seatrial.model.verdict import Verdict

# Any number that all processes share.
_ADVISORY_LOCK = 7228466


def _write(connection: Connection, incident: Incident) -> Incident:
    """Insert the incident, or replace the one of its id; return it with its id."""
    record = _record(incident)
    if incident.id is not None:
        connection.execute(update(incidents).where(incidents.c.id == incident.id), record)
        return incident
    inserted = connection.execute(insert(incidents), record)
    (key,) = inserted.inserted_primary_key or (None,)
    return replace(incident, id=key)


def _record(incident: Incident) -> dict[str, Any]:
    record = asdict(incident)
    del record["id"]
    record["verdict"] = incident.verdict.value
    record["worst"] = incident.worst.value
    record["nights"] = record.pop("run_count")
    record["settled"] = incident.settled
    record["receipts"] = {
        sink: {"told": receipt.reported, "place": dict(receipt.place)}
        for sink, receipt in incident.receipts.items()
    }
    return record


def _incident(row: Row[Any]) -> Incident:
    values = dict(row._mapping)
    del values["settled"]
    values["run_count"] = values.pop("nights")
    for key in ("suspects", "checks", "changes"):
        values[key] = tuple(values[key])
    for key in ("verdict", "worst"):
        values[key] = Verdict(values[key])
    values["receipts"] = {
        sink: Receipt(saved["told"], saved["place"]) for sink, saved in row.receipts.items()
    }
    return Incident(**values)


class Store:
    """The history of every cluster.

    Each method is one transaction; all raise SeatrialError when the store fails.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writer = engine.execution_options(writes=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _reading(self, failure: str) -> Iterator[Connection]:
        """Begin a transaction; `failure` is what an error of the store says first."""
        with explained(self._engine.url, failure), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _writing(self, failure: str) -> Iterator[Connection]:
        """Begin a transaction that writes."""
        with explained(self._engine.url, failure), self._writer.begin() as connection:
            yield connection

    def save(self, result: RunResult, out: Path) -> None:
        """Save the run in one transaction; replace a run of the same id."""
        with explained(self._engine.url, f"run {result.run_id} cannot be saved"):
            try:
                self._replace(result, out)
            except IntegrityError:
                # The same run, saved elsewhere at the same moment: it is there now
                self._replace(result, out)

    def _replace(self, result: RunResult, out: Path) -> None:
        with self._writer.begin() as connection:
            measured = keyed(result)
            ids = series_ids(connection, series_records(measured))
            numbers, raw = reading_records(result, measured, ids)
            run_id = result.run_id
            for table in (runs, node_tests):
                connection.execute(delete(table).where(table.c.run_id == run_id))
            connection.execute(insert(runs), run_record(result, out))
            rows_by_table = (
                (node_hardware, hardware_records(result)),
                (checks, check_records(result)),
                (readings, numbers),
                (samples, raw),
                (suspects, suspect_records(result)),
                (node_tests, list(map(node_test_record, node_tests_of(result)))),
            )
            for table, rows in rows_by_table:
                if rows:
                    connection.execute(insert(table), rows)

    def runs(self, cluster: str | None = None, limit: int = 20) -> list[RunRow]:
        """Return the newest `limit` runs of one cluster or of all, newest first."""
        which = [] if cluster is None else [runs.c.cluster == cluster]
        return self._newest(limit, *which)

    def runs_by_id(self, run_ids: Sequence[str]) -> list[RunRow]:
        """Return the runs of those ids that are there, oldest first."""
        query = select(runs).order_by(runs.c.started, runs.c.run_id)
        with self._reading("runs cannot be read") as connection:
            chosen = query.where(runs.c.run_id.in_(listed(connection, run_ids)))
            return [run_row(row) for row in connection.execute(chosen)]

    def run(self, run_id: str) -> RunRow | None:
        """Return the run of that id, None if there is none."""
        query = select(runs).where(runs.c.run_id == run_id)
        with self._reading(f"run {run_id} cannot be read") as connection:
            row = connection.execute(query).first()
            return run_row(row) if row else None

    def runs_before(
        self, cluster: str, suite: str, before: datetime, limit: int, verdict: Verdict | None = None
    ) -> list[RunRow]:
        """Return the cluster's newest `limit` runs of that suite that started before, newest
        first.
        """
        which = [*_of_suite(cluster, suite), runs.c.started < before]
        if verdict is not None:
            which.append(runs.c.verdict == verdict.value)
        return self._newest(limit, *which)

    def count_after(self, cluster: str, suite: str, after: datetime) -> int:
        """Count the cluster's runs of that suite that started later."""
        which = [*_of_suite(cluster, suite), runs.c.started > after]
        query = select(func.count()).select_from(runs).where(*which)
        with self._reading("runs cannot be read") as connection:
            return int(connection.execute(query).scalar_one())

    def last_run(self, cluster: str, suite: str) -> RunRow | None:
        """Return the cluster's newest run of that suite."""
        return self._last(cluster, suite)

    def last_pass(self, cluster: str, suite: str, before: str) -> RunRow | None:
        """Return the cluster's newest run of that suite that passed, except run `before`."""
        passed = runs.c.verdict == Verdict.PASS.value
        is_other = runs.c.run_id != before
        return self._last(cluster, suite, passed, is_other)

    def run_ended(self, cluster: str, suite: str, at: datetime) -> RunRow | None:
        """Return the cluster's run of that suite that ended at that time."""
        return self._last(cluster, suite, runs.c.finished == at)

    def _last(self, cluster: str, suite: str, *which: ColumnElement[bool]) -> RunRow | None:
        return next(iter(self._newest(1, *_of_suite(cluster, suite), *which)), None)

    def _newest(self, limit: int, *which: ColumnElement[bool]) -> list[RunRow]:
        query = (
            select(runs)
            .where(*which)
            .order_by(runs.c.started.desc(), runs.c.run_id.desc())
            .limit(limit)
        )
        with self._reading("runs cannot be read") as connection:
            return [run_row(row) for row in connection.execute(query)]

    def remove_runs(self, run_ids: Sequence[str]) -> int:
        """Delete the runs with their numbers; return how many there were.

        Pins and incidents stay.
        """
        with self._writing("runs cannot be removed") as connection:
            removal = delete(runs).where(runs.c.run_id.in_(listed(connection, run_ids)))
            return connection.execute(removal).rowcount

    def incidents(
        self, cluster: str, suite: str, outcome: RunOutcome, sinks: Iterable[str]
    ) -> list[Incident]:
        """Update, save and return the unsettled incidents; see
        `seatrial.history.incident.advance`.
        """
        query = select(incidents).where(
            incidents.c.cluster == cluster,
            incidents.c.suite == suite,
            incidents.c.settled.is_(False),
        )
        with self._writing("incidents cannot be kept") as connection:
            lock(connection, _ADVISORY_LOCK)  # runs that end together take turns
            rows = connection.execute(query.order_by(incidents.c.id))
            before = [_incident(row) for row in rows]
            after = advance(before, cluster, suite, outcome, sinks)
            return [_write(connection, incident) for incident in after]

    def keep_receipts(self, incident: int, receipts: Mapping[str, Receipt]) -> None:
        """Add receipts to the incident of that id, which another run may have changed during
        delivery.
        """
        with self._writing(f"incident {incident} cannot be kept") as connection:
            lock(connection, _ADVISORY_LOCK)
            which = incidents.c.id == incident
            row = connection.execute(select(incidents).where(which)).first()
            if row is None:
                return
            now = _incident(row)
            for sink, receipt in receipts.items():
                known = now.receipts.get(sink, Receipt())
                if receipt.reported >= known.reported:  # else another run has delivered more
                    now = now.with_receipt(sink, receipt)
            record = _record(now)
            changed = {name: record[name] for name in ("receipts", "settled")}
            connection.execute(update(incidents).where(which), changed)

    def readings(self, run_ids: Sequence[str], series: Sequence[str]) -> Readings:
        """Return the readings of the series in the runs."""
        with self._reading("measurements cannot be read") as connection:
            return numbers_of(connection, run_ids, series)

    def series_of_cluster(self, cluster: str) -> list[Measurement]:
        """Return every series of the cluster as a whole, without values."""
        with self._reading("measurements cannot be read") as connection:
            return described_series(connection, Subject("cluster", cluster))

    def hardware(self, run_ids: Sequence[str]) -> Mapping[str, Hardware]:
        """Return the hardware of the runs by run and node, where it is recorded."""
        with self._reading("runs cannot be read") as connection:
            return hardware_of(connection, run_ids)

    def node_tests(self, cluster: str, since: datetime) -> list[NodeTest]:
        """Return the tests of the cluster's nodes that ended since then, the oldest first."""
        query = (
            select(node_tests)
            .where(node_tests.c.cluster == cluster, node_tests.c.ended >= since)
            .order_by(node_tests.c.ended, node_tests.c.run_id)
        )
        with self._reading("tests of nodes cannot be read") as connection:
            return [node_test(row) for row in connection.execute(query)]

    def campaign(self, cluster: str, suite: str | None = None) -> CampaignState | None:
        """Return the newest campaign of the cluster, or of that suite on it."""
        query = (
            select(campaigns)
            .where(campaigns.c.cluster == cluster)
            .order_by(campaigns.c.started.desc())
            .limit(1)
        )
        if suite is not None:
            query = query.where(campaigns.c.suite == suite)
        with self._reading("campaigns cannot be read") as connection:
            row = connection.execute(query).first()
            return campaign_of(row) if row else None

    def keep_campaign(self, state: CampaignState) -> None:
        """Save the campaign; replace its earlier state."""
        which = campaigns.c.campaign_id == state.campaign_id
        with self._writing("the campaign cannot be kept") as connection:
            connection.execute(delete(campaigns).where(which))
            connection.execute(insert(campaigns), asdict(state))  # a verdict is a text

    def add_node_tests(self, tests: Iterable[NodeTest]) -> None:
        """Save tests of nodes that the result of their run does not have: they never came up."""
        if records := [node_test_record(test) for test in tests]:
            with self._writing("tests of nodes cannot be saved") as connection:
                connection.execute(insert(node_tests), records)

    def keep_minutes(self, run_id: str, series: Iterable[MetricMinutes]) -> None:
        """Save what devices reported during the run, which must be saved; replace what there is of
        it.
        """
        rows = [
            {
                "run_id": run_id,
                "metric": each.metric,
                "parts": list(each.parts),
                "times_s": list(each.times_s),
                "readings": each.packed(),
            }
            for each in series
        ]
        with self._writing("minutes cannot be kept") as connection:
            connection.execute(delete(minutes).where(minutes.c.run_id == run_id))
            if rows:
                connection.execute(insert(minutes), rows)

    def minutes(self, run_id: str, metric: str) -> MetricMinutes | None:
        """Return what devices reported of the metric during the run; None without any."""
        of_run = minutes.c.run_id == run_id
        query = select(minutes).where(of_run, minutes.c.metric == metric)
        with self._reading("minutes cannot be read") as connection:
            row = connection.execute(query).first()
            if row is None:
                return None
            return unpacked(row.metric, row.parts, row.times_s, row.readings)

    def minute_metrics(self, run_ids: Sequence[str]) -> list[str]:
        """Return the metrics that devices reported in the runs."""
        query = select(minutes.c.metric).distinct().order_by(minutes.c.metric)
        with self._reading("minutes cannot be read") as connection:
            chosen = query.where(minutes.c.run_id.in_(listed(connection, run_ids)))
            return list(connection.execute(chosen).scalars())

    def measured(self, cluster: str, kind: str) -> dict[str, datetime]:
        """Return the start of the newest run that measured it, by the name of each subject of the
        kind: link, gpu.
        """
        query = (
            select(series.c.subject_name, func.max(runs.c.started))
            .join_from(runs, readings, readings.c.run_id == runs.c.run_id)
            .join(series, series.c.id == readings.c.series_id)
            .where(
                runs.c.cluster == cluster,
                series.c.subject_kind == kind,
                readings.c.value.is_not(None),
            )
            .group_by(series.c.subject_name)
        )
        with self._reading("measurements cannot be read") as connection:
            return dict(connection.execute(query).tuples().all())

    def measurements(self, run_id: str) -> list[Measurement]:
        """Return the finite measurements of the run, without samples."""
        with self._reading(f"run {run_id} cannot be read") as connection:
            stored = stored_measurements(connection, run_id)
            return [m for _, m in stored if m.finite]

    def result(self, run_id: str) -> RunResult | None:
        """Return the run without judgements and timings, and of the nodes their hardware."""
        with self._reading(f"run {run_id} cannot be read") as connection:
            return stored_result(connection, run_id)

    def pinned(self, cluster: str) -> dict[str, Pin]:
        """Return the cluster's pinned baselines by series."""
        columns = [baselines.c[field.name] for field in fields(Pin)]
        of_cluster = select(*columns).where(baselines.c.cluster == cluster)
        query = of_cluster.order_by(baselines.c.series)
        with self._reading("pinned baselines cannot be read") as connection:
            return {row.series: Pin(*row) for row in connection.execute(query)}

    def pinned_clusters(self) -> list[str]:
        """Return the names of clusters with pinned baselines."""
        query = select(baselines.c.cluster).distinct().order_by(baselines.c.cluster)
        with self._reading("pinned baselines cannot be read") as connection:
            return list(connection.execute(query).scalars())

    def pin(self, cluster: str, pins: Sequence[Pin]) -> None:
        """Save `pins` in one transaction; each replaces the pin of its series."""
        with self._writing("baselines cannot be pinned") as connection:
            _forget(connection, cluster, [pin.series for pin in pins])
            records = [pin_record(cluster, pin) for pin in pins]
            if records:
                connection.execute(insert(baselines), records)

    def unpin(self, cluster: str, series: Iterable[str]) -> int:
        """Delete pins; return how many there were."""
        with self._writing("baselines cannot be unpinned") as connection:
            return _forget(connection, cluster, series)


def _of_suite(cluster: str, suite: str) -> list[ColumnElement[bool]]:
    return [runs.c.cluster == cluster, runs.c.suite == suite]


def _forget(connection: Any, cluster: str, series: Iterable[str]) -> int:
    gone = 0
    of_cluster = baselines.c.cluster == cluster
    for name in series:
        of_series = baselines.c.series_key == series_key(name)
        gone += connection.execute(delete(baselines).where(of_cluster, of_series)).rowcount
    return gone
