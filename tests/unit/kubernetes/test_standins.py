"""The stand-ins of tests/e2e/kubernetes/standins against a cluster in memory: no API server, and a clock of our own."""

from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from tests.e2e.kubernetes.standins import jobset, mpijob, trainjob
from tests.e2e.kubernetes.standins.controller import Standin
from tests.e2e.kubernetes.standins.world import (
    CONFIG_MAP,
    JOB,
    POD,
    SECRET,
    SERVICE,
    Action,
    Create,
    Delete,
    Kind,
    Object,
    Patch,
    World,
    conditions,
    holds,
)
from tests.unit.kubernetes.golden import rendered

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAME, NAMESPACE = "seatrial-20260101-0000-abcde", "default"


def world_with(golden: str) -> World:
    """What seatrial submits, as the API server would have it."""
    world = World(now=NOON)
    for thing in yaml.safe_load_all(rendered(golden)):
        created(world, thing)
    return world


def created(world: World, thing: Object) -> None:
    count = sum(len(things) for things in world.objects.values())
    metadata = {"uid": f"uid-{count}", "creationTimestamp": "2026-01-01T12:00:00Z", **thing["metadata"]}
    world.take({**thing, "metadata": metadata})


def settle(standin: Standin, world: World) -> list[Action]:
    """Carry out what the stand-in asks for until it asks for nothing more; all of that."""
    done: list[Action] = []
    for _ in range(5):
        things = [thing for kind in standin.TENDS for thing in world.all(kind)]
        actions = [action for thing in things for action in standin.reconcile(thing, world)]
        if not actions:
            return done
        for action in actions:
            carry_out(world, action)
        done += actions
    raise AssertionError(f"it never has enough: {actions}")


def carry_out(world: World, action: Action) -> None:
    match action:
        case Create(thing):
            created(world, thing)
        case Delete(thing):
            world.drop(thing)
        case Patch(thing, body):
            world.take(merged(world.objects[Kind(thing["apiVersion"], thing["kind"])][place(thing)], body))


def place(thing: Object) -> tuple[str | None, str]:
    return thing["metadata"]["namespace"], thing["metadata"]["name"]


def merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    old = old if isinstance(old, dict) else {}
    changed = {key: merged(old.get(key), value) for key, value in patch.items() if value is not None}
    return {key: value for key, value in {**old, **changed}.items() if patch.get(key, "") is not None}


def get(world: World, kind: Kind, name: str = NAME) -> Object:
    thing = world.get(kind, NAMESPACE, name)
    assert thing is not None
    return thing


def end(world: World, job: str, kind: str, reason: str = "", message: str = "") -> None:
    """As the Job controller ends a Job."""
    fields = {"type": kind, "status": "True", "reason": reason, "message": message}
    condition = {**fields, "lastTransitionTime": "2026-01-01T12:00:00Z"}
    carry_out(world, Patch(get(world, JOB, job), {"status": {"conditions": [condition]}}))


def test_a_jobset_becomes_a_job_whose_pods_have_names() -> None:
    world = world_with("jobset")
    settle(jobset, world)
    job = get(world, JOB, f"{NAME}-node-0")
    marks = job["spec"]["template"]["metadata"]["labels"]
    assert marks["jobset.sigs.k8s.io/jobset-name"] == NAME
    assert marks["jobset.sigs.k8s.io/job-index"] == marks["jobset.sigs.k8s.io/restart-attempt"] == "0"
    assert job["spec"]["template"]["spec"]["subdomain"] == NAME
    assert "ownerReferences" not in get(world, SERVICE)["metadata"]  # seatrial's; the JobSet needs none of its own
    world.drop(get(world, SERVICE))
    settle(jobset, world)
    assert get(world, SERVICE)["spec"]["selector"] == {"jobset.sigs.k8s.io/jobset-name": NAME}


def test_a_job_that_fails_fails_its_jobset_which_expires() -> None:
    world = world_with("jobset")
    settle(jobset, world)
    end(world, f"{NAME}-node-0", "Failed", "BackoffLimitExceeded")
    settle(jobset, world)
    failed = holds(get(world, jobset.JOBSET), "Failed")
    assert failed and failed["reason"] == "FailedJobs"
    assert failed["message"].endswith(f"(first failed job: {NAME}-node-0)")
    assert get(world, jobset.JOBSET)["status"]["terminalState"] == "Failed"
    world.now = NOON + timedelta(seconds=599)
    assert settle(jobset, world) == []
    world.now = NOON + timedelta(seconds=600)
    settle(jobset, world)
    assert world.all(jobset.JOBSET) == []


def test_a_jobset_completes_with_its_jobs() -> None:
    world = world_with("jobset")
    settle(jobset, world)
    end(world, f"{NAME}-node-0", "Complete")
    settle(jobset, world)
    assert get(world, jobset.JOBSET)["status"]["terminalState"] == "Completed"
    assert get(world, jobset.JOBSET)["status"]["replicatedJobsStatus"][0]["succeeded"] == 1


def test_jobs_of_a_suspended_jobset_wait_and_go_where_they_are_sent() -> None:
    world = world_with("jobset")
    carry_out(world, Patch(get(world, jobset.JOBSET), {"spec": {"suspend": True}}))
    settle(jobset, world)
    job = get(world, JOB, f"{NAME}-node-0")
    assert job["spec"]["suspend"] is True
    assert holds(get(world, jobset.JOBSET), "Suspended")
    parent = get(world, jobset.JOBSET)
    replicated = parent["spec"]["replicatedJobs"]
    replicated[0]["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"block": "b-1"}
    carry_out(world, Patch(parent, {"spec": {"suspend": False, "replicatedJobs": replicated}}))
    settle(jobset, world)
    resumed = get(world, JOB, f"{NAME}-node-0")
    assert resumed["spec"]["suspend"] is False
    assert resumed["spec"]["template"]["spec"]["nodeSelector"] == {"block": "b-1"}
    assert not holds(get(world, jobset.JOBSET), "Suspended")


def run_pods(world: World) -> None:
    for pod in world.all(POD):
        carry_out(world, Patch(pod, {"status": {"phase": "Running"}}))


def test_an_mpijob_becomes_workers_a_launcher_and_what_they_need() -> None:
    world = world_with("mpijob")
    settle(mpijob, world)
    hosts = [f"{NAME}-worker-{index}.{NAME}.{NAMESPACE}.svc slots=8\n" for index in (0, 1)]
    assert get(world, CONFIG_MAP, f"{NAME}-config")["data"]["hostfile"] == "".join(hosts)
    assert set(get(world, SECRET, f"{NAME}-ssh")["data"]) == {"ssh-privatekey", "ssh-publickey"}
    worker = get(world, POD, f"{NAME}-worker-1")
    assert worker["metadata"]["labels"]["training.kubeflow.org/replica-index"] == "1"
    assert worker["metadata"]["labels"]["seatrial/role"] == "node"
    launcher = get(world, JOB, f"{NAME}-launcher")
    assert launcher["spec"]["backoffLimit"] == 0
    assert get(world, SERVICE)["metadata"]["ownerReferences"][0]["kind"] == "MPIJob"


def test_the_end_of_the_launcher_is_the_end_of_the_mpijob() -> None:
    world = world_with("mpijob")
    settle(mpijob, world)
    run_pods(world)
    end(world, f"{NAME}-launcher", "Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
    settle(mpijob, world)
    failed = holds(get(world, mpijob.MPIJOB), "Failed")
    assert failed and failed["reason"] == "DeadlineExceeded"
    assert world.all(POD) == []  # cleanPodPolicy: Running, and they all run


def test_a_service_of_somebody_else_stops_an_mpijob() -> None:
    world = world_with("mpijob")
    metadata = {"name": NAME, "namespace": NAMESPACE}
    created(world, {"apiVersion": "v1", "kind": "Service", "metadata": metadata})
    settle(mpijob, world)
    assert world.all(POD) == []


def test_a_suspended_mpijob_has_no_workers() -> None:
    world = world_with("mpijob")
    settle(mpijob, world)
    carry_out(world, Patch(get(world, mpijob.MPIJOB), {"spec": {"runPolicy": {"suspend": True}}}))
    settle(mpijob, world)
    assert world.all(POD) == []
    assert get(world, JOB, f"{NAME}-launcher")["spec"]["suspend"] is True
    carry_out(world, Patch(get(world, mpijob.MPIJOB), {"spec": {"runPolicy": {"suspend": False}}}))
    settle(mpijob, world)
    assert len(world.all(POD)) == 2
    (condition,) = (each for each in conditions(get(world, mpijob.MPIJOB)) if each["type"] == "Suspended")
    assert (condition["status"], condition["reason"]) == ("False", "MPIJobResumed")


def test_a_trainjob_that_is_over_its_time_loses_its_jobset() -> None:
    world = world_with("trainjob")
    carry_out(world, Patch(get(world, trainjob.TRAINJOB), {"spec": {"activeDeadlineSeconds": 60}}))
    settle(trainjob, world)
    assert len(world.all(jobset.JOBSET)) == 1
    world.now = NOON + timedelta(seconds=61)
    settle(trainjob, world)
    failed = holds(get(world, trainjob.TRAINJOB), "Failed")
    assert failed and failed["reason"] == "DeadlineExceeded"
    assert world.all(jobset.JOBSET) == []


def test_an_older_state_is_no_news() -> None:
    metadata = {"name": "a", "namespace": "b", "resourceVersion": "10"}
    world, pod = World(), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    world.take(pod)
    world.take({**pod, "metadata": {**metadata, "resourceVersion": "9"}})
    assert world.all(POD) == [pod]
