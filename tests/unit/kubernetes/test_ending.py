"""Which nodes that went are not to blame, and pods that do not go."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from seatrial.model.errors import LaunchError, MissingError, NodesError
from seatrial.platforms.kubernetes import ending
from seatrial.platforms.kubernetes.api import NODE, Api
from seatrial.platforms.kubernetes.ending import _blameless_reason, _workload, blameless_reason
from seatrial.platforms.kubernetes.launchers import LAUNCHERS, failed
from seatrial.platforms.kubernetes.plan import Kind, KubernetesPlan

JOB = {"kind": "Job", "status": {}}
POD: dict[str, Any] = {"metadata": {"name": "p"}, "status": {}}
EVICTED = {
    "status": {
        "conditions": [
            {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "room"}
        ]
    }
}


def with_condition(kind: str, reason: str, **metadata: str) -> dict[str, Any]:
    condition = {"type": kind, "status": "True", "reason": reason, "message": "so it is"}
    return {"metadata": {"name": "p", **metadata}, "status": {"conditions": [condition]}}


@pytest.mark.parametrize(
    ("pod", "parent", "workload", "reason"),
    [
        (None, JOB, None, "pod p was deleted while the run used it"),
        (
            None,
            None,
            None,
            "pod p was deleted while the run used it, with what the run had submitted",
        ),
        (
            {"metadata": {"deletionTimestamp": "now"}},
            JOB,
            None,
            "pod p was deleted while the run used it",
        ),
        (
            with_condition("DisruptionTarget", "EvictionByEvictionAPI"),
            JOB,
            None,
            "EvictionByEvictionAPI: so it is",
        ),
        (
            None,
            with_condition("Failed", "DeadlineExceeded"),
            None,
            "over its time: DeadlineExceeded: so it is",
        ),
        (None, JOB, EVICTED, "Kueue evicted it: Preempted: room"),
    ],
)
def test_pod_taken_away_by_the_cluster_is_excused(
    pod: Any, parent: Any, workload: Any, reason: str
) -> None:
    assert reason in str(_blameless_reason(pod, "p", parent, workload, node_is_well=True))


@pytest.mark.parametrize(
    ("pod", "workload", "well"),
    [
        (POD, None, True),
        (None, None, False),
        (POD, None, False),
        # As of a node that is silent
        (with_condition("DisruptionTarget", "DeletionByTaintManager"), None, False),
        (None, EVICTED, False),
    ],
)
def test_pod_that_ended_by_itself_is_blamed(pod: Any, workload: Any, well: bool) -> None:
    assert _blameless_reason(pod, "p", JOB, workload, node_is_well=well) is None


@pytest.mark.parametrize(
    "its",
    [{"ownerReferences": [{"uid": "u"}]}, {"labels": {"kueue.x-k8s.io/job-uid": "u"}}],
    ids=["owned", "labelled"],
)
def test_the_workload_of_a_run_is_found(its: dict[str, Any]) -> None:
    there = [{"metadata": {"ownerReferences": [{"uid": "v"}]}}, {"metadata": its}]
    api = cast(Api, SimpleNamespace(list=lambda kind: there))
    queued = cast(KubernetesPlan, SimpleNamespace(settings=SimpleNamespace(queue="night")))
    assert _workload(api, queued, {"metadata": {"uid": "u"}}) == there[1]
    assert _workload(api, queued, {"metadata": {"uid": "w"}}) is None


def failed_pod(name: str, finished: str, **metadata: str) -> dict[str, Any]:
    state = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": finished}}
    return {
        "metadata": {"name": name, **metadata},
        "status": {"phase": "Failed", "containerStatuses": [{"name": "node", "state": state}]},
    }


FAILED_JOB = {"kind": "Job", **with_condition("Failed", "BackoffLimitExceeded")}


def test_pod_deleted_after_another_failed_names_the_first_failed_pod() -> None:
    others = [
        failed_pod("late", "2026-04-04T10:00:09Z"),
        failed_pod("taken-along", "2026-04-04T09:00:00Z", deletionTimestamp="now"),
        failed_pod("first", "2026-04-04T10:00:01Z"),
        POD,
    ]
    for pod in (None, failed_pod("p", "2026-04-04T10:00:03Z", deletionTimestamp="now")):
        reason = _blameless_reason(pod, "p", FAILED_JOB, None, others, node_is_well=True)
        assert (
            str(reason) == "pod p was deleted because pod first ended with status 137 (OOMKilled)"
        )


def test_first_failed_pod_is_blamed_though_its_job_has_failed() -> None:
    first = failed_pod("p", "2026-04-04T10:00:01Z")
    assert _blameless_reason(first, "p", FAILED_JOB, None, [first], node_is_well=True) is None


def test_without_the_first_pod_the_job_names_the_cause() -> None:
    reason = _blameless_reason(None, "p", FAILED_JOB, None, [], node_is_well=True)
    assert str(reason) == (
        "pod p was deleted while the run used it: the Job failed (BackoffLimitExceeded): so it is"
    )


@pytest.mark.parametrize("left", [[failed_pod("first", "t")], []], ids=["failed", "gone"])
def test_reason_is_sought_among_the_other_pods_of_the_job(left: list[dict[str, Any]]) -> None:
    ready = {
        "metadata": {"name": "n"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }

    def listed(kind: Kind, selector: str | None = None) -> list[dict[str, Any]]:
        return [ready] if kind is NODE else left

    asked = cast(
        Api,
        SimpleNamespace(
            find=lambda kind, name: FAILED_JOB if kind.kind == "Job" else None, list=listed
        ),
    )
    planned = cast(
        KubernetesPlan,
        SimpleNamespace(
            name="r", run=SimpleNamespace(run_id="r"), settings=SimpleNamespace(queue=None)
        ),
    )
    reason = str(blameless_reason(asked, planned, LAUNCHERS["job"], "p", "n"))
    assert ("because pod first ended" in reason) is bool(left)


def node(name: str, ready: str) -> dict[str, Any]:
    since = "2026-11-21T03:00:00Z"
    condition = {
        "type": "Ready",
        "status": ready,
        "message": "Kubelet stopped.",
        "lastTransitionTime": since,
    }
    return {"metadata": {"name": name}, "status": {"conditions": [condition]}}


class There:
    """An API server with two nodes, of which the second is silent; remembers what was removed by
    force.
    """

    def __init__(self, may_look: bool = True) -> None:
        self.forced: list[tuple[str | None, int | None]] = []
        self._may_look = may_look

    def list(self, kind: Kind, selector: str | None = None) -> list[dict[str, Any]]:
        if not self._may_look:
            raise MissingError("may not list nodes")
        return [node("node-0", "True"), node("node-1", "Unknown")]

    def delete_all(
        self, kind: Kind, selector: str, field_selector: str | None, grace_s: int | None
    ) -> None:
        assert kind.kind == "Pod"
        self.forced.append((field_selector, grace_s))


def see_off(monkeypatch: pytest.MonkeyPatch, api: There, left: dict[str, str]) -> None:
    monkeypatch.setattr(ending, "_wait_until_gone", lambda api, run_id: left)
    ending.wait_for_deletion(api, "r1")  # type: ignore[arg-type]


def test_no_pod_is_force_deleted_once_all_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    api = There()
    see_off(monkeypatch, api, {})
    assert api.forced == []


def test_a_silent_node_is_to_blame_and_loses_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    api = There()
    with pytest.raises(NodesError) as raised:
        see_off(monkeypatch, api, {"pod-1": "node-1"})
    why = {node: str(reason) for node, reason in raised.value.evidence.items()}
    assert why == {"node-1": "NotReady since 2026-11-21T03:00:00Z: Kubelet stopped."}
    assert api.forced == [("spec.nodeName=node-1", 0)]


@pytest.mark.parametrize(
    ("may_look", "pod", "node", "message"),
    [
        # The node is well
        (True, "pod-0", "node-0", r"1 pods of r1 are still ending.*: pod-0 on node-0"),
        (False, "pod-1", "node-1", "pod-1 on node-1"),  # without the right to list nodes
    ],
)
def test_a_node_that_is_not_known_to_be_ill_is_not_blamed_and_its_pods_are_not_forced(
    monkeypatch: pytest.MonkeyPatch, may_look: bool, pod: str, node: str, message: str
) -> None:
    api = There(may_look=may_look)
    with pytest.raises(LaunchError, match=message):
        see_off(monkeypatch, api, {pod: node})
    assert api.forced == []


def test_job_condition_without_a_type_is_ignored() -> None:
    entries: list[dict[str, str]] = [{"status": "Running"}]  # as Volcano writes them
    assert failed({"kind": "Job", "status": {"conditions": entries}}) is None
    entries.append(
        {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}
    )
    assert (
        failed({"kind": "Job", "status": {"conditions": entries}})
        == "the Job failed (DeadlineExceeded): too long"
    )
