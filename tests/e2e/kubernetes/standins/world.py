"""What stand-ins think with, all of it pure: kinds, what is known of the cluster, what is to be
done, conditions.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

Object = dict[str, Any]


class Kind(NamedTuple):
    """A kind of object, as the API server knows it."""

    api_version: str
    kind: str


JOB, POD, NODE = Kind("batch/v1", "Job"), Kind("v1", "Pod"), Kind("v1", "Node")
SECRET, CONFIG_MAP, SERVICE = Kind("v1", "Secret"), Kind("v1", "ConfigMap"), Kind("v1", "Service")


class Complaint(NamedTuple):
    """A Warning event about an object; `text` has a place {} for what the API server says."""

    about: Object
    reason: str
    text: str


class Create(NamedTuple):
    """Make an object; one that is there already is left as it is.

    `refused`: how the API server refuses it.
    """

    target: Object
    refused: Complaint | None = None


class Patch(NamedTuple):
    """A merge patch (lists are replaced as a whole, None removes) of an object, or of its
    subresource "status".
    """

    target: Object
    body: Object
    subresource: str | None = None


class Delete(NamedTuple):
    """Delete an object, and by the garbage collector what it owns."""

    target: Object


Action = Create | Patch | Delete


@dataclass
class World:
    """What the watches have shown so far; `now` is the time of the pass."""

    objects: dict[Kind, dict[tuple[str | None, str], Object]] = field(default_factory=dict)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def take(self, target: Object) -> None:
        """An older state than the one that is known is no news."""
        known = self.objects.setdefault(kind_of(target), {}).get(_place(target))
        if known is None or _version(target) >= _version(known):
            self.objects[kind_of(target)][_place(target)] = target

    def drop(self, target: Object) -> None:
        self.objects.setdefault(kind_of(target), {}).pop(_place(target), None)

    def all(self, kind: Kind, namespace: str | None = None) -> list[Object]:
        """All of a kind, in one namespace or everywhere, by name."""
        objects = self.objects.get(kind, {})
        places = sorted((place for place in objects if namespace in (None, place[0])), key=_spelt)
        return [objects[place] for place in places]

    def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """One object; None when there is none. Nodes and the like are in no namespace (None)."""
        return self.objects.get(kind, {}).get((namespace, name))

    def owned(self, owner: Object, kind: Kind) -> list[Object]:
        """What `owner` controls, of a kind, by name."""
        uid, namespace = owner["metadata"]["uid"], owner["metadata"].get("namespace")
        return [target for target in self.all(kind, namespace) if uid in _controllers(target)]


def kind_of(target: Object) -> Kind:
    return Kind(target["apiVersion"], target["kind"])


def controlled_by(owner: Object) -> list[Object]:
    """The ownerReferences of what `owner` makes."""
    identity = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    identity |= {key: owner["metadata"][key] for key in ("name", "uid")}
    return [{**identity, "controller": True, "blockOwnerDeletion": True}]


def conditions(target: Object) -> list[Object]:
    """Of an object's status; each holds or does not."""
    return list(target.get("status", {}).get("conditions") or ())


def holds(target: Object, *kinds: str) -> Object | None:
    """The first of these conditions that is True; None when none of them is."""
    return next(
        (each for each in conditions(target) if each["type"] in kinds and each["status"] == "True"),
        None,
    )


def with_condition(
    old: list[Object], now: datetime, kind: str, true: bool, reason: str, message: str
) -> list[Object]:
    """The conditions with this one in place of what was of its type; the time stays where the
    status stays.
    """
    new = {
        "type": kind,
        "status": "True" if true else "False",
        "reason": reason,
        "message": message,
    }
    before = next((each for each in old if each["type"] == kind), None)
    if before is None:
        return [*old, {**new, "lastTransitionTime": stamp(now)}]
    since = before["lastTransitionTime"] if before["status"] == new["status"] else stamp(now)
    return [
        {**each, **new, "lastTransitionTime": since} if each is before else each for each in old
    ]


def set_status(target: Object, **fields: Any) -> Iterator[Action]:
    """Set fields of the object's status where they are not so already."""
    if changed := {
        key: value for key, value in fields.items() if target.get("status", {}).get(key) != value
    }:
        yield Patch(target, {"status": changed}, "status")


def suspend(job: Object) -> Iterator[Action]:
    """Take a Job's pods away."""
    yield Patch(job, {"spec": {"suspend": True}})


def resume(job: Object, desired: Object) -> Iterator[Action]:
    """Let a Job have its pods, where `desired` has them go: whoever suspended it may have decided
    that meanwhile.
    """
    if "startTime" in job.get("status", {}):  # or its template cannot be changed
        yield Patch(job, {"status": {"startTime": None}}, "status")
    pod = desired["spec"]["template"]
    placing = {key: pod["spec"][key] for key in _PLACING if key in pod["spec"]}
    yield Patch(
        job,
        {"spec": {"suspend": False, "template": {"metadata": pod["metadata"], "spec": placing}}},
    )


_PLACING = ("nodeSelector", "tolerations", "schedulingGates")


def warning(complaint: Complaint, refusal: str, now: datetime) -> Object:
    """The event. What is said again is the same event."""
    metadata, message = complaint.about["metadata"], complaint.text.format(refusal)
    of = {"apiVersion": complaint.about["apiVersion"], "kind": complaint.about["kind"]}
    digest = hashlib.sha256(f"{metadata['uid']} {complaint.reason} {message}".encode()).hexdigest()[
        :16
    ]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{digest}", "namespace": metadata["namespace"]},
        "involvedObject": {**of, **{key: metadata[key] for key in ("name", "namespace", "uid")}},
        "type": "Warning",
        "reason": complaint.reason,
        "message": message,
        "source": {"component": "standin"},
        "firstTimestamp": stamp(now),
        "lastTimestamp": stamp(now),
    }


def stamp(now: datetime) -> str:
    """A time as the API server writes it."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _place(target: Object) -> tuple[str | None, str]:
    return target["metadata"].get("namespace"), target["metadata"]["name"]


def _spelt(place: tuple[str | None, str]) -> tuple[str, str]:
    return place[0] or "", place[1]


def _version(target: Object) -> int:
    """Since Kubernetes 1.35 versions of one kind may be compared."""
    return int(target["metadata"].get("resourceVersion", 0))


def _controllers(target: Object) -> list[str]:
    return [
        owner["uid"]
        for owner in target["metadata"].get("ownerReferences", ())
        if owner.get("controller")
    ]
