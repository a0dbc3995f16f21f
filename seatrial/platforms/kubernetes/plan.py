"""The names and labels of one run's objects, and what a launcher gets to work with. Pure."""

from dataclasses import dataclass
from typing import Any

from seatrial.builders.config import Prebuilt
from seatrial.errors import InputError
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.run import Run

RUN_ID = "seatrial/run-id"  # label of everything that a run makes
CLUSTER = "seatrial/cluster"
OWNER = "seatrial/owner"  # annotation: host of the process that made it
MANAGED_BY = {"app.kubernetes.io/managed-by": "seatrial"}

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """What every object of a run has in common. `name` is that of the parent, the Service and the Secret alike."""

    run: Run
    settings: KubernetesPlatform
    owner: str = ""

    @property
    def name(self) -> str:
        return f"seatrial-{self.run.run_id}"

    @property
    def labels(self) -> dict[str, str]:
        return {**MANAGED_BY, RUN_ID: self.run.run_id, CLUSTER: self.run.cluster.name}

    @property
    def image(self) -> str:
        """What the nodes run; before it is built or found, what the cluster file says of it."""
        image = self.run.cluster.image
        if self.run.image or image is None:
            return self.run.image or "<none>"
        return image.reference if isinstance(image, Prebuilt) else f"<{image.name}, once built>"

    @property
    def nodes(self) -> int:
        return self.run.cluster.nodes

    def metadata(self, **more: Any) -> Object:
        """The metadata of an object of the run."""
        annotations = {"annotations": {OWNER: self.owner}} if self.owner else {}
        return {"name": self.name, "namespace": self.settings.namespace, "labels": self.labels, **annotations, **more}

    def parent_metadata(self) -> Object:
        """The metadata of what is submitted: Kueue reads the queue and its priority there."""
        queue = {"kueue.x-k8s.io/queue-name": self.settings.queue} if self.settings.queue else {}
        priority = self.settings.queue and self.settings.priority_class
        more = {"kueue.x-k8s.io/priority-class": priority} if priority else {}
        return self.metadata(labels={**self.labels, **queue, **more})


def plan(run: Run, owner: str = "") -> Plan:
    """Raises InputError where a run of this cluster cannot be submitted."""
    settings = run.cluster.platform
    assert isinstance(settings, KubernetesPlatform)
    made = Plan(run, settings, owner)
    if len(made.name) > 52:  # pods get up to eleven more: "-0-4095-abcde" of a JobSet, a Job's own suffix
        raise InputError(f"run id {run.run_id!r}: is too long for the names of Kubernetes objects")
    return made


def selector(run_id: str | None = None) -> str:
    """The label selector of a run's objects; of all runs when None."""
    return f"{RUN_ID}={run_id}" if run_id else f"app.kubernetes.io/managed-by=seatrial,{RUN_ID}"
