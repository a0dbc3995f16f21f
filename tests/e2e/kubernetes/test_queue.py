"""`seatrial run` in Kueue's queues: admitted, waiting, preempted, and refused.

After every test nothing of the run is left, its Workload included: the fixture `queues` looks.
"""

import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import yaml

from tests.e2e.conftest import Console, until
from tests.e2e.kubernetes.cluster import Cluster
from tests.e2e.kubernetes.queues import Queues
from tests.e2e.kubernetes.runs import BRIEF, Going, in_the_middle_of_a_sweep
from tests.site import TLS

Trial = Callable[..., Path]
LEVEL = "cloud.google.com/gce-topology-"


def test_a_queue_with_room(console: Console, trial: Trial, queues: Queues, own_cluster: Cluster) -> None:
    queues.make(levels=(f"{LEVEL}block", f"{LEVEL}subblock"))
    file = trial(queue="night", topology={"required": f"{LEVEL}subblock"})
    until(lambda: console.run("doctor", file).status == 0)
    run = console.check(file, console.suite())
    assert run.status == 0, run.output
    assert "all_reduce over 4 ranks" in run.check("collectives")["reason"]


def test_a_queue_that_is_full_for_a_while(console: Console, trial: Trial, queues: Queues) -> None:
    """The waiting line is on the terminal, in the run's log and in Prefect's."""
    queues.make()
    other = queues.occupy()
    until(lambda: queues.admitted() == [other])
    run = Going(console, trial(queue="night"), **BRIEF)
    waits = f"queued: 2 more pods needed in flavor {queues.flavor}"
    run.until_said(waits)
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
    answer = httpx.post(url, json={"limit": 200, "sort": "TIMESTAMP_DESC"}, auth=console.auth, timeout=60, verify=TLS)
    return {entry["message"] for entry in answer.json()}


def test_a_run_that_is_preempted_blames_no_node(console: Console, trial: Trial, queues: Queues) -> None:
    queues.make()
    run = in_the_middle_of_a_sweep(console, trial(queue="night"))
    other = queues.occupy(priority=queues.priority("high", 1000))
    status, document, terminal = run.end()
    assert (status, document["verdict"]) == (3, "inconclusive"), terminal
    assert "Kueue evicted it: Preempted: Preempted to accommodate a workload (UID: " in document["reason"]
    assert "due to prioritization in the ClusterQueue" in document["reason"]
    assert not document["suspects"]
    until(lambda: queues.admitted() == [other])


@pytest.mark.parametrize("setting", ["queue_priority", "priority_class"])
def test_a_run_of_higher_priority_goes_first(console: Console, trial: Trial, queues: Queues, setting: str) -> None:
    """By a WorkloadPriorityClass of Kueue's, or by the PriorityClass of its pods."""
    queues.make()
    other = queues.occupy()
    until(lambda: queues.admitted() == [other])
    make = queues.priority if setting == "queue_priority" else queues.pod_priority
    run = Going(console, trial(queue="night", **{setting: make("high", 1000)}), **BRIEF)
    run.until_said("2 of 2 nodes answer")
    assert queues.admitted() != [other]
    status, document, terminal = run.end()
    assert (status, document["verdict"]) == (0, "pass"), terminal
    until(lambda: queues.admitted() == [other])


def test_a_run_that_is_evicted_before_it_is_up_waits_again(
    console: Console, trial: Trial, queues: Queues, cluster: Cluster, namespace: str
) -> None:
    """One node is of the flavor at first, so that one pod runs and the other waits for its node."""
    label = f"seatrial-test/{namespace[:63].strip('-')}"
    queues.make(labels={label: "yes"})
    first, second = cluster.nodes[:2]
    try:
        cluster.kubectl("label", "node", first, f"{label}=yes")
        run = Going(console, trial(queue="night", start_timeout_s=60), **BRIEF)
        run.until_said("1 of 2 pods have a node")
        until(lambda: any(pod["status"]["phase"] == "Running" for pod in cluster.get("pods", "-n", namespace)["items"]))
        other = queues.occupy(priority=queues.priority("high", 1000))
        run.until_said("queued again after it was evicted: Preempted: Preempted to accommodate a workload")
        run.until_said(f"queued: 2 more pods needed in flavor {queues.flavor}")
        cluster.kubectl("label", "node", second, f"{label}=yes")
        queues.leave(other)
        status, document, terminal = run.end()
    finally:
        cluster.kubectl("label", "node", first, second, f"{label}-")
    assert (status, document["verdict"]) == (0, "pass"), terminal


def test_a_run_that_is_interrupted_while_it_waits(console: Console, trial: Trial, queues: Queues) -> None:
    queues.make()
    other = queues.occupy()
    until(lambda: queues.admitted() == [other])
    run = Going(console, trial(queue="night"), **BRIEF)
    run.until_said("queued: 2 more pods needed")
    run.process.send_signal(signal.SIGINT)
    assert run.end()[1]["verdict"] == "inconclusive"
    until(lambda: len(queues.workloads()) == 1)


def reason(console: Console, file: Path) -> str:
    """Of a run that does not come up."""
    run = console.check(file, console.suite(**BRIEF))
    assert (run.status, run.document["verdict"]) == (3, "inconclusive"), run.output
    assert run.out.splitlines()[-1] == f"inconclusive: {run.document['reason']}"
    return str(run.document["reason"])


def with_gpus(file: Path) -> Path:
    """The same cluster file for nodes with eight GPUs each; whoever gets as far as measuring has no GPU there."""
    asked = yaml.safe_load(file.read_text())
    del asked["slots_per_node"]
    file.write_text(yaml.safe_dump({**asked, "gpus_per_node": 8, "hardware": {"name": "paper", "gpus_per_node": 8}}))
    return file


def test_a_queue_that_is_not_there(console: Console, trial: Trial, queues: Queues, namespace: str) -> None:
    file = trial(queue="night")
    assert reason(console, file) == "launch: will never be admitted: LocalQueue night doesn't exist"
    queues.make("day")
    doctor = console.run("doctor", file)
    assert doctor.status == 1
    assert f"queue night: no such LocalQueue in namespace {namespace}; there are: day" in doctor.out


def test_a_queue_that_is_too_small(console: Console, trial: Trial, queues: Queues) -> None:
    queues.make(quota={"nvidia.com/gpu": 8})
    sums = "previously considered podsets requests (0) + current podset request (16) > maximum capacity (8)"
    lack = f"insufficient quota for nvidia.com/gpu in flavor {queues.flavor}, {sums}"
    message = f"launch: will never be admitted: couldn't assign flavors to pod set main: {lack}"
    assert reason(console, with_gpus(trial(queue="night"))) == message
