"""Save runs and incidents, and query them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Column, ColumnElement, Connection, Engine, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from seatrial.history.campaigns import CampaignState, campaign_of
from seatrial.history.engine import explained, lock
from seatrial.history.incident import Incident, Receipt, RunOutcome, advance
from seatrial.history.incident_rows import add_receipts, unsettled, write
from seatrial.history.measured import (
    described_series,
    listed,
    numbers_of,
    series_ids,
    stored_measurements,
)
from seatrial.history.minutes import MetricMinutes, unpacked
from seatrial.history.node_tests import NodeTest, node_tests_of
from seatrial.history.queries import RUN_COLUMNS, hardware_of, stored_result
from seatrial.history.records import (
    check_records,
    hardware_records,
    keyed,
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
# The columns of the tables
_RUN = runs.c
# The columns of runs that others are compared with: their reasons are not needed
_COMPARED = [column for column in RUN_COLUMNS if column is not _RUN.reason]
_CAMPAIGN = campaigns.c
_MINUTES = minutes.c
_BASELINE = baselines.c


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
            tests = [asdict(test) for test in node_tests_of(result)]
            for table in (runs, node_tests):
                of_run = table.c.run_id == result.run_id
                connection.execute(delete(table).where(of_run))
            connection.execute(insert(runs), run_record(result, out))
            rows_by_table = (
                (node_hardware, hardware_records(result)),
                (checks, check_records(result)),
                (readings, numbers),
                (samples, raw),
                (suspects, suspect_records(result)),
                (node_tests, tests),
            )
            for table, rows in rows_by_table:
                if rows:
                    connection.execute(insert(table), rows)

    def runs(self, cluster: str | None = None, limit: int = 20) -> list[RunRow]:
        """Return the newest `limit` runs of one cluster or of all, newest first."""
        if cluster is None:
            return self._newest(limit)
        return self._newest(limit, _RUN.cluster == cluster)

    def runs_by_id(self, run_ids: Sequence[str]) -> list[RunRow]:
        """Return the runs of those ids that are there, oldest first."""
        query = select(*RUN_COLUMNS).order_by(_RUN.started, _RUN.run_id)
        with self._reading("runs cannot be read") as connection:
            requested = _RUN.run_id.in_(listed(connection, run_ids))
            rows = connection.execute(query.where(requested))
            return [RunRow(**row._mapping) for row in rows]

    def run(self, run_id: str) -> RunRow | None:
        """Return the run of that id, None if there is none."""
        query = select(*RUN_COLUMNS).where(_RUN.run_id == run_id)
        with self._reading(f"run {run_id} cannot be read") as connection:
            row = connection.execute(query).first()
            if row is None:
                return None
            return RunRow(**row._mapping)

    def runs_before(
        self, cluster: str, suite: str, before: datetime, limit: int, verdict: Verdict | None = None
    ) -> list[RunRow]:
        """Return the cluster's newest `limit` runs of that suite that started before `before`,
        newest first, without their reasons.
        """
        which = [*_of_suite(cluster, suite), _RUN.started < before]
        if verdict is not None:
            which.append(_RUN.verdict == verdict)
        return self._newest(limit, *which, columns=_COMPARED)

    def count_after(self, cluster: str, suite: str, after: datetime) -> int:
        """Count the cluster's runs of that suite that started after `after`."""
        which = [*_of_suite(cluster, suite), _RUN.started > after]
        query = select(func.count()).select_from(runs).where(*which)
        with self._reading("runs cannot be read") as connection:
            return int(connection.execute(query).scalar_one())

    def last_run(self, cluster: str, suite: str) -> RunRow | None:
        """Return the cluster's newest run of that suite."""
        return self._last(cluster, suite)

    def last_pass(self, cluster: str, suite: str, before: str) -> RunRow | None:
        """Return the cluster's newest run of that suite that passed, except run `before`."""
        has_passed = _RUN.verdict == Verdict.PASS
        is_other = _RUN.run_id != before
        return self._last(cluster, suite, has_passed, is_other)

    def run_ended(self, cluster: str, suite: str, at: datetime) -> RunRow | None:
        """Return the cluster's run of that suite that ended at `at`."""
        return self._last(cluster, suite, _RUN.finished == at)

    def _last(self, cluster: str, suite: str, *which: ColumnElement[bool]) -> RunRow | None:
        newest = self._newest(1, *_of_suite(cluster, suite), *which)
        return next(iter(newest), None)

    def _newest(
        self,
        limit: int,
        *which: ColumnElement[bool],
        columns: Sequence[Column[Any]] = RUN_COLUMNS,
    ) -> list[RunRow]:
        query = (
            select(*columns)
            .where(*which)
            .order_by(_RUN.started.desc(), _RUN.run_id.desc())
            .limit(limit)
        )
        with self._reading("runs cannot be read") as connection:
            return [RunRow(**row._mapping) for row in connection.execute(query)]

    def remove_runs(self, run_ids: Sequence[str]) -> int:
        """Delete the runs with their numbers; return how many there were.

        Pins and incidents stay.
        """
        with self._writing("runs cannot be removed") as connection:
            requested = _RUN.run_id.in_(listed(connection, run_ids))
            removal = delete(runs).where(requested)
            return connection.execute(removal).rowcount

    def incidents(
        self, cluster: str, suite: str, outcome: RunOutcome, sinks: Iterable[str]
    ) -> list[Incident]:
        """Update, save and return the unsettled incidents; see
        `seatrial.history.incident.advance`.
        """
        with self._writing("incidents cannot be kept") as connection:
            lock(connection, _ADVISORY_LOCK)  # runs that end together take turns
            before = unsettled(connection, cluster, suite)
            after = advance(before, cluster, suite, outcome, sinks)
            return [write(connection, incident) for incident in after]

    def keep_receipts(self, incident: int, receipts: Mapping[str, Receipt]) -> None:
        """Add receipts to the incident of that id, which another run may have changed during
        delivery.
        """
        with self._writing(f"incident {incident} cannot be kept") as connection:
            lock(connection, _ADVISORY_LOCK)
            add_receipts(connection, incident, receipts)

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
            return [NodeTest(**row._mapping) for row in connection.execute(query)]

    def campaign(self, cluster: str, suite: str | None = None) -> CampaignState | None:
        """Return the newest campaign of the cluster, or of that suite on it."""
        query = (
            select(campaigns)
            .where(_CAMPAIGN.cluster == cluster)
            .order_by(_CAMPAIGN.started.desc())
            .limit(1)
        )
        if suite is not None:
            query = query.where(_CAMPAIGN.suite == suite)
        with self._reading("campaigns cannot be read") as connection:
            row = connection.execute(query).first()
            if row is None:
                return None
            return campaign_of(row)

    def keep_campaign(self, state: CampaignState) -> None:
        """Save the campaign; replace its earlier state."""
        which = _CAMPAIGN.campaign_id == state.campaign_id
        with self._writing("the campaign cannot be kept") as connection:
            connection.execute(delete(campaigns).where(which))
            connection.execute(insert(campaigns), asdict(state))  # a verdict is a text

    def add_node_tests(self, tests: Iterable[NodeTest]) -> None:
        """Save tests of nodes that the result of their run does not have: they never came up."""
        if records := [asdict(test) for test in tests]:
            with self._writing("tests of nodes cannot be saved") as connection:
                connection.execute(insert(node_tests), records)

    def keep_minutes(self, run_id: str, series: Iterable[MetricMinutes]) -> None:
        """Save what devices reported during the run, in place of what was saved; the run must be
        saved.
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
            connection.execute(delete(minutes).where(_MINUTES.run_id == run_id))
            if rows:
                connection.execute(insert(minutes), rows)

    def minutes(self, run_id: str, metric: str) -> MetricMinutes | None:
        """Return what devices reported of the metric during the run; None without any."""
        of_run = _MINUTES.run_id == run_id
        query = select(minutes).where(of_run, _MINUTES.metric == metric)
        with self._reading("minutes cannot be read") as connection:
            row = connection.execute(query).first()
            if row is None:
                return None
            return unpacked(row.metric, row.parts, row.times_s, row.readings)

    def minute_metrics(self, run_ids: Sequence[str]) -> list[str]:
        """Return the metrics that devices reported in the runs."""
        query = select(_MINUTES.metric).distinct().order_by(_MINUTES.metric)
        with self._reading("minutes cannot be read") as connection:
            requested = _MINUTES.run_id.in_(listed(connection, run_ids))
            return list(connection.execute(query.where(requested)).scalars())

    def measured(self, cluster: str, kind: str) -> dict[str, datetime]:
        """Return the start of the newest run that measured each subject of `kind` (link, gpu), by
        name.
        """
        query = (
            select(series.c.subject_name, func.max(_RUN.started))
            .join_from(runs, readings, readings.c.run_id == _RUN.run_id)
            .join(series, series.c.id == readings.c.series_id)
            .where(
                _RUN.cluster == cluster,
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
        columns = [_BASELINE[field.name] for field in fields(Pin)]
        query = select(*columns).where(_BASELINE.cluster == cluster).order_by(_BASELINE.series)
        with self._reading("pinned baselines cannot be read") as connection:
            rows = connection.execute(query)
            return {row.series: Pin(*row) for row in rows}

    def pinned_clusters(self) -> list[str]:
        """Return the names of clusters with pinned baselines."""
        query = select(_BASELINE.cluster).distinct().order_by(_BASELINE.cluster)
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
    return [_RUN.cluster == cluster, _RUN.suite == suite]


def _forget(connection: Any, cluster: str, series: Iterable[str]) -> int:
    """Delete the pins of those series; return how many there were."""
    gone = 0
    of_cluster = _BASELINE.cluster == cluster
    for name in series:
        of_series = _BASELINE.series_key == series_key(name)
        removal = delete(baselines).where(of_cluster, of_series)
        gone += connection.execute(removal).rowcount
    return gone
