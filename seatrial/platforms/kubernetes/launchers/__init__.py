"""What the nodes are submitted as. A launcher is one small module: what it submits, and what its status says."""

from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from seatrial.platforms.kubernetes.conditions import holding
from seatrial.platforms.kubernetes.plan import KubernetesPlan, Object


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object, as the API server knows it; `needs` is what has to be installed for it, if anything.

    `older` is the version to read it by where the cluster does not serve the other one yet.
    """

    api_version: str
    kind: str
    needs: str | None = None
    older: str | None = None


class Launcher(Protocol):
    """The contract of every launcher. `service`: it needs our headless Service; others make their own of that name."""

    kind: Kind
    service: bool

    def objects(self, plan: KubernetesPlan) -> list[Object]:
        """What it submits; the last makes the pods and owns everything else. Pure."""


_NAMES = ("trainjob", "jobset", "pytorchjob", "mpijob", "job")  # what makes others first: it would make them anew


def launcher_for(name: str) -> Launcher:
    """The launcher of that name."""
    launcher: Launcher = import_module(f"{__name__}.{name}").LAUNCHER
    return launcher


def launchers() -> list[Launcher]:
    """Every launcher there is: what a run's objects may be."""
    return [launcher_for(name) for name in _NAMES]


def parent_of(plan: KubernetesPlan, kind: Kind, spec: Object) -> Object:
    """What makes the pods, with the run's name, labels and queue."""
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": plan.parent_metadata(), "spec": spec}


def failed(parent: Object) -> str | None:
    """What the condition Failed of an object says, as every launcher's has it; None while it does not hold."""
    if condition := holding(parent, "Failed"):
        return f"the {parent['kind']} failed ({condition.get('reason')}): {condition.get('message')}"
    return None
