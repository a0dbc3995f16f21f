"""Which nodes that went are not to blame."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from seatrial.platforms.kubernetes.api import Api
from seatrial.platforms.kubernetes.excuse import _excuse, _workload
from seatrial.platforms.kubernetes.plan import Plan

JOB = {"kind": "Job", "status": {}}
POD: dict[str, Any] = {"metadata": {"name": "p"}, "status": {}}
EVICTED = {"status": {"conditions": [{"type": "Evicted", "status": "True", "reason": "Preempted", "message": "room"}]}}


def with_condition(kind: str, reason: str, **metadata: str) -> dict[str, Any]:
    condition = {"type": kind, "status": "True", "reason": reason, "message": "so it is"}
    return {"metadata": {"name": "p", **metadata}, "status": {"conditions": [condition]}}


@pytest.mark.parametrize(
    ("pod", "parent", "workload", "said"),
    [
        (None, JOB, None, "pod p was deleted while the run used it"),
        (None, None, None, "pod p was deleted while the run used it, with what the run had submitted"),
        ({"metadata": {"deletionTimestamp": "now"}}, JOB, None, "pod p was deleted while the run used it"),
        (with_condition("DisruptionTarget", "EvictionByEvictionAPI"), JOB, None, "EvictionByEvictionAPI: so it is"),
        (None, with_condition("Failed", "DeadlineExceeded"), None, "over its time: DeadlineExceeded: so it is"),
        (None, JOB, EVICTED, "Kueue evicted it: Preempted: room"),
    ],
)
def test_what_was_taken_away_is_excused(pod: Any, parent: Any, workload: Any, said: str) -> None:
    assert said in str(_excuse(pod, "p", parent, workload, node_is_well=True))


@pytest.mark.parametrize(
    ("pod", "workload", "well"),
    [
        (POD, None, True),
        (None, None, False),
        (POD, None, False),
        (with_condition("DisruptionTarget", "DeletionByTaintManager"), None, False),  # as of a node that is silent
        (None, EVICTED, False),
    ],
)
def test_what_went_by_itself_is_blamed(pod: Any, workload: Any, well: bool) -> None:
    assert _excuse(pod, "p", JOB, workload, node_is_well=well) is None


@pytest.mark.parametrize(
    "its", [{"ownerReferences": [{"uid": "u"}]}, {"labels": {"kueue.x-k8s.io/job-uid": "u"}}], ids=["owned", "labelled"]
)
def test_the_workload_of_a_run_is_found(its: dict[str, Any]) -> None:
    there = [{"metadata": {"ownerReferences": [{"uid": "v"}]}}, {"metadata": its}]
    api = cast(Api, SimpleNamespace(list=lambda kind: there))
    queued = cast(Plan, SimpleNamespace(settings=SimpleNamespace(queue="night")))
    assert _workload(api, queued, {"metadata": {"uid": "u"}}) == there[1]
    assert _workload(api, queued, {"metadata": {"uid": "w"}}) is None
