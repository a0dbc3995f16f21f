"""Following pods on their way up: what the watches bring is played back, and time passes as the
test says.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import LaunchError
from seatrial.model.reason import Reason
from seatrial.platforms.kubernetes import bringup, waiting
from seatrial.platforms.kubernetes.api import Api
from seatrial.platforms.kubernetes.bringup import BringUp, WatchEvent
from seatrial.platforms.kubernetes.launchers import LAUNCHERS
from seatrial.platforms.kubernetes.plan import plan
from tests.unit.kubernetes.golden import CLUSTERS

NAME = "seatrial-20260101-0000-abcde"
Step = WatchEvent | float  # what a watch brings, or seconds in which it brings nothing


class QuietApi:
    """No pod has anything to say."""

    def log_end(self, pod: str) -> str:
        return ""


class Played:
    """Stands where the watches do. `pace_s`: after which time a change comes that is waited for."""

    def __init__(self, steps: list[Step], clock: list[float], pace_s: float) -> None:
        self.steps, self.clock, self.pace_s, self.asked = steps, clock, pace_s, [dict[str, str]()]

    def __call__(self, api: Api) -> "Played":
        return self

    def __enter__(self) -> "Played":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def add(self, kind: Any, **selectors: str) -> None:
        self.asked.append({"kind": kind.kind, **selectors})

    def next(self, timeout_s: float) -> WatchEvent | None:
        step = self.steps.pop(0) if self.steps else 10.0
        if isinstance(step, float):
            self.clock[0] += min(step, timeout_s)
            if step > timeout_s:
                self.steps.insert(0, step - timeout_s)
            return None
        self.clock[0] += self.pace_s
        return step


Follow = Callable[..., tuple[list[dict[str, Any]], Played]]


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch) -> Follow:
    def run(
        *steps: Step, pace_s: float = 0.0, **platform: Any
    ) -> tuple[list[dict[str, Any]], Played]:
        clock = [0.0]
        played = Played(list(steps), clock, pace_s)
        monkeypatch.setattr(bringup, "Watches", played)
        monkeypatch.setattr("time.monotonic", lambda: clock[0])
        asked = {**CLUSTERS["job"], "platform": {**CLUSTERS["job"]["platform"], **platform}}
        planned = plan(
            Run(
                "20260101-0000-abcde",
                Cluster.model_validate(asked),
                load_suite("quick"),
                Path("out"),
            )
        )
        launcher = LAUNCHERS[planned.settings.launcher]
        parent = {"metadata": {"uid": "u"}}
        return BringUp(cast(Api, QuietApi()), planned, launcher, parent).wait(), played

    return run


def pod(index: int, *, node: str | None = "n", ready: bool = False, **more: Any) -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}], **more}
    return {
        "metadata": {"name": f"p-{index}"},
        "spec": {"nodeName": node} if node else {},
        "status": status,
    }


def listed(*pods: dict[str, Any]) -> WatchEvent:
    return WatchEvent("Pod", "LISTED", {"items": list(pods)})


def changed(body: dict[str, Any], change: str = "MODIFIED", kind: str = "Pod") -> WatchEvent:
    return WatchEvent(kind, change, body)


def complaint(name: str = NAME) -> WatchEvent:
    event = {
        "reason": "FailedCreate",
        "message": "exceeded quota: none",
        "involvedObject": {"name": name},
    }
    return WatchEvent("Event", "ADDED", event)


def test_bringup_ends_once_every_pod_is_ready(follow: Follow) -> None:
    pods, played = follow(
        listed(), changed(pod(0, ready=True)), changed(pod(1)), changed(pod(1, ready=True))
    )
    assert [each["metadata"]["name"] for each in pods] == ["p-0", "p-1"]
    # Watches, and no more calls
    assert [each["kind"] for each in played.asked[1:]] == ["Pod", "Job", "Event"]


@pytest.mark.parametrize(
    ("pace_s", "most", "least"), [(0.0, 4, 1), (0.01, 60, 40), (0.5, 1001, 999)]
)
def test_changes_in_quick_succession_are_checked_together(
    follow: Follow, monkeypatch: pytest.MonkeyPatch, pace_s: float, most: int, least: int
) -> None:
    """A check per change would cost the square of the nodes; no check while changes arrive would
    miss problems.
    """
    looks: list[int] = []
    look = waiting.problem

    def counted(
        pods: Collection[Any], since: dict[str, float], now: float
    ) -> tuple[str, Reason] | None:
        looks.append(len(pods))
        return look(pods, since, now)

    monkeypatch.setattr(waiting, "problem", counted)
    both = changed(pod(0, ready=True)), changed(pod(1, ready=True))
    pods, _ = follow(
        listed(), *[changed(pod(index % 2)) for index in range(998)], *both, pace_s=pace_s
    )
    assert len(pods) == 2
    assert least <= len(looks) <= most


def test_renewed_watch_does_not_restart_the_timeout_of_pods(follow: Follow) -> None:
    """A watch ends every few minutes. By then pods have a node, and the wait for sshd goes on."""
    both = (pod(0), pod(1))
    with pytest.raises(
        LaunchError, match=r"not up within 900 s \(platform.start_timeout_s\): 0 of 2 nodes answer"
    ):
        follow(listed(*both), 300.0, listed(*both), 300.0, listed(*both), 301.0, queue_timeout_s=5)


def test_wait_for_a_node_ends_after_queue_timeout(follow: Follow) -> None:
    with pytest.raises(
        LaunchError,
        match=r"not up within 5 s \(platform.queue_timeout_s\): 1 of 2 pods have a node",
    ):
        follow(listed(pod(0), pod(1, node=None)), 6.0, queue_timeout_s=5)


def test_pods_that_are_not_admitted_fail_the_launch_after_a_grace_time(follow: Follow) -> None:
    pods, _ = follow(
        listed(), complaint(), 5.0, changed(pod(0, ready=True)), changed(pod(1, ready=True))
    )
    assert len(pods) == 2
    for name in (NAME, f"{NAME}-node-0"):  # a Job's own, and that of a JobSet's Job
        with pytest.raises(LaunchError, match="its pods are not admitted: exceeded quota: none"):
            follow(listed(), complaint(name), 60.0)
    with pytest.raises(LaunchError, match="queue_timeout_s"):
        follow(listed(), complaint("somebody-elses"), 60.0, queue_timeout_s=20)


def test_admission_error_after_a_long_queue_gets_the_full_grace_time(follow: Follow) -> None:
    """A problem of the first pod may be as brief after ten minutes in a queue as at any time."""
    wait = of_kueue(("QuotaReserved", "False", "LocalQueue q is inactive"))
    up = listed(pod(0, ready=True), pod(1, ready=True))
    pods, _ = follow(wait, listed(), 600.0, ADMITTED, complaint(), 20.0, up, queue="night")
    assert len(pods) == 2
    with pytest.raises(LaunchError, match="its pods are not admitted"):
        follow(wait, listed(), 600.0, ADMITTED, complaint(), 31.0, up, queue="night")


@pytest.mark.parametrize(
    "steps",
    [
        (listed(), complaint(), 20.0, changed(pod(0)), 20.0),
        (listed(), complaint(), 20.0, listed(pod(0)), 20.0),
        (listed(pod(0)), complaint(), 40.0),  # by a renewed watch: an old one
    ],
    ids=["one comes", "one is listed", "one was listed before"],
)
def test_admission_error_is_over_once_a_pod_exists(follow: Follow, steps: Sequence[Step]) -> None:
    gone, up = changed(pod(0), "DELETED"), listed(pod(0, ready=True), pod(1, ready=True))
    assert len(follow(*steps, gone, 20.0, up)[0]) == 2


def test_admission_error_is_over_once_the_run_is_queued_again(follow: Follow) -> None:
    """Even if a renewed watch delivers the event once more."""
    up = listed(pod(0, ready=True), pod(1, ready=True))
    steps = (
        ADMITTED,
        listed(),
        complaint(),
        20.0,
        EVICTED,
        60.0,
        complaint(),
        60.0,
        ADMITTED,
        20.0,
        up,
    )
    assert len(follow(*steps, queue="night")[0]) == 2
    evicted = (
        ADMITTED,
        listed(pod(0)),
        complaint(),
        60.0,
        EVICTED,
        listed(),
        60.0,
        ADMITTED,
        20.0,
        up,
    )
    assert len(follow(*evicted, queue="night")[0]) == 2


def test_pod_that_ends_during_bringup_fails_the_launch(follow: Follow) -> None:
    ended = pod(
        0,
        containerStatuses=[
            {"name": "node", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
        ],
    )
    with pytest.raises(LaunchError, match="ended with status 0"):
        follow(listed(ended, pod(1)))


def test_image_pulled_on_a_retry_lets_the_bringup_succeed(follow: Follow) -> None:
    def pulls(reason: str) -> WatchEvent:
        state = {"waiting": {"reason": reason, "message": "429 Too Many Requests"}}
        return changed(pod(0, containerStatuses=[{"name": "node", "state": state}]))

    tries = (
        listed(pod(1, ready=True)),
        pulls("ErrImagePull"),
        30.0,
        pulls("ImagePullBackOff"),
        20.0,
    )
    assert len(follow(*tries, changed(pod(0, ready=True)))[0]) == 2
    again = (*tries, changed(pod(0)), 1.0, pulls("ErrImagePull"), 50.0)
    assert len(follow(*again, changed(pod(0, ready=True)))[0]) == 2
    with pytest.raises(
        LaunchError, match=r"pod p-0 on n: the image cannot be pulled \(ImagePullBackOff\): 429"
    ):
        follow(*tries, 11.0, changed(pod(0, ready=True)))


def test_deleted_job_ends_the_wait(follow: Follow) -> None:
    with pytest.raises(LaunchError, match=f"somebody deleted the Job {NAME} while it came up"):
        follow(listed(), changed({"kind": "Job", "status": {}}, "DELETED", "Job"))


def test_terminating_pods_do_not_count(follow: Follow) -> None:
    leaving = pod(0, ready=True)
    leaving["metadata"]["deletionTimestamp"] = "now"
    fresh = pod(2, ready=True)
    pods, _ = follow(listed(leaving, pod(1, ready=True)), changed(fresh))
    assert [each["metadata"]["name"] for each in pods] == ["p-1", "p-2"]


# Kueue may leave out the label
OWNED = {"name": "job-seatrial", "ownerReferences": [{"kind": "Job", "uid": "u"}]}
LABELLED = {"name": "job-seatrial", "labels": {"kueue.x-k8s.io/job-uid": "u"}}


def test_workload_of_the_run_is_distinguished_from_others_in_the_namespace(follow: Follow) -> None:
    gone = {"spec": {"active": False}, "status": {}}
    other = changed(
        {"metadata": {"name": "other", "ownerReferences": [{"uid": "v"}]}, **gone},
        "ADDED",
        "Workload",
    )
    up = listed(pod(0, ready=True), pod(1, ready=True))
    assert len(follow(other, up, queue="night")[0]) == 2
    for metadata in (OWNED, LABELLED):
        with pytest.raises(LaunchError, match="Kueue has deactivated it"):
            follow(changed({"metadata": metadata, **gone}, "ADDED", "Workload"), queue="night")


def test_workload_that_its_queue_can_never_admit_ends_the_wait(follow: Follow) -> None:
    message = "insufficient quota for nvidia.com/gpu in flavor a4, request > maximum capacity (8)"
    condition = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "Pending",
        "message": message,
    }
    workload = {"metadata": OWNED, "spec": {}, "status": {"conditions": [condition]}}
    with pytest.raises(LaunchError, match="will never be admitted: insufficient quota"):
        follow(listed(), changed(workload, "ADDED", "Workload"), queue="night")


def test_job_for_which_kueue_makes_no_workload_ends_the_wait(follow: Follow) -> None:
    with pytest.raises(LaunchError, match="Kueue made no Workload of the Job within 30 s"):
        follow(listed(), 31.0, queue="night")


def test_a_workload_that_kueue_makes_anew_is_waited_for(follow: Follow) -> None:
    gone = changed({"metadata": OWNED, "spec": {}, "status": {}}, "DELETED", "Workload")
    up = listed(pod(0, ready=True), pod(1, ready=True))
    assert len(follow(ADMITTED, 31.0, gone, 2.0, ADMITTED, up, queue="night")[0]) == 2


def of_kueue(*conditions: tuple[str, str, str]) -> WatchEvent:
    listed = [
        {"type": kind, "status": status, "reason": kind, "message": text}
        for kind, status, text in conditions
    ]
    return changed(
        {"metadata": OWNED, "spec": {}, "status": {"conditions": listed}}, "MODIFIED", "Workload"
    )


ADMITTED = of_kueue(("QuotaReserved", "True", ""), ("Admitted", "True", ""))
EVICTED = of_kueue(
    ("QuotaReserved", "False", "make room"),
    ("Admitted", "False", ""),
    ("Evicted", "True", "make room"),
)


def test_pods_that_kueue_takes_back_are_waited_for_anew(follow: Follow) -> None:
    """Neither is it their failure that they end, nor does the time that they had count against
    those that come.
    """
    leaving = [pod(i, containerStatuses=ended_container(143)) for i in (0, 1)]
    for each in leaving:
        each["metadata"]["deletionTimestamp"] = "now"
    up = (ADMITTED, listed(pod(0), pod(1)))
    again = (ADMITTED, listed(pod(2, ready=True), pod(3, ready=True)))
    pods, _ = follow(
        *up, 20.0, EVICTED, listed(*leaving), 20.0, *again, queue="night", start_timeout_s=30
    )
    assert [each["metadata"]["name"] for each in pods] == ["p-2", "p-3"]
    with pytest.raises(
        LaunchError,
        match=r"not up within 50 s \(platform.queue_timeout_s\): queued again after it was",
    ):
        follow(*up, 40.0, EVICTED, listed(*leaving), 20.0, queue="night", queue_timeout_s=50)


def ended_container(status: int) -> list[dict[str, Any]]:
    return [{"name": "node", "state": {"terminated": {"exitCode": status}}}]


def test_a_priority_that_kueue_does_not_know_ends_the_wait(follow: Follow) -> None:
    about = {"name": NAME}
    event = {
        "reason": "WorkloadPriorityClassNotFound",
        "message": 'WorkloadPriorityClass "x" not found',
    }
    watch_event = changed({**event, "involvedObject": about}, "ADDED", "Event")
    with pytest.raises(
        LaunchError, match=r'^Kueue does not queue it: WorkloadPriorityClass "x" not found'
    ):
        follow(listed(), watch_event, 31.0, queue="night", queue_priority="x")
    # Release 0.19 sends no event
    with pytest.raises(LaunchError, match="is there a WorkloadPriorityClass x"):
        follow(listed(), 31.0, queue="night", queue_priority="x")
