"""The objects that a run submits, in order.

Each launcher is a class, with its kind and the objects that it submits. Pure.
"""

import base64
from typing import Protocol

from seatrial.platforms.kubernetes.plan import (
    RUN_ID,
    TENDED_BY,
    Kind,
    KubernetesPlan,
    Object,
    true_condition,
)
from seatrial.platforms.kubernetes.pod import CHANNEL, NODE_ROLE, RDMA, ROLE, node_template

_RUNTIME = Kind("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", needs="Kubeflow Trainer")
_DOMAIN = Kind(
    "resource.nvidia.com/v1beta1",
    "ComputeDomain",
    needs="NVIDIA's DRA driver (k8s-dra-driver-gpu)",
)
_CLAIM_TEMPLATE = Kind(
    "resource.k8s.io/v1",
    "ResourceClaimTemplate",
    needs="a Kubernetes with dynamic resource allocation",
)
# Kinds that some runs make in addition to Secret, Service and the launcher's object
EXTRAS = (_RUNTIME, _DOMAIN, _CLAIM_TEMPLATE)
_SERVICE = Kind("v1", "Service")
_ALWAYS = (Kind("v1", "Pod"), _SERVICE, Kind("v1", "Secret"))


class Launcher(Protocol):
    """The contract of launchers.

    `service`: it needs our headless Service; others create one with that name themselves.
    """

    kind: Kind
    service: bool

    def objects(self, plan: KubernetesPlan) -> list[Object]:
        """Return the objects to submit; the last makes the pods and owns the others. Pure."""


def _manifest(kind: Kind, metadata: Object, spec: Object) -> Object:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        "spec": spec,
    }


def parent_of(plan: KubernetesPlan, kind: Kind, spec: Object) -> Object:
    """Return the object that makes the pods, with the run's name, labels and queue."""
    return _manifest(kind, plan.parent_metadata(), spec)


def failed(parent: Object) -> str | None:
    """Return the message of the object's condition Failed, which all launchers' objects have; None
    without one.
    """
    if condition := true_condition(parent, "Failed"):
        return (
            f"the {parent['kind']} failed ({condition.get('reason')}): {condition.get('message')}"
        )
    return None


class Job:
    """`batch/v1` Job with one index per node; Kueue knows it as it is."""

    kind = Kind("batch/v1", "Job")
    service = True

    def objects(self, plan: KubernetesPlan) -> list[Object]:
        spec = {**job_spec(plan), **({"suspend": True} if plan.settings.queue else {})}
        spec["template"]["spec"]["subdomain"] = plan.name
        return [parent_of(plan, self.kind, spec)]


def job_spec(plan: KubernetesPlan) -> Object:
    """Return the spec of a Job of all nodes.

    A pod that dies is a finding, so nothing is started in its place.
    """
    return {
        "completionMode": "Indexed",
        "completions": plan.node_count,
        "parallelism": plan.node_count,
        "backoffLimit": 0,
        "activeDeadlineSeconds": plan.deadline_s,
        "ttlSecondsAfterFinished": 600,
        "template": node_template(plan),
    }


class JobSet:
    """One replicated Job of all nodes (jobset.x-k8s.io), as in the GKE recipes; Kueue places it by
    topology.

    All defaults of its webhook are set here, so that the object is the same if the webhook is down.
    There is no failurePolicy: then the first Job that fails fails the JobSet, and is named as the
    reason; with a policy of no restarts the reason would be the number of restarts.
    """

    kind = Kind(
        "jobset.x-k8s.io/v1alpha2", "JobSet", needs="JobSet (github.com/kubernetes-sigs/jobset)"
    )
    service = True

    def objects(self, plan: KubernetesPlan) -> list[Object]:
        job = job_spec(plan)
        job.pop("ttlSecondsAfterFinished")  # the JobSet's setting covers its Jobs
        spec = {
            "suspend": bool(plan.settings.queue),
            "network": {
                "enableDNSHostnames": True,
                "subdomain": plan.name,
                "publishNotReadyAddresses": True,
            },
            "successPolicy": {"operator": "All"},
            "ttlSecondsAfterFinished": 600,
            "replicatedJobs": [
                {
                    "name": "node",
                    "replicas": 1,
                    "template": {"metadata": {"labels": plan.labels}, "spec": job},
                }
            ],
        }
        return [parent_of(plan, self.kind, spec)]


class TrainJob:
    """A TrainJob of Kubeflow Trainer, which sets PET_* in every container, with a TrainingRuntime
    for this run.

    A TrainJob cannot change probes, shared memory and much else of a shared runtime, so the run
    brings a runtime with the whole pod. The Trainer makes a JobSet of both.
    """

    kind = Kind("trainer.kubeflow.org/v1alpha1", "TrainJob", needs="Kubeflow Trainer")
    service = False

    def objects(self, plan: KubernetesPlan) -> list[Object]:
        job = job_spec(plan)
        job.pop("ttlSecondsAfterFinished")
        # Label of the replicated job that trains
        step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
        template = {"metadata": {"labels": {**plan.labels, **step}}, "spec": job}
        job_set = {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All"},
            # Also the name of its container
            "replicatedJobs": [{"name": "node", "replicas": 1, "template": template}],
        }
        runtime = {
            "mlPolicy": {"numNodes": plan.node_count, "torch": {}},
            "template": {"spec": job_set},
        }
        spec = {
            "suspend": bool(plan.settings.queue),
            "runtimeRef": {
                "apiGroup": "trainer.kubeflow.org",
                "kind": _RUNTIME.kind,
                "name": plan.name,
            },
            "trainer": {"numNodes": plan.node_count, "numProcPerNode": plan.run.cluster.slots},
        }
        return [_manifest(_RUNTIME, plan.metadata(), runtime), parent_of(plan, self.kind, spec)]


def run_policy(plan: KubernetesPlan) -> Object:
    """Return the policy by which the operator ends a run at its deadline and removes its pods."""
    return {
        "cleanPodPolicy": "Running",  # keep failed pods, which show the node to examine
        "activeDeadlineSeconds": plan.deadline_s,
        "ttlSecondsAfterFinished": 600,
        "suspend": bool(plan.settings.queue),
    }


def replicas(count: int, template: Object) -> Object:
    """Return one entry of the replica specs; the operator takes the restart policy from the entry,
    not the pod.
    """
    spec = {key: value for key, value in template["spec"].items() if key != "restartPolicy"}
    return {"replicas": count, "restartPolicy": "Never", "template": {**template, "spec": spec}}


class PyTorchJob:
    """One Master and the other nodes as Workers; Kubeflow's training operator sets PET_*,
    MASTER_ADDR and RANK.

    No pod restarts, so the job fails with the first one. With a backoffLimit the operator (1.8.1)
    would then delete all pods, whatever their cleanPodPolicy, and nothing would say which node
    failed.
    """

    kind = Kind("kubeflow.org/v1", "PyTorchJob", needs="the Kubeflow training operator")
    service = False

    def objects(self, plan: KubernetesPlan) -> list[Object]:
        template = node_template(plan, "pytorch")  # the operator looks for this name
        specs = {"Master": replicas(1, template)}
        if plan.node_count > 1:
            specs["Worker"] = replicas(plan.node_count - 1, template)
        spec = {
            "nprocPerNode": str(plan.run.cluster.slots),
            "runPolicy": run_policy(plan),
            "pytorchReplicaSpecs": specs,
        }
        return [parent_of(plan, self.kind, spec)]


class MPIJob:
    """A worker per node, and the launcher pod that Kubeflow's MPI operator wants as well.

    The launcher pod only waits: commands come from outside, over SSH. When its time is over the
    workers go with it; the MPIJob itself stays until it is deleted (`seatrial reap`).
    """

    kind = Kind("kubeflow.org/v2beta1", "MPIJob", needs="the Kubeflow MPI operator")
    service = False

    def objects(self, plan: KubernetesPlan) -> list[Object]:
        spec = {
            "slotsPerWorker": plan.run.cluster.slots,
            # Otherwise the operator mounts its keys over ~/.ssh
            "sshAuthMountPath": "/etc/mpi-operator-ssh",
            "runPolicy": run_policy(plan) | {"backoffLimit": 0},  # of the launcher pod's Job
            "mpiReplicaSpecs": {
                "Launcher": replicas(1, _waiting_pod(plan)),
                "Worker": replicas(plan.node_count, node_template(plan)),
            },
        }
        return [parent_of(plan, self.kind, spec)]


def _waiting_pod(plan: KubernetesPlan) -> Object:
    spec = node_template(plan)["spec"]
    container = spec["containers"][0]
    waits = {
        "name": "launcher",
        "image": container["image"],
        "command": ["sleep", str(plan.deadline_s)],
        "securityContext": {  # required by the Pod Security Standard "restricted"
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        **(
            {"imagePullPolicy": container["imagePullPolicy"]}
            if "imagePullPolicy" in container
            else {}
        ),
    }
    kept = (
        "automountServiceAccountToken",
        "imagePullSecrets",
        "nodeSelector",
        "schedulerName",
        "securityContext",
        "serviceAccountName",
        "terminationGracePeriodSeconds",
        "tolerations",
    )
    return {
        "metadata": {"labels": {**plan.settings.labels, **plan.labels, ROLE: "launcher"}},
        "spec": {**{key: spec[key] for key in kept if key in spec}, "containers": [waits]},
    }


# By name, in order of deletion: controllers would recreate the objects that they own
LAUNCHERS: dict[str, Launcher] = {
    "trainjob": TrainJob(),
    "jobset": JobSet(),
    "pytorchjob": PyTorchJob(),
    "mpijob": MPIJob(),
    "job": Job(),
}


def objects(plan: KubernetesPlan, keys: dict[str, str]) -> list[Object]:
    """Return Secret, Service, claims and the launcher's objects; the last one owns the others.

    `keys` are by file name.
    """
    launcher = LAUNCHERS[plan.settings.launcher]
    services = [service(plan)] if launcher.service else []
    return [secret(plan, keys), *services, *claims(plan), *launcher.objects(plan)]


def claims(plan: KubernetesPlan) -> list[Object]:
    """Return the claims of the machine family: for NVLink domains that span nodes, and for RDMA
    interfaces.
    """
    profile = plan.settings.profile
    made = []
    if profile.compute_domain:
        channel = {"resourceClaimTemplate": {"name": f"{plan.name}-{CHANNEL}"}}
        spec: Object = {"numNodes": plan.node_count, "channel": channel}
        made.append(_manifest(_DOMAIN, plan.metadata(), spec))
    if profile.rdma_claims:
        exactly = {
            "deviceClassName": "mrdma.google.com",
            "allocationMode": "ExactCount",
            "count": profile.rdma_claims,
        }
        spec = {"spec": {"devices": {"requests": [{"name": RDMA, "exactly": exactly}]}}}
        made.append(_manifest(_CLAIM_TEMPLATE, plan.metadata(name=f"{plan.name}-{RDMA}"), spec))
    return made


def kinds() -> tuple[Kind, ...]:
    """Return all kinds of objects that any run may have made, owners first."""
    return (*(launcher.kind for launcher in LAUNCHERS.values()), *EXTRAS, *_ALWAYS)


def needs(launcher: Launcher, kind: Kind) -> bool:
    """Return whether every run with this launcher makes objects of the kind; other kinds may be
    missing or forbidden.
    """
    return kind in (launcher.kind, *_ALWAYS)


def kind_of(manifest: Object) -> Kind:
    """Return the kind of an object, with what to install where the cluster does not know it."""
    for kind in kinds():
        if (kind.api_version, kind.kind) == (manifest["apiVersion"], manifest["kind"]):
            return kind
    return Kind(manifest["apiVersion"], manifest["kind"])


def secret(plan: KubernetesPlan, keys: dict[str, str]) -> Object:
    """Return the run's own keys."""
    data = {name: base64.b64encode(text.encode()).decode() for name, text in keys.items()}
    metadata = plan.metadata()
    if plan.pod:
        metadata["annotations"][TENDED_BY] = plan.pod
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "data": data,
    }


def service(plan: KubernetesPlan) -> Object:
    """Return a headless Service, which gives every pod a name before it is ready."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {RUN_ID: plan.run.run_id, ROLE: NODE_ROLE},
        "ports": [{"name": "ssh", "port": plan.run.cluster.ssh_port}],
    }
    return _manifest(_SERVICE, plan.metadata(), spec)
