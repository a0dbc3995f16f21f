"""What Kueue's conditions mean: a short wait, a long one, or one without end.

Messages as release 0.19 words them.
"""

from typing import Any

import pytest

from seatrial.platforms.kubernetes.kueue import preempted, unmanaged, waits_for


def workload(
    *conditions: tuple[str, str, str, str], active: bool = True, **status: Any
) -> dict[str, Any]:
    listed = [
        dict(zip(("type", "status", "reason", "message"), each, strict=True)) for each in conditions
    ]
    return {"spec": {"active": active}, "status": {"conditions": listed, **status}}


def pending(message: str, reason: str = "Pending") -> dict[str, Any]:
    return workload(("QuotaReserved", "False", reason, message))


SET = "couldn't assign flavors to pod set"
CLAIM = "spec.podSets[0].template.spec.resourceClaims[0]"
UNUSED = "insufficient unused quota for pods in flavor"
SUMS = (
    "previously considered podsets requests (0) + current podset request (16) > maximum "
    "capacity (8)"
)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "couldn't assign flavors to pod set node: insufficient unused quota for "
            "nvidia.com/gpu in flavor a4,"
            " 24 more needed",
            "queued: 24 more nvidia.com/gpu needed in flavor a4",
        ),
        (
            "couldn't assign flavors to pod set node: insufficient quota for nvidia.com/gpu in "
            "flavor spot, request >"
            " maximum capacity (8), insufficient unused quota for nvidia.com/gpu in flavor "
            "reserved, 8 more needed",
            "queued: 8 more nvidia.com/gpu needed in flavor reserved",
        ),
        ("ClusterQueue gpus is inactive", "queued: ClusterQueue gpus is inactive"),
        (
            (
                'couldn\'t assign flavors to pod set node: topology "rack" allows to fit only '
                "1 out of 2 pod(s)"
            ),
            (
                'queued: couldn\'t assign flavors to pod set node: topology "rack" allows to '
                "fit only 1 out of 2 pod(s)"
            ),
        ),
        ("", "queued: Kueue has not looked at it yet: does its controller run?"),
        (
            f"{SET} master: {UNUSED} f, 1 more needed; {SET} worker: {UNUSED} f, 9 more needed",
            "queued: 9 more pods needed in flavor f",
        ),
        (
            f"{SET} node: insufficient quota for pods in flavor a, {SUMS},"
            ' topology "t" doesn\'t allow to fit any of 2 pod(s)',
            f"queued: {SET} node: insufficient quota for pods in flavor a, {SUMS},"
            ' topology "t" doesn\'t allow to fit any of 2 pod(s)',
        ),
        (
            f"{SET} node: {UNUSED} f, 2 more needed. Pending the preemption of 1 workload(s)",
            "queued: 2 more pods needed in flavor f",
        ),
    ],
)
def test_workload_that_kueue_may_still_admit_is_waited_for(message: str, reason: str) -> None:
    queued = waits_for(pending(message))
    assert queued
    assert (queued.reason.sentence, queued.hopeless) == (reason, False)


@pytest.mark.parametrize(
    "stuck",
    [
        pending(
            "couldn't assign flavors to pod set node: insufficient quota for nvidia.com/gpu in "
            "flavor a4,"
            " request > maximum capacity (16)"
        ),
        pending(f"{SET} node: insufficient quota for pods in flavor a, {SUMS}"),
        pending(
            f"{SET} node: insufficient quota for gpu in flavor a, {SUMS}, {UNUSED} a, 1 more needed"
        ),
        pending(
            f"{SET} master: {UNUSED} f, 1 more needed; {SET} worker: insufficient quota "
            f"for pods in flavor f, {SUMS}"
        ),
        pending(f"{SET} node: resource cpu unavailable in ClusterQueue"),
        pending(
            f"{SET} node: flavor a doesn't match node affinity, untolerated taint {{gpu "
            f"yes NoSchedule}} in flavor b"
        ),
        pending(f'{SET} node: Flavor "a" does not contain the requested level'),
        pending(
            f'{SET} node: Flavor "a" does not contain the requested level',
            "TopologyPlacementFailed",
        ),
        pending(
            "Bypassed scheduling evaluation because an equivalent workload recently failed",
            "ExceedsMaxQuota",
        ),
        pending("LocalQueue night doesn't exist", "Inadmissible"),
        pending("LocalQueue night is terminating or missing", "Inadmissible"),
        pending("workload namespace doesn't match ClusterQueue selector"),
        pending("resources validation failed: [...]: requests must not exceed its limits"),
        pending("flavor a4 does not match", "NoMatchingFlavor"),
        workload(active=False),
    ],
)
def test_workload_that_kueue_will_never_admit_is_hopeless(stuck: dict[str, Any]) -> None:
    queued = waits_for(stuck)
    assert queued
    assert queued.hopeless
    assert "never be admitted" in queued.reason.sentence or "deactivated" in queued.reason.sentence


@pytest.mark.parametrize(
    "lost_for_now",
    [
        pending(f"{SET} node: no topology domains at level: rack"),  # the only node may be cordoned
        pending(
            f"{SET} node: insufficient quota for gpu in flavor a, {SUMS}, no topology "
            "domains at level: rack"
        ),
        pending('topology "t" allows to fit only 1 out of 2 pod(s)', "TopologyPlacementFailed"),
        pending(
            "Workload no longer fits after processing another workload", "TopologyPlacementFailed"
        ),
        pending(
            f"{CLAIM}: Internal error: failed to get claim spec for ResourceClaimTemplate c",
            "Misconfigured",
        ),
    ],
)
def test_nodes_and_claims_that_are_not_there_yet_are_waited_for(
    lost_for_now: dict[str, Any],
) -> None:
    queued = waits_for(lost_for_now)
    assert queued
    assert not queued.hopeless


@pytest.mark.parametrize("reason", ["Inadmissible", "Misconfigured"])
@pytest.mark.parametrize(
    "refused",
    [
        (
            f'{CLAIM}.resourceClaimTemplateName: Not found: "DeviceClass d is not mapped in '
            'DRA configuration"'
        ),
        "DynamicResourceAllocation feature does not support use of resource claims",
        "DRA resource claims not supported",
        (
            f"{CLAIM}.devices.requests[0].exactly.allocationMode: Invalid value: "
            "AllocationMode 'All' is not supported"
        ),
        "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled",
    ],
)
def test_claims_that_kueue_does_not_count_are_refused_for_ever(refused: str, reason: str) -> None:
    queued = waits_for(pending(refused, reason))
    assert queued
    assert queued.hopeless
    assert queued.reason.sentence.startswith(
        f"will never be admitted: {refused}: let Kueue count the claims"
    )
    assert "resources.deviceClassMappings" in queued.reason.sentence


RESERVED, ADMITTED = ("QuotaReserved", "True", "", ""), ("Admitted", "True", "", "")
UNADMITTED = ("Admitted", "False", "NoReservation", "")
TO_MAKE_ROOM = ("Evicted", "True", "Preempted", "to make room")
EVICTED = "queued again after it was evicted: Preempted: to make room"
TOO_OFTEN = (
    "Evicted",
    "True",
    "DeactivatedDueToRequeuingLimitExceeded",
    "exceeded the maximum number of retries",
)
CHECKS = [
    {"name": "dws", "state": "Pending", "message": "no capacity in zone"},
    {"name": "other", "state": "Ready"},
]


@pytest.mark.parametrize(
    ("seen", "reason", "hopeless"),
    [
        (
            workload(RESERVED, admissionChecks=CHECKS),
            "queued: quota is reserved; waiting for admission check dws: no capacity in zone",
            False,
        ),
        (workload(UNADMITTED, TO_MAKE_ROOM), EVICTED, False),
        (workload(RESERVED, ADMITTED, TO_MAKE_ROOM), EVICTED, False),  # still there
        (
            workload(
                ("QuotaReserved", "False", "Pending", "to make room"), UNADMITTED, TO_MAKE_ROOM
            ),
            EVICTED,
            False,
        ),
        (
            workload(
                ("QuotaReserved", "False", "Pending", f"{UNUSED} f, 2 more needed"),
                UNADMITTED,
                TO_MAKE_ROOM,
            ),
            "queued: 2 more pods needed in flavor f",  # it was looked at again
            False,
        ),
        (
            workload(ADMITTED, ("Finished", "True", "FailedToStart", "no such field")),
            "Kueue takes it for finished: FailedToStart: no such field",
            True,
        ),
        (
            workload(TOO_OFTEN, active=False),
            f"Kueue has deactivated it: {TOO_OFTEN[2]}: {TOO_OFTEN[3]}",
            True,
        ),
        # a reason that says wait outweighs the words
        (
            pending("resource cpu unavailable in ClusterQueue", "WaitingForQuota"),
            "queued: resource cpu unavailable in ClusterQueue",
            False,
        ),
    ],
)
def test_reason_of_a_wait_is_the_message_of_kueue(
    seen: dict[str, Any], reason: str, hopeless: bool
) -> None:
    queued = waits_for(seen)
    assert queued
    assert (queued.reason.sentence, queued.hopeless) == (reason, hopeless)


@pytest.mark.parametrize(
    "evicted", [(), (("Evicted", "False", "QuotaReserved", "Previously: to make room"),)]
)
def test_admitted_workload_waits_for_nothing(
    evicted: tuple[tuple[str, str, str, str], ...],
) -> None:
    """Even if it was evicted before."""
    admitted = workload(RESERVED, ADMITTED, *evicted)
    assert (waits_for(admitted), preempted(admitted)) == (None, None)


def test_eviction_is_reported_with_the_reason_of_kueue() -> None:
    assert (
        str(preempted(workload(UNADMITTED, TO_MAKE_ROOM)))
        == "Kueue evicted it: Preempted: to make room"
    )


def test_missing_workload_reason_names_the_priority_class_to_check() -> None:
    assert unmanaged("Job", None).reason.sentence.endswith(
        "is its integration with Job on, is the namespace managed?"
    )
    assert unmanaged("Job", "PriorityClass low").reason.sentence.endswith(
        "managed, is there a PriorityClass low?"
    )
