"""The names and labels of one run's objects, and the input of launchers. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from seatrial.config.run import Run
from seatrial.model.errors import InputError
from seatrial.platforms.kubernetes.config import KubernetesPlatform

KIND = "kubernetes"  # name of the state folder of runs
RUN_ID = "seatrial/run-id"  # label of all objects of a run
CLUSTER = "seatrial/cluster"
# Annotation: the owner, who alone can tell whether the run's process still lives
OWNER = "seatrial/owner"
# Annotation of the run's Secret: the pod of this namespace that manages the run, if it is a pod
TENDED_BY = "seatrial/pod"
# Annotation: after this time, any owner may treat the run as abandoned
EXPIRES = "seatrial/expires"

Object = dict[str, Any]
_LONGEST_NAME = 45  # a JobSet makes pods NAME-node-0-4095-abcde of it, and 63 characters are legal


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object of the API server; `needs` says what to install for it, if anything.

    `older` is an API version to read it by if the cluster does not serve `api_version`.
    """

    api_version: str
    kind: str
    needs: str | None = None
    older: str | None = None


@dataclass(frozen=True, slots=True)
class KubernetesPlan:
    """Names and labels of a run's objects; parent, Service and Secret are all called `name`."""

    run: Run
    settings: KubernetesPlatform
    owner: str = "<this host>"
    made: datetime | None = None
    pod: str | None = None

    @property
    def name(self) -> str:
        return f"seatrial-{self.run.run_id}"

    @property
    def labels(self) -> dict[str, str]:
        return {
            "app.kubernetes.io/managed-by": "seatrial",
            RUN_ID: self.run.run_id,
            CLUSTER: self.run.cluster.name,
        }

    @property
    def node_count(self) -> int:
        return self.run.cluster.nodes

    @property
    def deadline_s(self) -> int:
        """Seconds after which Kubernetes ends the nodes, with the time that they may be kept."""
        return int(self.settings.deadline_s + self.run.cluster.kept_s)

    def metadata(self, **more: Any) -> Object:
        """Return the metadata of an object of the run."""
        lives = timedelta(seconds=self.settings.queue_timeout_s + self.deadline_s)
        expires = (
            (self.made + lives).isoformat(timespec="seconds")
            if self.made
            else "<submission and its timeouts>"
        )
        return {
            "name": self.name,
            "namespace": self.settings.namespace,
            "labels": self.labels,
            "annotations": {OWNER: self.owner, EXPIRES: expires},
            **more,
        }

    def parent_metadata(self) -> Object:
        """Return the metadata of the launcher's object, with the queue and priority for Kueue.

        Without Kueue, the priority class is set on pods.
        """
        queue_labels = {
            "queue-name": self.settings.queue,
            "priority-class": self.settings.queue_priority,
        }
        kueue = {f"kueue.x-k8s.io/{label}": value for label, value in queue_labels.items() if value}
        return self.metadata(labels={**self.settings.labels, **self.labels, **kueue})


def plan(run: Run, owner: str | None = None, pod: str | None = None) -> KubernetesPlan:
    """Return the plan of a run; with an `owner`, of a run that is submitted now.

    Raises InputError if names get too long.
    """
    settings = run.cluster.platform
    assert isinstance(settings, KubernetesPlatform)
    made = (
        KubernetesPlan(run, settings, owner, datetime.now(UTC), pod)
        if owner
        else KubernetesPlan(run, settings)
    )
    if len(made.name) > _LONGEST_NAME:
        raise InputError(f"run id {run.run_id!r}: is too long for the names of Kubernetes objects")
    return made


def selector(run_id: str | None = None) -> str:
    """Return the label selector of a run's objects; of all runs when None."""
    return f"{RUN_ID}={run_id}" if run_id else f"app.kubernetes.io/managed-by=seatrial,{RUN_ID}"


def conditions(manifest: Object | None) -> dict[str, Object]:
    """Return the conditions of an object, by type, ignoring entries of another form."""
    entries = (manifest or {}).get("status", {}).get("conditions", ())
    return {each["type"]: each for each in entries if "type" in each}


def true_condition(manifest: Object | None, kind: str) -> Object | None:
    """Return the condition of that type, where it is True."""
    condition = conditions(manifest).get(kind, {})
    return condition if condition.get("status") == "True" else None
