"""What is said of a run that Kueue does not admit: of queues that are not there, too small, full or stopped.

After every test nothing of the run is left, its Workload included: the fixture `queues` looks.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import Console, until
from tests.e2e.kubernetes.cluster import Cluster
from tests.e2e.kubernetes.queues import Queues
from tests.e2e.kubernetes.runs import BRIEF

Trial = Callable[..., Path]
LEVEL = "cloud.google.com/gce-topology-"


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


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        ({"required": None}, "topology: needs exactly one of required: LEVEL, preferred: LEVEL, unconstrained: true"),
        ({"required": ""}, "platform.kubernetes.topology.required: '' is no label key"),
    ],
)
def test_a_topology_without_a_level_is_bad_input(
    console: Console, trial: Trial, topology: dict[str, str | None], message: str
) -> None:
    run = console.run("run", trial(queue="night", topology=topology))
    assert run.status == 2
    (line,) = run.err.splitlines()
    assert message in line


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


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        (
            {"preferred": "rack"},
            'launch: will never be admitted: {set}Flavor "{flavor}" does not contain the requested level',
        ),
        (
            {"required": "example.com/hall"},
            "launch: not up within 15 s (platform.queue_timeout_s): queued: {set}"
            "no topology domains at level: example.com/hall",
        ),
        (
            {"required": f"{LEVEL}host"},
            "launch: not up within 15 s (platform.queue_timeout_s): queued: {set}"
            'topology "{topology}" allows to fit only 1 out of 2 pod(s)',
        ),
    ],
    ids=["no-level", "no-domain", "too-small"],
)
def test_a_topology_that_has_no_place(
    console: Console, trial: Trial, queues: Queues, own_cluster: Cluster, topology: dict[str, str], message: str
) -> None:
    queues.make(quota={"nvidia.com/gpu": 16}, levels=("example.com/hall", f"{LEVEL}block", f"{LEVEL}host"))
    message = message.replace("{set}", "couldn't assign flavors to pod set main: ")
    message = message.replace("{flavor}", queues.flavor).replace("{topology}", queues.namespace)
    assert reason(console, with_gpus(trial(queue="night", topology=topology, queue_timeout_s=15))) == message


def test_a_queue_that_stays_full(console: Console, trial: Trial, queues: Queues) -> None:
    queues.make(quota={"pods": 3})
    other = queues.occupy()
    until(lambda: queues.admitted() == [other])
    message = f"queued: 1 more pods needed in flavor {queues.flavor}"
    file = trial(queue="night", queue_timeout_s=15)
    assert reason(console, file) == f"launch: not up within 15 s (platform.queue_timeout_s): {message}"


@pytest.mark.parametrize(
    ("stopped", "of_cluster", "message"),
    [
        ("localqueue", {}, "is not active (Stopped): LocalQueue is stopped"),
        (
            None,
            {"stopPolicy": "Hold"},
            "is not active (ClusterQueueIsInactive): Can't submit new workloads to clusterQueue",
        ),
    ],
)
def test_a_queue_that_is_stopped(
    console: Console, trial: Trial, queues: Queues, stopped: str | None, of_cluster: dict[str, Any], message: str
) -> None:
    queues.make(**of_cluster)
    kind, name = ("LocalQueue", "night") if stopped else ("ClusterQueue", queues.namespace)
    if stopped:
        queues.patch(stopped, name, {"spec": {"stopPolicy": "Hold"}})
    file = trial(queue="night", queue_timeout_s=15)
    until(lambda: f"queue night: {message}" in console.run("doctor", file).out)
    message = f"launch: not up within 15 s (platform.queue_timeout_s): queued: {kind} {name} is inactive"
    assert reason(console, file) == message
