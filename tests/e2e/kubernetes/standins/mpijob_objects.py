"""What the MPI operator makes of an MPIJob, for Open MPI. Pure, but for the keys."""

import base64
import copy

from seatrial.remote.ssh import new_key_pair
from tests.e2e.kubernetes.standins.world import CONFIG_MAP, JOB, POD, SECRET, SERVICE, Kind, Object, controlled_by

PREFIX, OPERATOR = "training.kubeflow.org", "mpi-operator"
LAUNCHER_ENV = {
    "K_MPI_JOB_ROLE": "launcher",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    "NVIDIA_VISIBLE_DEVICES": "",
    "NVIDIA_DRIVER_CAPABILITIES": "",
}


def around(mpijob: Object) -> list[Object]:
    """Service, ConfigMap and Secret: how the pods find each other, and log in to each other."""
    name, namespace = name_of(mpijob), mpijob["metadata"]["namespace"]
    slots = mpijob["spec"].get("slotsPerWorker", 1)
    hosts = [f"{name}-worker-{index}.{name}.{namespace}.svc" for index in range(worker_count(mpijob))]
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
    name = f"{name_of(mpijob)}-worker-{index}"
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
    name, policy = f"{name_of(mpijob)}-launcher", mpijob["spec"].get("runPolicy", {})
    env = {**LAUNCHER_ENV, "OMPI_MCA_orte_set_default_slots": str(mpijob["spec"].get("slotsPerWorker", 1))}
    pod = _pod(mpijob, "Launcher", name, env, {})
    _mount(pod["spec"], "mpi-job-config", "/etc/mpi", {"configMap": {"name": f"{name_of(mpijob)}-config"}})
    limits = ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
    spec = {**{key: policy[key] for key in limits if key in policy}, "template": pod, "suspend": is_suspended(mpijob)}
    return {**_made(mpijob, JOB, name, {"app": name_of(mpijob)}), "spec": spec}


def _pod(mpijob: Object, role: str, hostname: str, env: dict[str, str], more: dict[str, str]) -> Object:
    """The template of launcher or workers with what the operator puts in."""
    replicas = mpijob["spec"]["mpiReplicaSpecs"][role]
    pod: Object = copy.deepcopy(replicas["template"])
    marks = {f"{PREFIX}/operator-name": OPERATOR, f"{PREFIX}/job-name": name_of(mpijob)}
    metadata = pod.setdefault("metadata", {})
    metadata["labels"] = {**metadata.get("labels", {}), **marks, f"{PREFIX}/job-role": role.lower(), **more}
    default = "OnFailure" if role == "Launcher" else "Never"
    pod["spec"] |= {
        "hostname": hostname,
        "subdomain": name_of(mpijob),
        "restartPolicy": replicas.get("restartPolicy", default),
    }
    container = pod["spec"]["containers"][0]
    container["env"] = [*container.get("env", ()), *({"name": key, "value": value} for key, value in env.items())]
    items = [("ssh-privatekey", "id_rsa"), ("ssh-publickey", "id_rsa.pub"), ("ssh-publickey", "authorized_keys")]
    secret = {"secretName": f"{name_of(mpijob)}-ssh", "items": [{"key": key, "path": path} for key, path in items]}
    _mount(pod["spec"], "ssh-auth", mpijob["spec"].get("sshAuthMountPath", "/root/.ssh"), {"secret": secret})
    return pod


def _mount(spec: Object, name: str, path: str, source: Object) -> None:
    spec["volumes"] = [*spec.get("volumes", ()), {"name": name, **source}]
    container = spec["containers"][0]
    container["volumeMounts"] = [*container.get("volumeMounts", ()), {"name": name, "mountPath": path}]


def _made(mpijob: Object, kind: Kind, name: str, labels: dict[str, str]) -> Object:
    where = {"name": name, "namespace": mpijob["metadata"]["namespace"]}
    owners = controlled_by(mpijob)
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {**where, "labels": labels, "ownerReferences": owners},
    }


def name_of(mpijob: Object) -> str:
    return str(mpijob["metadata"]["name"])


def worker_count(mpijob: Object) -> int:
    return int(mpijob["spec"]["mpiReplicaSpecs"].get("Worker", {}).get("replicas", 0))


def is_suspended(mpijob: Object) -> bool:
    return bool(mpijob["spec"].get("runPolicy", {}).get("suspend", False))
