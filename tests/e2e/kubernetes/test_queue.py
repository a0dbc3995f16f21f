"""`seatrial run` in Kueue's queues: admitted, waiting, preempted, and interrupted.

After every test nothing of the run is left, its Workload included: the fixture `queues` looks.
"""

import signal
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.e2e.conftest import Console, until
from tests.e2e.kubernetes.cluster import Cluster
from tests.e2e.kubernetes.queues import Queues
from tests.e2e.kubernetes.runs import BRIEF, Going, in_the_middle_of_a_sweep
from tests.site import TLS

Trial = Callable[..., Path]
LEVEL = "cloud.google.com/gce-topology-"


def test_a_run_passes_in_a_queue_with_room(
    console: Console, trial: Trial, queues: Queues, own_cluster: Cluster
) -> None:
    queues.make(levels=(f"{LEVEL}block", f"{LEVEL}subblock"))
    file = trial(queue="night", topology={"required": f"{LEVEL}subblock"})
    until(lambda: console.run("doctor", file).status == 0)
    run = console.check(file, console.suite())
    assert run.status == 0, run.output
    assert "all_reduce over 4 ranks" in run.check("collectives")["reason"]


def test_run_waits_in_a_full_queue_says_so_once_and_then_passes(
    console: Console, trial: Trial, queues: Queues
) -> None:
    """The waiting line is on the terminal, in the run's log and in Prefect's."""
    queues.make()
    other = queues.occupy()
    until(lambda: queues.admitted() == [other])
    run = Going(console, trial(queue="night"), **BRIEF)
    waits = f"queued: 2 more pods needed in flavor {queues.flavor}"
    run.until_logged(waits)
    queues.leave(other)
    status, document, terminal = run.end()
    assert (status, document["verdict"]) == (0, "pass"), terminal
    for text in (run.log, terminal):
        assert text.index(waits) < text.index("2 of 2 nodes answer")
        assert text.count(waits) == 1
    until(lambda: waits in in_prefect(console))


def in_prefect(console: Console) -> set[str]:
    """What Prefect keeps of all runs' logs."""
    url = f"{console.environment['PREFECT_API_URL']}/logs/filter"
    answer = httpx.post(
        url,
        json={"limit": 200, "sort": "TIMESTAMP_DESC"},
        auth=console.auth,
        timeout=60,
        verify=TLS,
    )
    return {entry["message"] for entry in answer.json()}


def test_a_run_that_is_preempted_blames_no_node(
    console: Console, trial: Trial, queues: Queues
) -> None:
    queues.make()
    run = in_the_middle_of_a_sweep(console, trial(queue="night"))
    other = queues.occupy(priority=queues.priority("high", 1000))
    status, document, terminal = run.end()
    assert (status, document["verdict"]) == (3, "inconclusive"), terminal
    assert (
        "Kueue evicted it: Preempted: Preempted to accommodate a workload (UID: "
        in document["reason"]
    )
    assert "due to prioritization in the ClusterQueue" in document["reason"]
    assert not document["suspects"]
    until(lambda: queues.admitted() == [other])


def test_run_interrupted_while_queued_is_inconclusive_and_leaves_the_queue(
    console: Console, trial: Trial, queues: Queues
) -> None:
    queues.make()
    other = queues.occupy()
    until(lambda: queues.admitted() == [other])
    run = Going(console, trial(queue="night"), **BRIEF)
    run.until_logged("queued: 2 more pods needed")
    run.process.send_signal(signal.SIGINT)
    assert run.end()[1]["verdict"] == "inconclusive"
    until(lambda: len(queues.workloads()) == 1)
