"""MPIJob (kubeflow.org/v2beta1) for Open MPI: Service, ConfigMap, Secret, worker pods, and a
launcher that is a Job.
"""

import base64
import copy
from collections.abc import Iterator
from typing import Any

from seatrial.remote.ssh import new_key_pair
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
    World,
    conditions,
    controlled_by,
    holds,
    kind_of,
    resume,
    set_status,
    stamp,
    suspend,
    with_condition,
)

MPIJOB = Kind("kubeflow.org/v2beta1", "MPIJob")
TENDS = (MPIJOB,)
FOLLOWS = (JOB, POD, SERVICE, SECRET, CONFIG_MAP)
_PREFIX, _OPERATOR = "training.kubeflow.org", "mpi-operator"
_LAUNCHER_ENV = {
    "K_MPI_JOB_ROLE": "launcher",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    "NVIDIA_VISIBLE_DEVICES": "",
    "NVIDIA_DRIVER_CAPABILITIES": "",
}


def reconcile(mpijob: Object, world: World) -> Iterator[Action]:
    """Everything around the pods, then the pods."""
    launchers, workers = world.owned(mpijob, JOB), world.owned(mpijob, POD)
    yield from set_status(mpijob, **status(mpijob, launchers, workers, world))
    for resource in around(mpijob):
        if not world.get(
            kind_of(resource), resource["metadata"]["namespace"], resource["metadata"]["name"]
        ):
            yield Create(resource)
    if _is_suspended(mpijob):
        yield from (Delete(pod) for pod in workers)
    else:
        there = {pod["metadata"]["name"] for pod in workers}
        complaint = Complaint(mpijob, "MPIJobFailed", "worker pod created failed: {}")
        desired = (worker(mpijob, index) for index in range(_worker_count(mpijob)))
        yield from (
            Create(pod, complaint) for pod in desired if pod["metadata"]["name"] not in there
        )
    job = launcher(mpijob)
    if not launchers:
        yield Create(job, Complaint(mpijob, "MPIJobFailed", "launcher pod created failed: {}"))
    elif launchers[0]["spec"].get("suspend", False) != _is_suspended(mpijob):
        yield from suspend(launchers[0]) if _is_suspended(mpijob) else resume(launchers[0], job)


def status(mpijob: Object, launchers: list[Object], workers: list[Object], world: World) -> Object:
    """The status of an MPIJob with these."""
    pods = [pod for job in launchers for pod in world.owned(job, POD)]
    fields: Object = {"replicaStatuses": {"Launcher": _counts(pods), "Worker": _counts(workers)}}
    old = conditions(mpijob)
    for news in _news(mpijob, pods, workers):
        changed = with_condition(old, world.now, *news)
        old = [
            each if each in old else {**each, "lastUpdateTime": stamp(world.now)}
            for each in changed
        ]
    if "startTime" not in mpijob.get("status", {}) and not _is_suspended(mpijob):
        fields["startTime"] = stamp(world.now)
    return {**fields, "conditions": old}


def _news(
    mpijob: Object, pods: list[Object], workers: list[Object]
) -> Iterator[tuple[str, bool, str, str]]:
    """Type, whether it holds, reason and message of the conditions as they are now."""
    name = f"MPIJob {mpijob['metadata']['namespace']}/{_name(mpijob)}"
    yield "Created", True, "MPIJobCreated", f"{name} is created."
    if _is_suspended(mpijob):
        yield "Suspended", True, "MPIJobSuspended", "MPIJob suspended"
        yield "Running", False, "MPIJobSuspended", f"{name} is suspended."
    elif holds(mpijob, "Suspended"):
        yield "Suspended", False, "MPIJobResumed", "MPIJob resumed"
    if _counts(pods)["active"] and _counts(workers)["active"] == _worker_count(mpijob):
        yield "Running", True, "MPIJobRunning", f"{name} is running."


def _counts(pods: list[Object]) -> dict[str, int]:
    phases = [pod.get("status", {}).get("phase") for pod in pods]
    counts = {"active": "Running", "succeeded": "Succeeded", "failed": "Failed"}
    return {key: phases.count(phase) for key, phase in counts.items()}


def around(mpijob: Object) -> list[Object]:
    """Service, ConfigMap and Secret: how the pods find each other, and log in to each other."""
    name, namespace = _name(mpijob), mpijob["metadata"]["namespace"]
    slots = mpijob["spec"].get("slotsPerWorker", 1)
    hosts = [
        f"{name}-worker-{index}.{name}.{namespace}.svc" for index in range(_worker_count(mpijob))
    ]
    hostfile = "".join(f"{host} slots={slots}\n" for host in hosts)
    discover = "".join(f"echo {host}\n" for host in hosts)
    selector = {f"{_PREFIX}/job-name": name, f"{_PREFIX}/operator-name": _OPERATOR}
    pair = new_key_pair()
    texts = {"ssh-privatekey": pair.private, "ssh-publickey": pair.public}
    keys = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    return [
        {
            **_new_object(mpijob, SERVICE, name, {"app": name}),
            "spec": {"clusterIP": "None", "selector": selector},
        },
        {
            **_new_object(mpijob, CONFIG_MAP, f"{name}-config", {"app": name}),
            "data": {"hostfile": hostfile, "discover_hosts.sh": f"#!/bin/sh\n{discover}"},
        },
        {
            **_new_object(mpijob, SECRET, f"{name}-ssh", {"app": name}),
            "type": "kubernetes.io/ssh-auth",
            "data": keys,
        },
    ]


def worker(mpijob: Object, index: int) -> Object:
    """The pod of a worker."""
    name = f"{_name(mpijob)}-worker-{index}"
    template = _pod(
        mpijob,
        "Worker",
        name,
        {"K_MPI_JOB_ROLE": "worker"},
        {f"{_PREFIX}/replica-index": str(index)},
    )
    pod = _new_object(mpijob, POD, name, template["metadata"]["labels"])
    annotations = template["metadata"].get("annotations", {})
    return {
        **pod,
        "metadata": {**pod["metadata"], "annotations": annotations},
        "spec": template["spec"],
    }


def launcher(mpijob: Object) -> Object:
    """The Job of the launcher."""
    name, policy = f"{_name(mpijob)}-launcher", mpijob["spec"].get("runPolicy", {})
    env = {
        **_LAUNCHER_ENV,
        "OMPI_MCA_orte_set_default_slots": str(mpijob["spec"].get("slotsPerWorker", 1)),
    }
    pod = _pod(mpijob, "Launcher", name, env, {})
    _mount(
        pod["spec"],
        "mpi-job-config",
        "/etc/mpi",
        {"configMap": {"name": f"{_name(mpijob)}-config"}},
    )
    limits = ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
    spec = {
        **{key: policy[key] for key in limits if key in policy},
        "template": pod,
        "suspend": _is_suspended(mpijob),
    }
    return {**_new_object(mpijob, JOB, name, {"app": _name(mpijob)}), "spec": spec}


def _pod(
    mpijob: Object, role: str, hostname: str, env: dict[str, str], more: dict[str, str]
) -> Object:
    """The template of launcher or workers with what the operator puts in."""
    replicas = mpijob["spec"]["mpiReplicaSpecs"][role]
    pod: Object = copy.deepcopy(replicas["template"])
    marks = {f"{_PREFIX}/operator-name": _OPERATOR, f"{_PREFIX}/job-name": _name(mpijob)}
    metadata = pod.setdefault("metadata", {})
    metadata["labels"] = {
        **metadata.get("labels", {}),
        **marks,
        f"{_PREFIX}/job-role": role.lower(),
        **more,
    }
    default = "OnFailure" if role == "Launcher" else "Never"
    policy = replicas.get("restartPolicy", default)
    pod["spec"] |= {"hostname": hostname, "subdomain": _name(mpijob), "restartPolicy": policy}
    container = pod["spec"]["containers"][0]
    container["env"] = [
        *container.get("env", ()),
        *({"name": key, "value": value} for key, value in env.items()),
    ]
    items = [
        ("ssh-privatekey", "id_rsa"),
        ("ssh-publickey", "id_rsa.pub"),
        ("ssh-publickey", "authorized_keys"),
    ]
    secret = {
        "secretName": f"{_name(mpijob)}-ssh",
        "items": [{"key": key, "path": path} for key, path in items],
    }
    _mount(
        pod["spec"],
        "ssh-auth",
        mpijob["spec"].get("sshAuthMountPath", "/root/.ssh"),
        {"secret": secret},
    )
    return pod


def _mount(spec: Object, name: str, path: str, source: Object) -> None:
    spec["volumes"] = [*spec.get("volumes", ()), {"name": name, **source}]
    container = spec["containers"][0]
    container["volumeMounts"] = [
        *container.get("volumeMounts", ()),
        {"name": name, "mountPath": path},
    ]


def _new_object(mpijob: Object, kind: Kind, name: str, labels: dict[str, str]) -> dict[str, Any]:
    where = {"name": name, "namespace": mpijob["metadata"]["namespace"]}
    metadata = {**where, "labels": labels, "ownerReferences": controlled_by(mpijob)}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


def _name(mpijob: Object) -> str:
    return str(mpijob["metadata"]["name"])


def _worker_count(mpijob: Object) -> int:
    return int(mpijob["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"])


def _is_suspended(mpijob: Object) -> bool:
    return bool(mpijob["spec"].get("runPolicy", {}).get("suspend", False))
