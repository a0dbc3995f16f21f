"""Artifacts of a run in Prefect's UI: its progress, its report, its picture.

The tables are made by the step `record`. Nothing here can end a run or hold a measurement up: progress is sent by a
thread of its own, and what Prefect does not take is left out.
"""

import contextvars
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from prefect.artifacts import (
    create_image_artifact,
    create_link_artifact,
    create_progress_artifact,
    update_progress_artifact,
)

from seatrial.checks.contract import PlannedNodes
from seatrial.checks.suites import nodes_of
from seatrial.checks.table import CHECKS
from seatrial.config.run import PICTURE, Run, Suite, secrets_of
from seatrial.model.result import RunResult
from seatrial.report.paper import curve_png
from seatrial.system.atomic import write_atomic
from seatrial.text.markdown import escape
from seatrial.text.redact import Secrets

log = logging.getLogger("seatrial.artifacts")

RUNS_URL = "SEATRIAL_RUNS_URL"  # where a browser finds the folder `runs`
_EVERY_S = 2.0
_STEPS = ("image", "launch", *(kind.name for kind in CHECKS), "compare", "collect", "teardown", "record")


def share(suite: Suite, step: str, units: int, nodes: PlannedNodes) -> float:
    """Return how much of a run on `nodes` is done, in percent: steps count alike, a check by its `units`."""
    if step not in _STEPS:
        return 0.0
    kind = next((kind for kind in CHECKS if kind.name == step), None)
    section = suite.section(kind.section) if kind else None
    within = units / kind.units(section, nodes) if kind and section else 0.0
    return 100 * (_STEPS.index(step) + min(within, 1.0)) / len(_STEPS)


class _Watcher(logging.Handler):
    """Follows the log of a run; keeps its progress and its newest line, which Prefect shows as Markdown."""

    def __init__(self, suite: Suite, nodes: PlannedNodes, secrets: Secrets) -> None:
        super().__init__(logging.INFO)
        self._secrets = secrets
        self._suite, self._nodes = suite, nodes
        self._step, self._units = "", 0
        self.now: tuple[float, str] = (0.0, "")

    def emit(self, record: logging.LogRecord) -> None:
        step = getattr(record, "step", None)
        if step in _STEPS and not hasattr(record, "seconds"):
            self._step, self._units = step, 0
        self._units += getattr(record, "units", 0)
        message = self._secrets.out_of_line(record.getMessage())
        self.now = share(self._suite, self._step, self._units, self._nodes), escape(f"{self._step}: {message}"[:300])


@contextmanager
def progress(run: Run) -> Iterator[None]:
    """Show the run's progress in Prefect during the block."""
    try:
        shown = create_progress_artifact(0.0, key=f"progress-{run.cluster.name}", description=run.run_id)
    except Exception as error:
        log.debug("no progress in Prefect: %s", error)
        yield
        return
    assert isinstance(shown, UUID)
    watcher = _Watcher(run.suite, nodes_of(run.cluster), secrets_of(run.cluster))
    over = threading.Event()
    logger = logging.getLogger("seatrial")
    logger.addHandler(watcher)
    sender = threading.Thread(
        target=contextvars.copy_context().run, args=(_send, shown, watcher, over), name="progress", daemon=True
    )
    sender.start()
    try:
        yield
        watcher.now = (100.0, f"{run.run_id}: done")
    finally:
        logger.removeHandler(watcher)
        over.set()
        sender.join(5)


def _send(artifact: UUID, watcher: _Watcher, over: threading.Event) -> None:
    """Send the newest state every two seconds, and the last one."""
    sent, ends = None, False
    while not ends:
        ends = over.wait(_EVERY_S)
        if (now := watcher.now) != sent:
            try:
                update_progress_artifact(artifact, progress=now[0], description=now[1])
                sent = now
            except Exception as error:
                log.debug("progress: %s", error)


def show_files(run: Run, written: Mapping[str, Path], result: RunResult) -> None:
    """Link the report and show the picture, if a browser can reach the run's folder."""
    base = os.environ.get(RUNS_URL)
    if not base or run.out != Path("runs").absolute() / run.run_id:
        return
    where = f"{base.rstrip('/')}/{run.run_id}"
    try:
        if "report.html" in written:
            create_link_artifact(f"{where}/report.html", link_text="report", key=f"report-{run.cluster.name}")
        if picture := curve_png(result):
            write_atomic(run.out / PICTURE, picture)
            create_image_artifact(f"{where}/{PICTURE}", key=f"busbw-{run.cluster.name}", description=run.run_id)
    except Exception as error:
        log.warning("Prefect shows no link to the report: %s", error)
