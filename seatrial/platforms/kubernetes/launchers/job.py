"""A plain Indexed Job: every Kubernetes has it, nothing has to be installed."""

from seatrial.platforms.kubernetes.launchers import Kind, parent_of
from seatrial.platforms.kubernetes.plan import KubernetesPlan, Object
from seatrial.platforms.kubernetes.pod import node_template


class Job:
    """`batch/v1` Job with one index per node; Kueue knows it as it is."""

    kind = Kind("batch/v1", "Job")
    service = True

    def objects(self, plan: KubernetesPlan) -> list[Object]:
        spec = {**job_spec(plan), **({"suspend": True} if plan.settings.queue else {})}
        spec["template"]["spec"]["subdomain"] = plan.name
        return [parent_of(plan, self.kind, spec)]


def job_spec(plan: KubernetesPlan, container: str = "node") -> Object:
    """The spec of a Job of all nodes. A pod that dies is a finding, so nothing is started in its place."""
    return {
        "completionMode": "Indexed",
        "completions": plan.nodes,
        "parallelism": plan.nodes,
        "backoffLimit": 0,
        "activeDeadlineSeconds": plan.deadline_s,
        "ttlSecondsAfterFinished": 600,
        "template": node_template(plan, container),
    }


LAUNCHER = Job()
