"""Why pods are not there yet: the words for what the API server shows."""

from typing import Any

import pytest

from seatrial.model.reason import uncoded
from seatrial.platforms.kubernetes.kueue import Queued
from seatrial.platforms.kubernetes.waiting import (
    Complaint,
    SeenObjects,
    describe_progress,
    placed,
    problem,
    problem_starts,
    ready,
)


def pod(name: str = "p-0", node: str | None = "n-0", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": node} if node else {},
        "status": status,
    }


def condition(kind: str, status: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "message": message}


READY = pod(conditions=[condition("Ready", "True")])
NO_GPUS = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
UNSCHEDULABLE = pod("p-1", None, conditions=[condition("PodScheduled", "False", NO_GPUS)])


def waits(reason: str, message: str = "") -> dict[str, Any]:
    return pod(
        containerStatuses=[
            {"name": "node", "state": {"waiting": {"reason": reason, "message": message}}}
        ]
    )


def test_progress_counts_placed_and_ready_pods() -> None:
    assert describe_progress([], 2).sentence == "0 of 2 pods have a node"
    assert (
        describe_progress([UNSCHEDULABLE, pod()], 2).sentence
        == f"1 of 2 pods have a node; waiting: {NO_GPUS}"
    )
    assert (
        describe_progress([READY, pod("p-1")], 2).sentence
        == "1 of 2 nodes answer; waiting: sshd does not answer yet"
    )
    assert (
        describe_progress([waits("ContainerCreating")], 1).sentence
        == "0 of 1 nodes answer; waiting: ContainerCreating"
    )
    assert describe_progress([READY], 1).sentence == "1 of 1 nodes answer"
    assert len(ready([READY, pod(), UNSCHEDULABLE])) == 1
    assert len(placed([READY, pod(), UNSCHEDULABLE])) == 2


def test_progress_of_a_suspended_run_is_its_queue_reason() -> None:
    assert describe_progress([], 2, Queued(uncoded("queued: 8 more"))).sentence == "queued: 8 more"
    assert (
        describe_progress([pod()], 2, Queued(uncoded("queued: 8 more"))).sentence
        == "1 of 2 pods have a node"
    )


def ended_pod(status: int, reason: str) -> dict[str, Any]:
    state = {"terminated": {"exitCode": status, "reason": reason}}
    return pod(containerStatuses=[{"name": "node", "state": state}])


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("ErrImageNeverPull", "image-pull"),
        ("CreateContainerConfigError", "container-start"),
        ("CrashLoopBackOff", "container-start"),
    ],
)
def test_a_pod_and_the_wait_for_it_keep_the_code_of_the_kubelets_reason(
    reason: str, code: str
) -> None:
    pod_problem = problem([READY, waits(reason)], {}, 0.0)
    assert pod_problem
    assert pod_problem[1].code == code


def test_progress_has_the_code_of_what_is_waited_for() -> None:
    assert describe_progress([READY, waits("ImagePullBackOff", "busy")], 2).code == "image-pull"
    assert describe_progress([READY], 2).code == "pods-unscheduled"


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (
            waits(
                "ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: "x": not found\nmore'
            ),
            (
                "pod p-0 on n-0: the image cannot be pulled (ImagePullBackOff): Back-off "
                'pulling image "x": ErrImagePull:'
            ),
        ),
        (waits("ErrImageNeverPull"), "the image is not on the node"),
        (waits("CreateContainerConfigError", 'secret "x" not found'), 'secret "x" not found'),
        (
            ended_pod(2, "Error"),
            "pod p-0 on n-0: container node ended with status 2",
        ),
        (
            pod(
                containerStatuses=[
                    {
                        "name": "node",
                        "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                    }
                ]
            ),
            "ended with status 137: OOMKilled",
        ),
        (
            pod(
                initContainerStatuses=[{"name": "plugin", "state": {"terminated": {"exitCode": 1}}}]
            ),
            "container plugin ended with status 1",
        ),
        (
            pod(phase="Failed", reason="Evicted", message="low on disk"),
            "pod p-0 on n-0: Evicted: low on disk",
        ),
    ],
)
def test_a_permanent_problem_is_reported_at_once(broken: dict[str, Any], why: str) -> None:
    pod_problem = problem([READY, broken], {}, 0.0)
    assert pod_problem
    name, why_never = pod_problem
    assert name == "p-0"
    assert why in why_never.sentence


@pytest.mark.parametrize(
    "patient",
    [
        READY,
        UNSCHEDULABLE,
        waits("ContainerCreating"),
        waits("ErrImagePull"),
        waits("ImagePullBackOff", 'Back-off pulling image "invalid/forbidden:not found"'),
        waits(
            "ErrImagePull",
            "failed to pull: unexpected status: 429 Too Many Requests: denied: Quota exceeded",
        ),
        waits("ErrImagePull", "toomanyrequests: pull rate limit, unauthorized"),
        waits("CreateContainerError", "context deadline exceeded"),
        waits("RunContainerError", "context deadline exceeded"),
        waits("ImageInspectError", "connection refused"),
        pod(initContainerStatuses=[{"name": "plugin", "state": {"terminated": {"exitCode": 0}}}]),
    ],
)
def test_a_temporary_problem_is_waited_for(patient: dict[str, Any]) -> None:
    assert problem([patient], problem_starts([patient], {}, 0.0), 0.0) is None


@pytest.mark.parametrize(
    "reason", ["ErrImagePull", "ImagePullBackOff", "CreateContainerError", "RunContainerError"]
)
@pytest.mark.parametrize(
    "final",
    [
        "failed to resolve reference: x: not found",
        "manifest unknown",
        "401 Unauthorized",
        "pull access denied, the repository does not exist",
        "unexpected status: 403 Forbidden",
        "invalid reference format",
        "no match for platform in manifest",
    ],
)
def test_permanent_image_errors_are_not_waited_for(reason: str, final: str) -> None:
    assert problem([waits(reason, final)], {}, 0.0)


def test_progress_names_a_problem_before_ordinary_waits() -> None:
    creating = [
        pod(f"c-{n}", containerStatuses=[{"state": {"waiting": {"reason": "Creating"}}}])
        for n in (0, 1)
    ]
    sentence = "0 of 3 nodes answer; waiting: the image cannot be pulled (ErrImagePull): timeout"
    assert describe_progress([*creating, waits("ErrImagePull", "timeout")], 3).sentence == sentence


@pytest.mark.parametrize(
    "reason",
    [
        "FailedCreate",
        "FailedCreatePod",
        "JobCreationFailed",
        "MPIJobFailed",
        "TrainJobResourcesCreationFailed",
    ],
)
def test_creation_failure_events_are_reported_as_not_admitted(reason: str) -> None:
    quiet, seen = SeenObjects(), SeenObjects()
    quiet.take_event({"reason": "SuccessfulCreate", "message": "Created pod: x"}, 1.0)
    assert quiet.complaint is None
    seen.take_event({"reason": reason, "message": 'pods "x" is forbidden: exceeded quota'}, 2.0)
    assert seen.complaint == Complaint(
        'its pods are not admitted: pods "x" is forbidden: exceeded quota', 2.0
    )
    seen.take_event({"reason": reason, "message": "no"}, 3.0)
    # It has not been admitted since then
    assert seen.complaint == Complaint("its pods are not admitted: no", 2.0)


def test_progress_names_the_volume_that_cannot_be_mounted() -> None:
    seen = SeenObjects()
    why = (
        'MountVolume.SetUp failed for volume "volume-0" : rpc error: desc = storage: bucket '
        "doesn't exist"
    )
    seen.take_event(
        {"reason": "FailedMount", "message": f"{why}\n", "involvedObject": {"name": "p-0"}}, 1.0
    )
    assert (
        describe_progress([waits("ContainerCreating")], 1, unmounted=seen.unmounted).sentence
        == f"0 of 1 nodes answer; waiting: {why}"
    )
    # It has been mounted since
    assert describe_progress([READY], 1, unmounted=seen.unmounted).sentence == "1 of 1 nodes answer"
    running = pod(containerStatuses=[{"name": "node", "state": {"running": {}}}])
    assert (
        "sshd does not answer yet"
        in describe_progress([running], 1, unmounted=seen.unmounted).sentence
    )
    assert seen.complaint is None
