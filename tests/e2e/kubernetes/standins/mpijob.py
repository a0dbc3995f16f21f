"""MPIJob (kubeflow.org/v2beta1) for Open MPI: Service, ConfigMap, Secret, worker pods, and a launcher that is a Job.

The end of the launcher is the end of the MPIJob.
"""

import base64
import copy
from collections.abc import Iterator
from typing import Any

from seatrial.keys import new_key_pair
from tests.e2e.kubernetes.standins.world import (
    CONFIG_MAP,
    JOB,
    POD,
    SECRET,
    SERVICE,
    Action,
    Complaint,
    Create,
    Delete,
    Kind,
    Object,
    Patch,
    World,
    conditions,
    controlled_by,
    holds,
    kind_of,
    set_status,
    stamp,
    with_condition,
)

MPIJOB = Kind("kubeflow.org/v2beta1", "MPIJob")
TENDS = (MPIJOB,)
FOLLOWS = (JOB, POD, SERVICE, SECRET, CONFIG_MAP)
PREFIX, OPERATOR = "training.kubeflow.org", "mpi-operator"
LAUNCHER_ENV = {
    "K_MPI_JOB_ROLE": "launcher",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    "NVIDIA_VISIBLE_DEVICES": "",
    "NVIDIA_DRIVER_CAPABILITIES": "",
}


def reconcile(mpijob: Object, world: World) -> Iterator[Action]:
    """Everything around the pods, then the pods; of one that has ended, the workers go."""
    launchers, workers = world.owned(mpijob, JOB), world.owned(mpijob, POD)
    yield from set_status(mpijob, **status(mpijob, launchers, workers, world))
    if holds(mpijob, "Succeeded") or holds(mpijob, "Failed"):
        yield from (Delete(pod) for pod in workers if _cleans(mpijob, pod))
        return
    if any(_is_foreign(thing, mpijob, world) for thing in around(mpijob)):
        return  # the real one complains, and tries for ever
    for thing in around(mpijob):
        if not world.get(kind_of(thing), thing["metadata"]["namespace"], thing["metadata"]["name"]):
            yield Create(thing)
    if _suspended(mpijob):
        yield from (Delete(pod) for pod in workers)
    else:
        there = {pod["metadata"]["name"] for pod in workers}
        complaint = Complaint(mpijob, "MPIJobFailed", "worker pod created failed: {}")
        wanted = (worker(mpijob, index) for index in range(_count(mpijob)))
        yield from (Create(pod, complaint) for pod in wanted if pod["metadata"]["name"] not in there)
    yield from _launch(mpijob, launchers)


def _launch(mpijob: Object, launchers: list[Object]) -> Iterator[Action]:
    wanted = launcher(mpijob)
    if not launchers:
        yield Create(wanted, Complaint(mpijob, "MPIJobFailed", "launcher pod created failed: {}"))
    elif launchers[0]["spec"].get("suspend", False) != _suspended(mpijob):
        if "startTime" in launchers[0].get("status", {}):  # or its template cannot be changed
            yield Patch(launchers[0], {"status": {"startTime": None}}, "status")
        pod = wanted["spec"]["template"]
        placing = {key: pod["spec"][key] for key in ("nodeSelector", "tolerations") if key in pod["spec"]}
        template = {"metadata": pod["metadata"], "spec": placing}
        yield Patch(launchers[0], {"spec": {"suspend": _suspended(mpijob), "template": template}})


def around(mpijob: Object) -> list[Object]:
    """Service, ConfigMap and Secret: how the pods find each other, and log in to each other."""
    name, namespace = _name(mpijob), mpijob["metadata"]["namespace"]
    slots = mpijob["spec"].get("slotsPerWorker", 1)
    hosts = [f"{name}-worker-{index}.{name}.{namespace}.svc" for index in range(_count(mpijob))]
    hostfile = "".join(f"{host} slots={slots}\n" for host in hosts)
    discover = "".join(f"echo {host}\n" for host in hosts)
    return [
        {
            **_made(mpijob, SERVICE, name, {"app": name}),
            "spec": {
                "clusterIP": "None",
                "selector": {f"{PREFIX}/job-name": name, f"{PREFIX}/operator-name": OPERATOR},
            },
        },
        {
            **_made(mpijob, CONFIG_MAP, f"{name}-config", {"app": name}),
            "data": {"hostfile": hostfile, "discover_hosts.sh": f"#!/bin/sh\n{discover}"},
        },
        {**_made(mpijob, SECRET, f"{name}-ssh", {"app": name}), "type": "kubernetes.io/ssh-auth", "data": _keys()},
    ]


def _keys() -> dict[str, str]:
    pair = new_key_pair()
    texts = {"ssh-privatekey": pair.private, "ssh-publickey": pair.public}
    return {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}


def worker(mpijob: Object, index: int) -> Object:
    """The pod of a worker."""
    name = f"{_name(mpijob)}-worker-{index}"
    template = _pod(mpijob, "Worker", name, {"K_MPI_JOB_ROLE": "worker"}, {f"{PREFIX}/replica-index": str(index)})
    container = template["spec"]["containers"][0]
    if not container.get("command") and not container.get("args"):
        container["command"] = ["/usr/sbin/sshd", "-De"]
    pod = _made(mpijob, POD, name, template["metadata"]["labels"])
    return {
        **pod,
        "metadata": {**pod["metadata"], "annotations": template["metadata"].get("annotations", {})},
        "spec": template["spec"],
    }


def launcher(mpijob: Object) -> Object:
    """The Job of the launcher."""
    name, policy = f"{_name(mpijob)}-launcher", mpijob["spec"].get("runPolicy", {})
    env = {**LAUNCHER_ENV, "OMPI_MCA_orte_set_default_slots": str(mpijob["spec"].get("slotsPerWorker", 1))}
    pod = _pod(mpijob, "Launcher", name, env, {})
    _mount(pod["spec"], "mpi-job-config", "/etc/mpi", {"configMap": {"name": f"{_name(mpijob)}-config"}})
    limits = ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
    spec = {**{key: policy[key] for key in limits if key in policy}, "template": pod, "suspend": _suspended(mpijob)}
    return {**_made(mpijob, JOB, name, {"app": _name(mpijob)}), "spec": spec}


def _pod(mpijob: Object, role: str, hostname: str, env: dict[str, str], more: dict[str, str]) -> Object:
    """The template of launcher or workers with what the operator puts in."""
    replicas = mpijob["spec"]["mpiReplicaSpecs"][role]
    pod = copy.deepcopy(replicas["template"])
    marks = {f"{PREFIX}/operator-name": OPERATOR, f"{PREFIX}/job-name": _name(mpijob)}
    metadata = pod.setdefault("metadata", {})
    metadata["labels"] = {**metadata.get("labels", {}), **marks, f"{PREFIX}/job-role": role.lower(), **more}
    default = "OnFailure" if role == "Launcher" else "Never"
    pod["spec"] |= {
        "hostname": hostname,
        "subdomain": _name(mpijob),
        "restartPolicy": replicas.get("restartPolicy", default),
    }
    container = pod["spec"]["containers"][0]
    container["env"] = [*container.get("env", ()), *({"name": key, "value": value} for key, value in env.items())]
    items = [("ssh-privatekey", "id_rsa"), ("ssh-publickey", "id_rsa.pub"), ("ssh-publickey", "authorized_keys")]
    secret = {"secretName": f"{_name(mpijob)}-ssh", "items": [{"key": key, "path": path} for key, path in items]}
    _mount(pod["spec"], "ssh-auth", mpijob["spec"].get("sshAuthMountPath", "/root/.ssh"), {"secret": secret})
    return pod


def _mount(spec: Object, name: str, path: str, source: Object) -> None:
    spec["volumes"] = [*spec.get("volumes", ()), {"name": name, **source}]
    container = spec["containers"][0]
    container["volumeMounts"] = [*container.get("volumeMounts", ()), {"name": name, "mountPath": path}]


def status(mpijob: Object, launchers: list[Object], workers: list[Object], world: World) -> Object:
    """What the status of an MPIJob with these is to say."""
    pods = [pod for job in launchers for pod in world.owned(job, POD)]
    counts = {"Launcher": _counts(pods), "Worker": _counts(workers)}
    found: Object = {"replicaStatuses": counts}
    old = conditions(mpijob)
    if any(each["type"] in ("Succeeded", "Failed") and each["status"] == "True" for each in old):
        return {}
    for news in _news(mpijob, launchers, pods, workers):
        old = _with(old, world, *news)
        if news[0] in ("Succeeded", "Failed"):
            found["completionTime"] = stamp(world.now)
    if "startTime" not in mpijob.get("status", {}) and not _suspended(mpijob):
        found["startTime"] = stamp(world.now)
    return {**found, "conditions": old}


def _news(
    mpijob: Object, launchers: list[Object], pods: list[Object], workers: list[Object]
) -> Iterator[tuple[str, bool, str, str]]:
    """Type, whether it holds, reason and message of the conditions as they are now."""
    name = f"MPIJob {mpijob['metadata']['namespace']}/{_name(mpijob)}"
    yield "Created", True, "MPIJobCreated", f"{name} is created."
    if _suspended(mpijob):
        yield "Suspended", True, "MPIJobSuspended", "MPIJob suspended"
        yield "Running", False, "MPIJobSuspended", f"{name} is suspended."
    elif holds(mpijob, "Suspended"):
        yield "Suspended", False, "MPIJobResumed", "MPIJob resumed"
    if any(holds(job, "Complete") for job in launchers):
        yield "Succeeded", True, "MPIJobSucceeded", f"{name} successfully completed."
        yield "Running", False, "MPIJobSucceeded", f"{name} successfully completed."
    elif failed := [each for job in launchers for each in conditions(job) if each["type"] == "Failed"]:
        yield ("Failed", True, *_failure(failed[0], pods))
    elif _running(pods) and len(_running(workers)) == _count(mpijob):
        yield "Running", True, "MPIJobRunning", f"{name} is running."


def _failure(failed: Object, pods: list[Object]) -> tuple[str, str]:
    """The launcher's reason and message; where it was its pod, the pod's too, as empty as they mostly are."""
    reason, message = failed["reason"], failed["message"]
    ended = [pod["status"] for pod in pods if pod["status"].get("phase") == "Failed"]
    if reason == "BackoffLimitExceeded" and ended:
        return f"{reason}/{ended[-1].get('reason', '')}", f"{message}: {ended[-1].get('message', '')}"
    return reason, message


def _with(old: list[Object], world: World, *news: Any) -> list[Object]:
    """As of every API, and with the time of the last change of anything in it."""
    changed = with_condition(old, world.now, *news)
    return [each if each in old else {**each, "lastUpdateTime": stamp(world.now)} for each in changed]


def _counts(pods: list[Object]) -> Object:
    phases = [pod.get("status", {}).get("phase") for pod in pods]
    counts = {"active": "Running", "succeeded": "Succeeded", "failed": "Failed"}
    return {key: phases.count(phase) for key, phase in counts.items()}


def _running(pods: list[Object]) -> list[Object]:
    return [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]


def _cleans(mpijob: Object, pod: Object) -> bool:
    """Whether the pod goes once the launcher has ended."""
    policy = mpijob["spec"].get("runPolicy", {}).get("cleanPodPolicy", "None")
    alive = pod.get("status", {}).get("phase") in ("Pending", "Running")
    return bool(policy == "All" or (policy == "Running" and alive))


def _is_foreign(thing: Object, mpijob: Object, world: World) -> bool:
    """Whether somebody else made what has its name."""
    found = world.get(kind_of(thing), thing["metadata"]["namespace"], thing["metadata"]["name"])
    return found is not None and found not in world.owned(mpijob, kind_of(thing))


def _made(mpijob: Object, kind: Kind, name: str, labels: dict[str, str]) -> Object:
    where = {"name": name, "namespace": mpijob["metadata"]["namespace"]}
    owners = controlled_by(mpijob)
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {**where, "labels": labels, "ownerReferences": owners},
    }


def _name(mpijob: Object) -> str:
    return str(mpijob["metadata"]["name"])


def _count(mpijob: Object) -> int:
    return int(mpijob["spec"]["mpiReplicaSpecs"].get("Worker", {}).get("replicas", 0))


def _suspended(mpijob: Object) -> bool:
    return bool(mpijob["spec"].get("runPolicy", {}).get("suspend", False))
