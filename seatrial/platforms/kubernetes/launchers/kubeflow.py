"""What Kubeflow's older operators, PyTorchJob and MPIJob, have in common."""

from seatrial.platforms.kubernetes.plan import KubernetesPlan, Object


def run_policy(plan: KubernetesPlan) -> Object:
    """Nothing is tried again; the operator ends what nobody tends, and removes its pods."""
    return {
        "cleanPodPolicy": "Running",  # a pod that has failed says which node to look at
        "backoffLimit": 0,
        "activeDeadlineSeconds": plan.deadline_s,
        "ttlSecondsAfterFinished": 600,
        "suspend": bool(plan.settings.queue),
    }


def replicas(count: int, template: Object) -> Object:
    """One entry of the replica specs; the operator sets the pods' restart policy from the entry's."""
    spec = {key: value for key, value in template["spec"].items() if key != "restartPolicy"}
    return {"replicas": count, "restartPolicy": "Never", "template": {**template, "spec": spec}}
