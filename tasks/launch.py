"""Steps `launch` and `teardown`: bring the nodes up, and take them down whatever happened in between."""

import logging

from prefect import task
from prefect.cache_policies import NO_CACHE

from seatrial.cluster import Cluster
from seatrial.platforms import Leftover, Platform, platform_for
from seatrial.run import Run
from seatrial.testbed import Testbed

log = logging.getLogger("seatrial.launch")


def launch(run: Run) -> Testbed:
    """The run's testbed, once its nodes answer. Raises LaunchError or MissingError naming the cause."""
    testbed = platform_for(run.cluster).launch(run)
    log.info("run %s: %d nodes, head %s (%s)", run.run_id, len(testbed.nodes), testbed.head.name, testbed.head.address)
    return testbed


def teardown(cluster: Cluster, run_id: str) -> None:
    """Remove everything of that run; safe to call again, and for a run that never came up."""
    platform_for(cluster).teardown(run_id)


def reap(platform: Platform) -> list[Leftover]:
    """Tear down what runs whose process is gone have left on `platform`; returns what it was."""
    left = platform.leftovers()
    for leftover in left:
        platform.teardown(leftover.run_id)
        log.warning("removed what run %s had left: %s", leftover.run_id, leftover.what)
    return left


@task(name="launch", cache_policy=NO_CACHE)
def launch_task(run: Run) -> Testbed:
    return launch(run)
