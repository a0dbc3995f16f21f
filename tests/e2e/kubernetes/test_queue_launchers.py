"""Every launcher in one of Kueue's queues: it waits as it should, is admitted with all its pods,
and passes.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Console, until
from tests.e2e.kubernetes.queues import Queues
from tests.e2e.kubernetes.runs import BRIEF, TRAINING, Going, check_of

LONG_TRAINING = {"steps": 2000, "batch_per_rank": 4}  # there is a middle to break


@pytest.fixture(scope="module")
def controllers(
    jobset: None, trainer: None, mpi_operator: None, training_operator: None, kueue: None
) -> None:
    """All of them, Kueue last: it follows what is there when it starts."""


@pytest.mark.parametrize(
    ("launcher", "pods", "pod_set"),
    [
        ("jobset", 2, "node"),
        ("pytorchjob", 2, "worker"),
        ("mpijob", 3, "worker"),
        ("trainjob", 2, "node"),
    ],
)
def test_run_of_each_launcher_waits_in_a_queue_and_then_passes(
    controllers: None,
    console: Console,
    trial: Callable[..., Path],
    least_rights: None,
    queues: Queues,
    launcher: str,
    pods: int,
    pod_set: str,
) -> None:
    queues.make(pods=pods)
    other = queues.occupy(pods=1)
    until(lambda: queues.admitted() == [other])
    run = Going(console, trial(launcher=launcher, queue="night"), training=TRAINING)
    run.until_logged(f"queued: 1 more pods needed in flavor {queues.flavor}")
    (name,) = (queues.workload_of("seatrial-"),)
    pod_sets = next(
        each["spec"]["podSets"] for each in queues.workloads() if each["metadata"]["name"] == name
    )
    assert sum(each["count"] for each in pod_sets) == pods
    assert pod_sets[-1]["name"] == pod_set
    queues.leave(other)
    status, document, terminal = run.end()
    assert (status, document["verdict"]) == (0, "pass"), terminal
    assert "all_reduce over 4 ranks" in check_of(document, "collectives")["reason"]
    assert check_of(document, "training")["verdict"] == "pass"


def test_a_jobset_that_is_preempted_blames_no_node(
    controllers: None, console: Console, trial: Callable[..., Path], queues: Queues
) -> None:
    queues.make()
    run = Going(console, trial(launcher="jobset", queue="night"), **BRIEF, training=LONG_TRAINING)
    run.until_logged("training ...")
    queues.occupy(priority=queues.priority("high", 1000))
    status, document, terminal = run.end()
    assert (status, document["verdict"]) == (3, "inconclusive"), terminal
    assert "Kueue evicted it: Preempted: " in document["reason"]
    assert not document["suspects"]
