"""Step `notify`: send alerts about what is new.

Nothing that goes wrong here ever changes a run's verdict.

A problem of a cluster is an incident (seatrial/history/incident.py). The history keeps it with the
receipts of every sink, so the next run repeats a failed delivery.

Results and reports have no secrets: they were taken out when the run was put together
(seatrial/runs/run_state.py).
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run
from prefect.utilities.urls import url_for

from seatrial.alerts.alert import Alert, overdue, report_address, silent
from seatrial.alerts.settings import HOW_TO, AlertSettings
from seatrial.config.cluster import Cluster
from seatrial.config.run import published, secrets_of
from seatrial.history import open_store
from seatrial.history.incident import Incident, Receipt, RunOutcome, advance, outcome_of
from seatrial.model.errors import SeatrialError, classed
from seatrial.model.reason import rewritten
from seatrial.model.result import RunResult, now
from seatrial.report.paper import curve_png, described
from seatrial.runs.difference import Difference, difference
from seatrial.runs.load import load_result
from seatrial.tasks.sinks import Delivery, Files, Sink
from seatrial.tasks.sinks.bounded import BoundedSink
from seatrial.tasks.sinks.configured import settings_of, sinks_of

if TYPE_CHECKING:
    from seatrial.history import RunRow
    from seatrial.history.store import Store

log = logging.getLogger("seatrial.notify")


@dataclass(frozen=True, slots=True)
class Notified:
    """The outcome on one line; `failed` if a receiver that should have got an alert did not."""

    summary: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class AlertContext:
    """Everything an alert needs besides the incident and the run."""

    cluster: Cluster
    store: "Store | None"
    sinks: Sequence[Sink]
    run_link: str | None = None
    report: Path | None = None


def notify(
    result: RunResult,
    cluster: Cluster,
    store: "Store | None",
    settings: AlertSettings,
    report: Path | None = None,
    run_link: str | None = None,
) -> Notified:
    """Send every sink what is new in the run; `report` is attached if a sink takes files."""
    sinks, problem = _bounded_sinks(settings, cluster)
    site = AlertContext(cluster, store, sinks, run_link, report)
    deliveries = _deliver(site, result.suite, outcome_of(result), result)
    if not sinks:
        return Notified(f"not configured: {problem or HOW_TO}", failed=problem is not None)
    if deliveries:
        return _with(problem, _summary(deliveries))
    if cluster.notify.quiet == "digest" and result.passed:
        digests = [
            (sink.name, _guarded(sink, Receipt(), partial(sink.digest, result))) for sink in sinks
        ]
        return _with(problem, _summary(digests, repeated=""))
    return _with(problem, Notified("nothing new"))


def watch(
    cluster: Cluster,
    suite: str,
    max_age: timedelta,
    store: "Store | None",
    settings: AlertSettings,
    gone: str | None = None,
) -> Notified:
    """Send an alert if the check of a cluster died (`gone` says how), or if its last run is older
    than `max_age`.

    The incident stays the same until it ends; the next run that is recorded ends it. A check that
    died is reported without a history, too. Raises SeatrialError when the history cannot be read.
    """
    try:
        # Without runs of a clock that was ahead: they would be young for as long
        before = store.runs_before(cluster.name, suite, now(), 1) if store else []
        last = next(iter(before), None)
    except SeatrialError as error:
        if not gone:
            raise
        log.warning("history: %s; this alert cannot be kept up to date", error)
        store = last = None
    silence = silent(gone, last, now()) if gone else overdue(last, suite, max_age, now())
    if silence is None:
        return Notified("the last run is young enough")
    sinks, problem = _bounded_sinks(settings, cluster)
    secrets = secrets_of(cluster)
    clean = replace(silence, reason=rewritten(silence.reason, secrets.out_of_line))
    deliveries = _deliver(AlertContext(cluster, store, sinks), suite, clean, None)
    if not sinks:
        return Notified(f"not configured: {problem or HOW_TO}", failed=True)
    return _with(
        problem,
        _summary(deliveries) if deliveries else Notified(f"reported before: {silence.reason}"),
    )


def _bounded_sinks(settings: AlertSettings, cluster: Cluster) -> tuple[list[Sink], str | None]:
    sinks, problem = sinks_of(settings, cluster)
    return [BoundedSink(sink) for sink in sinks], problem


def _deliver(
    site: AlertContext, suite: str, outcome: RunOutcome, result: RunResult | None
) -> list[tuple[str, Delivery]]:
    """Update the incidents, send every sink what it has not received, and store the receipts."""
    deliveries = []
    for incident in _incidents(site, suite, outcome):
        receipts: dict[str, Receipt] = {}
        ready = None
        files = Files()
        for sink in _receivers(site, incident, outcome):
            if ready is None:
                ready = alert_of(site, incident, result)
                files = files_of(site, ready, result)
            receipt = incident.receipts.get(sink.name, Receipt())
            delivery = _guarded(sink, receipt, partial(sink.send, ready, receipt, files))
            log.log(
                logging.WARNING if delivery.failed else logging.INFO,
                "%s: %s",
                sink.name,
                delivery.summary,
            )
            deliveries.append((sink.name, delivery))
            receipts[sink.name] = delivery.receipt
        _keep(site, incident, receipts)
    return deliveries


def _incidents(site: AlertContext, suite: str, outcome: RunOutcome) -> list[Incident]:
    """Return the incidents after this run; without a history every bad run opens one."""
    names = [sink.name for sink in site.sinks]
    if site.store is not None:
        try:
            return site.store.incidents(site.cluster.name, suite, outcome, names)
        except SeatrialError as error:
            log.warning("history: %s; this alert cannot be kept up to date", error)
    return advance([], site.cluster.name, suite, outcome, names)


def _receivers(site: AlertContext, incident: Incident, outcome: RunOutcome) -> list[Sink]:
    """Return the sinks with something new, or something to update."""
    is_updated = incident.seen == outcome.at
    addressed = [
        sink for sink in site.sinks if not incident.closed or sink.name in incident.receipts
    ]
    return [sink for sink in addressed if is_updated or incident.news(sink.name)]


def _guarded(sink: Sink, receipt: Receipt, send: Callable[[], Delivery]) -> Delivery:
    """Turn an error of a sink into a failed delivery, so that the other sinks are served."""
    try:
        return send()
    except Exception as error:
        log.debug("%s", sink.name, exc_info=error)
        return Delivery(receipt, f"seatrial itself failed ({type(error).__name__})", failed=True)


def _keep(site: AlertContext, incident: Incident, receipts: Mapping[str, Receipt]) -> None:
    """Store the changed receipts; another run may have changed the others since."""
    changed = {
        sink: receipt
        for sink, receipt in receipts.items()
        if receipt != incident.receipts.get(sink)
    }
    if site.store is None or incident.id is None or not changed:
        return
    try:
        site.store.keep_receipts(incident.id, changed)
    except SeatrialError as error:
        log.warning("history: %s; the next run may send it once more", error)


def _summary(
    deliveries: Sequence[tuple[str, Delivery]], repeated: str = "; the next run sends it"
) -> Notified:
    """Return one line of all deliveries; failed ones are repeated by the next run."""
    summary = "; ".join(
        f"{name}: {'FAILED ' if delivery.failed else ''}{delivery.summary}"
        for name, delivery in deliveries
    )
    failed = any(delivery.failed for _, delivery in deliveries)
    return Notified(f"{summary}{repeated}" if failed else summary, failed)


def _with(problem: str | None, notified: Notified) -> Notified:
    """Add `problem`, the receivers whose settings are wrong, to the outcome, which then has
    failed.
    """
    return (
        Notified(f"{notified.summary}; not configured: {problem}", failed=True)
        if problem
        else notified
    )


def alert_of(site: AlertContext, incident: Incident, current: RunResult | None) -> Alert:
    """Return the incident with the run that shows or ended it."""
    shown = _shown(site, incident, current)
    link, report = (site.run_link, site.report) if shown is current else (None, None)
    folder = published(report.parent) if report else None
    path = (f"{folder}/{report.name}" if folder else str(report)) if report else None
    upload = site.cluster.upload
    address = (
        report_address(site.cluster.notify, shown.run_id, incident.cluster, upload, path)
        if shown
        else None
    )
    return Alert(
        incident,
        shown,
        _since(site, shown) if shown and not incident.closed else None,
        link,
        address,
    )


def _shown(site: AlertContext, incident: Incident, current: RunResult | None) -> RunResult | None:
    """Return the current run if it shows the incident, else an earlier one; None for a check that
    did not run.
    """
    if incident.kind == "silent" and not incident.closed:
        return None
    if current and (
        current.finished == incident.closed
        if incident.closed
        else current.run_id == incident.last_run
    ):
        return current
    if site.store is None:
        return None
    try:
        if incident.closed:
            row = site.store.run_ended(incident.cluster, incident.suite, incident.closed)
        else:
            row = site.store.run(incident.last_run)
        return _stored(site, row) if row else None
    except SeatrialError as error:
        log.warning("history: %s", error)
        return None


def _since(site: AlertContext, result: RunResult) -> Difference | None:
    """Return the changes since the last good run, if its folder or the history is there."""
    try:
        row = (
            site.store.last_pass(result.cluster, result.suite, result.run_id)
            if site.store
            else None
        )
        before = _stored(site, row) if row else None
    except SeatrialError as error:
        log.warning("history: %s", error)
        return None
    return difference(before, result) if before else None


def _stored(site: AlertContext, row: "RunRow") -> RunResult | None:
    """Return a run of the history from its folder if it is still there, else from the history."""
    try:
        result: RunResult | None = load_result(Path(row.out))
    except SeatrialError as error:
        log.debug("%s", error)
        result = None
    if result is None or result.run_id != row.run_id:
        result = site.store.result(row.run_id) if site.store else None
    return result


def files_of(site: AlertContext, alert: Alert, current: RunResult | None) -> Files:
    """Return the curve and the report if a sink has not received the news of this run."""
    run = alert.result
    waiting = any(alert.incident.news(sink.name) for sink in site.sinks)
    if run is None or alert.over or not waiting:
        return Files()
    try:
        picture = curve_png(run, alert.since.before if alert.since else None)
    except Exception as error:
        log.warning("the curve could not be drawn: %s", classed(error))
        picture = None
    report = site.report if run is current else None
    return Files(
        picture, described(run), report.read_bytes() if report and report.is_file() else None
    )


@task(name="notify", cache_policy=NO_CACHE)
def notify_task(
    result: RunResult, cluster: Cluster, store: "Store | None", report: Path | None
) -> Notified:
    try:
        has_page = flow_run.id and not os.environ.get("SEATRIAL_TEMPORARY_SERVER")
        run_link = url_for("flow-run", obj_id=flow_run.id) if has_page else None
        notified = notify(result, cluster, store, settings_of(cluster), report, run_link)
    except Exception as error:  # whatever it is, it is not the cluster's
        log.debug("notify", exc_info=error)
        notified = Notified(
            f"no alert was sent: seatrial itself failed ({type(error).__name__})", failed=True
        )
    log.log(logging.WARNING if notified.failed else logging.INFO, "alerts: %s", notified.summary)
    return notified


@contextmanager
def _history(gone: str | None) -> "Iterator[Store | None]":
    """Open the history; None for a check that is gone, which may have the same cause."""
    try:
        store = open_store()
    except SeatrialError as error:
        if not gone:
            raise
        log.warning("history: %s; this alert cannot be kept up to date", error)
        yield None
        return
    with store:
        yield store


@task(name="watch", cache_policy=NO_CACHE)
def watch_task(cluster: Cluster, suite: str, max_age: timedelta, gone: str | None) -> Notified:
    """Run `watch`.

    Raises SeatrialError if a delivery failed, so that Prefect shows the task as failed.
    """
    with _history(gone) as store:
        notified = watch(cluster, suite, max_age, store, settings_of(cluster), gone)
    if notified.failed:
        raise SeatrialError.of("alerts-failed", words=notified.summary)
    log.info("alerts: %s", notified.summary)
    return notified
