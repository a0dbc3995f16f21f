"""A PyTorchJob (kubeflow.org/v1) of the Kubeflow training operator: one Master and the other nodes as Workers."""

from seatrial.platforms.kubernetes.launchers import Kind, parent_of
from seatrial.platforms.kubernetes.launchers.kubeflow import replicas, run_policy
from seatrial.platforms.kubernetes.plan import KubernetesPlan, Object
from seatrial.platforms.kubernetes.pod import node_template

_CONTAINER = "pytorch"  # the operator looks for this name


class PyTorchJob:
    """The operator sets PET_*, MASTER_ADDR and RANK in every container, as it would for training."""

    kind = Kind("kubeflow.org/v1", "PyTorchJob", needs="the Kubeflow training operator")
    service = False

    def objects(self, plan: KubernetesPlan) -> list[Object]:
        template = node_template(plan, _CONTAINER)
        specs = {"Master": replicas(1, template)}
        if plan.nodes > 1:
            specs["Worker"] = replicas(plan.nodes - 1, template)
        spec = {
            "nprocPerNode": str(plan.run.cluster.slots),
            "runPolicy": run_policy(plan),
            "pytorchReplicaSpecs": specs,
        }
        return [parent_of(plan, self.kind, spec)]


LAUNCHER = PyTorchJob()
