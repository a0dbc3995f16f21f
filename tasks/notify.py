"""Step `notify`: send alerts about what is new. Nothing that goes wrong here ever changes a run's verdict.

What is wrong with a cluster is an incident (seatrial/history/incident.py), kept in the history with what every sink has
heard of it: a failed delivery is repeated by the next run.
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

from seatrial.alerts.alert import Alert, overdue, silent
from seatrial.alerts.settings import HOW_TO, AlertSettings
from seatrial.config.cluster import Cluster
from seatrial.config.run import secrets_of
from seatrial.history import open_store
from seatrial.history.incident import Incident, Receipt, RunOutcome, advance, outcome_of
from seatrial.model.errors import SeatrialError
from seatrial.model.reason import Reason
from seatrial.model.result import RunResult, now
from seatrial.model.verdict import Verdict
from tasks.sinks import Delivery, Files, Sink, material
from tasks.sinks.configured import settings_of, sinks_of
from tasks.sinks.material import AlertContext

if TYPE_CHECKING:
    from seatrial.history.store import Store

log = logging.getLogger("seatrial.notify")


@dataclass(frozen=True, slots=True)
class Notified:
    """What happened, on one line; `failed` where somebody should have been told and was not."""

    summary: str
    failed: bool = False


def notify(
    result: RunResult,
    cluster: Cluster,
    store: "Store | None",
    settings: AlertSettings,
    report: Path | None = None,
    run_link: str | None = None,
) -> Notified:
    """Send every sink what is new in the run; `report` is attached where a sink takes files."""
    sinks, problem = sinks_of(settings, cluster)
    site = AlertContext(cluster, store, sinks, run_link, report)
    deliveries = _tell(site, result.suite, outcome_of(result), result)
    if not sinks:
        return Notified(f"not configured: {problem or HOW_TO}", failed=problem is not None)
    if deliveries:
        return _with(problem, _summed_up(deliveries))
    if cluster.notify.quiet == "digest" and result.verdict is Verdict.PASS:
        return _with(problem, _summed_up([(sink.name, _digested(sink, result)) for sink in sinks], again=""))
    return _with(problem, Notified("nothing new"))


def watch(
    cluster: Cluster,
    suite: str,
    max_age: timedelta,
    store: "Store | None",
    settings: AlertSettings,
    gone: str | None = None,
) -> Notified:
    """Alert that the check of a cluster is `gone`, which says how, or that its last run is older than `max_age`.

    One incident for as long as it lasts; the next run that is recorded ends it. Without a history (`store` None) one
    that is gone is told all the same. Raises SeatrialError when the history cannot be read.
    """
    try:
        last = store.last_run(cluster.name, suite) if store else None
    except SeatrialError as error:
        if not gone:
            raise
        log.warning("history: %s; what is told now cannot be kept up to date", error)
        store = last = None
    silence = silent(gone, last, now()) if gone else overdue(last, suite, max_age, now())
    if silence is None:
        return Notified("the last run is young enough")
    sinks, problem = sinks_of(settings, cluster)
    clean = replace(silence, reason=secrets_of(cluster).out_of_line(silence.reason))
    deliveries = _tell(AlertContext(cluster, store, sinks), suite, clean, None)
    if not sinks:
        return Notified(f"not configured: {problem or HOW_TO}", failed=True)
    return _with(problem, _summed_up(deliveries) if deliveries else Notified(f"told before: {silence.reason}"))


def _tell(site: AlertContext, suite: str, night: RunOutcome, result: RunResult | None) -> list[tuple[str, Delivery]]:
    """Update the incidents, send every sink what it has not received, and store the receipts."""
    deliveries = []
    for incident in _incidents(site, suite, night):
        receipts: dict[str, Receipt] = {}
        ready, files = None, Files()
        for sink in _listeners(site, incident, night):
            if ready is None:
                ready = material.alert(site, incident, result)
                files = material.files(site, ready, result)
            one = _heard(sink, ready, files)
            log.log(logging.WARNING if one.failed else logging.INFO, "%s: %s", sink.name, one.summary)
            deliveries.append((sink.name, one))
            receipts[sink.name] = one.receipt
        _keep(site, incident, receipts)
    return deliveries


def _incidents(site: AlertContext, suite: str, night: RunOutcome) -> list[Incident]:
    """The incidents after this run; without a history every bad run is one of its own."""
    names = [sink.name for sink in site.sinks]
    if site.store is not None:
        try:
            return site.store.incidents(site.cluster.name, suite, night, names)
        except SeatrialError as error:
            log.warning("history: %s; what is told now cannot be kept up to date", error)
    return advance([], site.cluster.name, suite, night, names)


def _listeners(site: AlertContext, incident: Incident, night: RunOutcome) -> list[Sink]:
    """The sinks with something new, or something to update."""
    of_tonight = incident.seen == night.at
    there = [sink for sink in site.sinks if not incident.closed or sink.name in incident.receipts]
    return [sink for sink in there if of_tonight or incident.news(sink.name)]


def _heard(sink: Sink, alert: Alert, files: Files) -> Delivery:
    receipt = alert.incident.receipts.get(sink.name, Receipt())
    return _guarded(sink, receipt, partial(sink.tell, alert, receipt, files))


def _digested(sink: Sink, result: RunResult) -> Delivery:
    return _guarded(sink, Receipt(), partial(sink.digest, result))


def _guarded(sink: Sink, receipt: Receipt, tell: Callable[[], Delivery]) -> Delivery:
    """Turn an error of a sink into a failed delivery, so that the other sinks are served."""
    try:
        return tell()
    except Exception as error:
        log.debug("%s", sink.name, exc_info=error)
        return Delivery(receipt, f"seatrial itself failed ({type(error).__name__})", failed=True)


def _keep(site: AlertContext, incident: Incident, receipts: Mapping[str, Receipt]) -> None:
    """Failed deliveries are not recorded: another run may have told the sink since."""
    changed = {sink: receipt for sink, receipt in receipts.items() if receipt != incident.receipts.get(sink)}
    if site.store is None or incident.id is None or not changed:
        return
    try:
        site.store.keep_receipts(incident.id, changed)
    except SeatrialError as error:
        log.warning("history: %s; the next run may tell it once more", error)


def _summed_up(deliveries: Sequence[tuple[str, Delivery]], again: str = "; the next run tells it") -> Notified:
    """One line of all deliveries, and what becomes of failed ones."""
    summary = "; ".join(
        f"{name}: {'FAILED ' if delivery.failed else ''}{delivery.summary}" for name, delivery in deliveries
    )
    failed = any(delivery.failed for _, delivery in deliveries)
    return Notified(f"{summary}{again}" if failed else summary, failed)


def _with(problem: str | None, notified: Notified) -> Notified:
    """The deliveries, and the receivers whose settings are wrong."""
    return Notified(f"{notified.summary}; not configured: {problem}", failed=True) if problem else notified


def _run_link() -> str | None:
    """Where Prefect's UI shows this run; a temporary server has none."""
    if os.environ.get("SEATRIAL_TEMPORARY_SERVER") or not flow_run.id:
        return None
    return url_for("flow-run", obj_id=flow_run.id)


@task(name="notify", cache_policy=NO_CACHE)
def notify_task(result: RunResult, cluster: Cluster, store: "Store | None", report: Path | None) -> Notified:
    try:
        notified = notify(result, cluster, store, settings_of(cluster), report, _run_link())
    except Exception as error:  # whatever it is, it is not the cluster's
        log.debug("notify", exc_info=error)
        notified = Notified(f"nobody was told: seatrial itself failed ({type(error).__name__})", failed=True)
    log.log(logging.WARNING if notified.failed else logging.INFO, "alerts: %s", notified.summary)
    return notified


@contextmanager
def _history(gone: str | None) -> "Iterator[Store | None]":
    """The history. Of a check that is gone people hear also without it, since it may have gone for the same cause."""
    try:
        store = open_store()
    except SeatrialError as error:
        if not gone:
            raise
        log.warning("history: %s; what is told now cannot be kept up to date", error)
        yield None
        return
    with store:
        yield store


@task(name="watch", cache_policy=NO_CACHE)
def watch_task(cluster: Cluster, suite: str, max_age: timedelta, gone: str | None = None) -> Notified:
    """Raises SeatrialError if no delivery worked, so that Prefect shows the watch itself as failed."""
    with _history(gone) as store:
        notified = watch(cluster, suite, max_age, store, settings_of(cluster), gone)
    if notified.failed:
        raise SeatrialError(Reason.of("alerts-failed", words=notified.summary))
    log.info("alerts: %s", notified.summary)
    return notified
