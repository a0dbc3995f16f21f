"""What Kueue's conditions mean: a short wait, a long one, or one without end. Messages as release 0.19 words them."""

from typing import Any

import pytest

from seatrial.platforms.kubernetes.queue import preempted, waits_for


def workload(*conditions: tuple[str, str, str, str], active: bool = True, **status: Any) -> dict[str, Any]:
    listed = [dict(zip(("type", "status", "reason", "message"), each, strict=True)) for each in conditions]
    return {"spec": {"active": active}, "status": {"conditions": listed, **status}}


def pending(message: str, reason: str = "Pending") -> dict[str, Any]:
    return workload(("QuotaReserved", "False", reason, message))


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "couldn't assign flavors to pod set node: insufficient unused quota for nvidia.com/gpu in flavor a4,"
            " 24 more needed",
            "queued: 24 more nvidia.com/gpu needed in flavor a4",
        ),
        (
            "couldn't assign flavors to pod set node: insufficient quota for nvidia.com/gpu in flavor spot, request >"
            " maximum capacity (8), insufficient unused quota for nvidia.com/gpu in flavor reserved, 8 more needed",
            "queued: 8 more nvidia.com/gpu needed in flavor reserved",
        ),
        ("ClusterQueue gpus is inactive", "queued: ClusterQueue gpus is inactive"),
        (
            'couldn\'t assign flavors to pod set node: topology "rack" allows to fit only 1 out of 2 pod(s)',
            'queued: couldn\'t assign flavors to pod set node: topology "rack" allows to fit only 1 out of 2 pod(s)',
        ),
        ("", "queued: Kueue has not looked at it yet"),
    ],
)
def test_a_wait_that_may_end(message: str, said: str) -> None:
    found = waits_for(pending(message))
    assert found
    assert (found.reason, found.hopeless) == (said, False)


@pytest.mark.parametrize(
    "stuck",
    [
        pending(
            "couldn't assign flavors to pod set node: insufficient quota for nvidia.com/gpu in flavor a4,"
            " request > maximum capacity (16)"
        ),
        pending("LocalQueue night doesn't exist", "Inadmissible"),
        pending("flavor a4 does not match", "NoMatchingFlavor"),
        workload(active=False),
    ],
)
def test_a_wait_without_end(stuck: dict[str, Any]) -> None:
    found = waits_for(stuck)
    assert found
    assert found.hopeless
    assert "never be admitted" in found.reason or "deactivated" in found.reason


def test_admission_checks_are_named() -> None:
    held = workload(
        ("QuotaReserved", "True", "QuotaReserved", ""),
        admissionChecks=[
            {"name": "dws", "state": "Pending", "message": "no capacity in zone"},
            {"name": "other", "state": "Ready"},
        ],
    )
    found = waits_for(held)
    assert found
    assert found.reason == "queued: quota is reserved; waiting for admission check dws: no capacity in zone"


def test_admitted_waits_for_nothing() -> None:
    assert waits_for(workload(("QuotaReserved", "True", "", ""), ("Admitted", "True", "", ""))) is None


def test_eviction_is_told() -> None:
    evicted = workload(("Admitted", "False", "NoReservation", ""), ("Evicted", "True", "Preempted", "to make room"))
    assert preempted(evicted) == "Kueue evicted it: Preempted: to make room"
    found = waits_for(evicted)
    assert found
    assert found.reason == "queued again after it was evicted: Preempted: to make room"
    assert preempted(workload(("Admitted", "True", "", ""))) is None
