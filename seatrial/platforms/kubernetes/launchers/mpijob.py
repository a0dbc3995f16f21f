"""An MPIJob (kubeflow.org/v2beta1) of the Kubeflow MPI operator. Its workers are the nodes.

The operator wants a launcher pod as well; it only waits there, because commands come from outside, over SSH. When its
time is over the workers go with it; the MPIJob itself stays until somebody deletes it (`seatrial reap`).
"""

from seatrial.platforms.kubernetes.launchers import Kind, parent_of
from seatrial.platforms.kubernetes.launchers.kubeflow import replicas, run_policy
from seatrial.platforms.kubernetes.plan import KubernetesPlan, Object
from seatrial.platforms.kubernetes.pod import ROLE, node_template

# The operator gives workers without a command its own sshd, and mounts its own keys over ~/.ssh; both are ours to make.
_ENTRY_POINT = ["/usr/bin/tini", "-s", "--", "seatrial-node"]
_OPERATORS_KEYS = "/etc/mpi-operator-ssh"
_NO_RIGHTS = {  # as the Pod Security Standard "restricted" wants it
    "runAsNonRoot": True,
    "runAsUser": 65534,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


class MPIJob:
    """One launcher pod that waits, and a worker per node."""

    kind = Kind("kubeflow.org/v2beta1", "MPIJob", needs="the Kubeflow MPI operator")
    service = False

    def objects(self, plan: KubernetesPlan) -> list[Object]:
        workers = node_template(plan)
        workers["spec"]["containers"][0]["command"] = _ENTRY_POINT
        spec = {
            "slotsPerWorker": plan.run.cluster.slots,
            "sshAuthMountPath": _OPERATORS_KEYS,
            "runPolicy": run_policy(plan),
            "mpiReplicaSpecs": {
                "Launcher": replicas(1, _waiting_pod(plan)),
                "Worker": replicas(plan.nodes, workers),
            },
        }
        return [parent_of(plan, self.kind, spec)]


def _waiting_pod(plan: KubernetesPlan) -> Object:
    node = node_template(plan)
    spec, container = node["spec"], node["spec"]["containers"][0]
    waits = {
        "name": "launcher",
        "image": container["image"],
        "command": ["sleep", str(plan.deadline_s)],
        "securityContext": _NO_RIGHTS,
        **({"imagePullPolicy": container["imagePullPolicy"]} if "imagePullPolicy" in container else {}),
    }
    kept = (
        "automountServiceAccountToken",
        "imagePullSecrets",
        "nodeSelector",
        "securityContext",
        "serviceAccountName",
        "terminationGracePeriodSeconds",
        "tolerations",
    )
    return {
        "metadata": {"labels": {**plan.labels, ROLE: "launcher"}},
        "spec": {**{key: spec[key] for key in kept if key in spec}, "containers": [waits]},
    }


LAUNCHER = MPIJob()
