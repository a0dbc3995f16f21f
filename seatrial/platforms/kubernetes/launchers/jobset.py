"""A JobSet (jobset.x-k8s.io): what the GKE recipes use, and what Kueue places by topology.

Its webhook would set several defaults; they are all set here, so that a cluster whose webhook is down does the same.
There is no failurePolicy: then the first Job that fails fails the JobSet, and is named as the reason; with one of no
restarts it would be the number of restarts.
"""

from seatrial.platforms.kubernetes.launchers import Kind, parent_of
from seatrial.platforms.kubernetes.launchers.job import job_spec
from seatrial.platforms.kubernetes.plan import KubernetesPlan, Object

_REPLICATED_JOB = "node"


class JobSet:
    """One replicated Job of all nodes."""

    kind = Kind("jobset.x-k8s.io/v1alpha2", "JobSet", needs="JobSet (github.com/kubernetes-sigs/jobset)")
    service = True

    def objects(self, plan: KubernetesPlan) -> list[Object]:
        job = job_spec(plan)
        job.pop("ttlSecondsAfterFinished")  # the JobSet's own covers its Jobs
        spec = {
            "suspend": bool(plan.settings.queue),
            "network": {"enableDNSHostnames": True, "subdomain": plan.name, "publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All"},
            "ttlSecondsAfterFinished": 600,
            "replicatedJobs": [
                {"name": _REPLICATED_JOB, "replicas": 1, "template": {"metadata": {"labels": plan.labels}, "spec": job}}
            ],
        }
        return [parent_of(plan, self.kind, spec)]


LAUNCHER = JobSet()
