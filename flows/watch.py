"""The flow `watch`: an alert for a check that died or did not run, by the history alone."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from prefect import flow
from pydantic import Field

from seatrial.config.cluster import load_cluster
from seatrial.tasks.notify import watch_task


@flow(name="seatrial-watch", validate_parameters=True)
def watch(
    cluster: str,
    suite: str = "nightly",
    max_age_hours: Annotated[float, Field(gt=0, le=24 * 366)] = 26,
    crashed: Annotated[str, Field(max_length=500)] | None = None,
) -> str:
    """Send an alert for a check that is overdue or has died; the next recorded run ends it.

    Args:
        cluster: Path of the cluster file.
        suite: The name of the suite that should have run.
        max_age_hours: How old the last run may be: the time between two runs, and a little.
        crashed: How the check died, where that is known; empty to look at the age alone.
    """
    gone = f"the check died: {crashed}" if crashed else None
    return watch_task(
        load_cluster(Path(cluster)), suite, timedelta(hours=max_age_hours), gone
    ).summary
