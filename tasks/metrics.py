"""Step `metrics`: the run's verdict and headline numbers for Prometheus. A failure is a note, never a verdict."""

import logging
from datetime import datetime
from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.report.metrics import publish, target_of_environment

if TYPE_CHECKING:
    from seatrial.history.store import Store

log = logging.getLogger("seatrial.metrics")


def metrics(result: RunResult, store: "Store | None") -> str | None:
    """Publish where SEATRIAL_METRICS says; returns what went wrong, if anything."""
    try:
        target = target_of_environment()
        if target is None:
            return None
        log.info("metrics: %s", publish(result, _last_good(result, store), target))
    except Exception as error:  # whatever it is, it is not the cluster's
        problem = f"metrics could not be published: {error}"
        log.warning("%s", problem)
        return problem
    return None


def _last_good(result: RunResult, store: "Store | None") -> datetime | None:
    if result.verdict is Verdict.PASS:
        return result.finished
    row = store.last_pass(result.cluster, result.suite, result.run_id) if store else None
    return row.finished if row else None


@task(name="metrics", cache_policy=NO_CACHE)
def metrics_task(result: RunResult, store: "Store | None") -> str | None:
    return metrics(result, store)
