"""The flow `reap`: remove what killed runs have left."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from prefect import flow
from prefect.states import Completed, Crashed
from pydantic import Field

from seatrial.config.cluster import load_cluster
from seatrial.flows.serving.signals import end_with_parent
from seatrial.flows.serving.ui import forward_logs
from seatrial.model.errors import SeatrialError
from seatrial.platforms import local_platform, platform_for
from seatrial.tasks.launch import reap as reap_platform
from seatrial.text import words

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

log = logging.getLogger("seatrial.reap")


@flow(name="seatrial-reap", flow_run_name="reap", validate_parameters=True)
def reap(clusters: list[Annotated[str, Field(min_length=1)]]) -> "State[int]":
    """Remove the leftovers of runs whose process is gone.

    Args:
        clusters: Paths of the cluster files to look at, as the machine that runs this sees them.
    """
    end_with_parent()
    with forward_logs():
        results = [_reap(file) for file in (None, *clusters)]
    problems = [problem for _, problem in results if problem]
    count = sum(removed for removed, _ in results)
    message = f"leftovers of {words.count(count, 'run')} removed"
    if problems:
        return Crashed(message=f"{message}; {'; '.join(problems)}")
    return Completed(message=message, data=count)


def _reap(file: str | None) -> tuple[int, str | None]:
    """Remove leftovers; return of how many runs, and the error.

    Without a cluster file, those of local nodes, which need none.
    """
    try:
        platform = platform_for(load_cluster(Path(file)), Path(file)) if file else local_platform()
        return len(reap_platform(platform)), None
    except Exception as error:  # the other clusters are looked at all the same
        log.error("%s", error, exc_info=None if isinstance(error, SeatrialError) else error)
        return 0, str(error)
