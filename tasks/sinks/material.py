"""The contents of an alert: the run that shows it, the last good run, the curve, the report.

Results and reports have no secrets: they were taken out when the run was put together (seatrial/runs/run_state.py).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.alerts.alert import Alert, report_address
from seatrial.config.cluster import Cluster
from seatrial.history.incident import Incident
from seatrial.model.errors import SeatrialError
from seatrial.model.result import RunResult
from seatrial.report.paper import curve_png, described
from seatrial.runs.difference import Difference, difference
from seatrial.runs.load import load_result
from tasks.sinks import Files, Sink

if TYPE_CHECKING:
    from seatrial.history import RunRow
    from seatrial.history.store import Store

log = logging.getLogger("seatrial.notify")


@dataclass(frozen=True, slots=True)
class AlertContext:
    """Everything an alert needs besides the incident and the run."""

    cluster: Cluster
    store: "Store | None"
    sinks: Sequence[Sink]
    run_link: str | None = None
    report: Path | None = None


def alert(site: AlertContext, incident: Incident, tonight: RunResult | None) -> Alert:
    """The incident with the run that shows it, or that ended it."""
    shown = _shown(site, incident, tonight)
    link = site.run_link if shown is tonight else None
    path = str(site.report) if site.report and shown is tonight else None
    upload = site.cluster.upload
    address = report_address(site.cluster.notify, shown.run_id, incident.cluster, upload, path) if shown else None
    return Alert(incident, shown, _since(site, shown) if shown and not incident.closed else None, link, address)


def _shown(site: AlertContext, incident: Incident, tonight: RunResult | None) -> RunResult | None:
    """An earlier run where tonight's is about something else; none for a check that did not run."""
    if incident.kind == "silent" and not incident.closed:
        return None
    if tonight and (tonight.finished == incident.closed if incident.closed else tonight.run_id == incident.last_run):
        return tonight
    return _earlier(site, incident)


def _since(site: AlertContext, result: RunResult) -> Difference | None:
    """What changed since the last good run, as far as its folder or the history is there."""
    try:
        row = site.store.last_pass(result.cluster, result.suite, result.run_id) if site.store else None
        before = _result(site, row) if row else None
    except SeatrialError as error:
        log.warning("history: %s", error)
        return None
    return difference(before, result) if before else None


def _earlier(site: AlertContext, incident: Incident) -> RunResult | None:
    if site.store is None:
        return None
    try:
        if incident.closed:
            row = site.store.run_ended(incident.cluster, incident.suite, incident.closed)
        else:
            row = site.store.run(incident.last_run)
        return _result(site, row) if row else None
    except SeatrialError as error:
        log.warning("history: %s", error)
        return None


def _result(site: AlertContext, row: "RunRow") -> RunResult | None:
    """A run of the history: as its folder has it where that is still there, else as far as the history keeps it."""
    try:
        result: RunResult | None = load_result(Path(row.out))
    except SeatrialError as error:
        log.debug("%s", error)
        result = None
    if result is None or result.run_id != row.run_id:
        result = site.store.result(row.run_id) if site.store else None
    return result


def files(site: AlertContext, alert: Alert, tonight: RunResult | None) -> Files:
    """The curve and the report, if a sink has not been sent the news of this run yet."""
    run, waiting = alert.result, any(alert.incident.news(sink.name) for sink in site.sinks)
    if run is None or alert.over or not waiting:
        return Files()
    try:
        picture = curve_png(run, alert.since.before if alert.since else None)
    except Exception as error:
        log.warning("the curve could not be drawn: %s: %s", type(error).__name__, error)
        picture = None
    return Files(picture, described(run), _report(site) if run is tonight else None)


def _report(site: AlertContext) -> bytes | None:
    return site.report.read_bytes() if site.report and site.report.is_file() else None
