"""A TrainJob (trainer.kubeflow.org) of Kubeflow Trainer, on a TrainingRuntime of the run's own.

What a TrainJob may change of a shared runtime leaves out probes, shared memory and much else, so the run brings its own
runtime with the whole pod in it. The Trainer makes a JobSet of both.
"""

from seatrial.platforms.kubernetes.launchers import Kind, parent_of
from seatrial.platforms.kubernetes.launchers.job import job_spec
from seatrial.platforms.kubernetes.plan import KubernetesPlan, Object

_STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}  # marks the replicated job that trains
_NAME = "node"  # of that replicated job, and of its container


class TrainJob:
    """The Trainer sets PET_* in every container, as it would for training."""

    kind = Kind("trainer.kubeflow.org/v1alpha1", "TrainJob", needs="Kubeflow Trainer")
    service = False

    def objects(self, plan: KubernetesPlan) -> list[Object]:
        slots = plan.run.cluster.slots
        spec = {
            "suspend": bool(plan.settings.queue),
            "runtimeRef": {
                "apiGroup": "trainer.kubeflow.org",
                "kind": "TrainingRuntime",
                "name": plan.name,
            },
            "trainer": {"numNodes": plan.nodes, "numProcPerNode": slots},
        }
        return [_runtime(plan), parent_of(plan, self.kind, spec)]


def _runtime(plan: KubernetesPlan) -> Object:
    job = {"metadata": {"labels": {**plan.labels, **_STEP}}, "spec": _job(plan)}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": plan.metadata(),
        "spec": {
            "mlPolicy": {"numNodes": plan.nodes, "torch": {}},
            "template": {
                "spec": {
                    "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
                    "successPolicy": {"operator": "All"},
                    "replicatedJobs": [{"name": _NAME, "replicas": 1, "template": job}],
                }
            },
        },
    }


def _job(plan: KubernetesPlan) -> Object:
    job = job_spec(plan, _NAME)
    job.pop("ttlSecondsAfterFinished")
    return job


LAUNCHER = TrainJob()
