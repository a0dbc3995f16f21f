"""What stand-ins for controllers share: objects seen by watches go in, what is to be done with the
cluster comes out.

A stand-in is a module with three names:

    FOLLOWS = (JOB, SERVICE)    # kinds whose objects it looks at or makes
    TENDS = (JOBSET,)           # kinds, followed as well, whose objects `reconcile` gets
    def reconcile(resource, world): ...     # pure: yields what to do for what `resource` wants

After every change, and every second, `reconcile` gets each object that it tends. It looks at how
things are and not at what has changed, so it may be asked any number of times, and asks for nothing
where all is well.
"""

import json
import logging
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from kubernetes import config
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ResourceNotFoundError
from kubernetes.watch import Watch
from urllib3.exceptions import HTTPError

from tests.e2e.kubernetes.standins.world import (
    Action,
    Create,
    Delete,
    Kind,
    Object,
    Patch,
    World,
    warning,
)

Changes: TypeAlias = "queue.SimpleQueue[tuple[str, Kind, list[Object]]]"
log = logging.getLogger("standin")

_TICK_S = 1.0  # for what happens by the clock
_SETTLE_S = 0.05  # changes come in swarms
_TIMEOUTS_S = (10, 330)  # to connect, and of a watch without events


class Standin(Protocol):
    """What the module of a stand-in has."""

    @property
    def FOLLOWS(self) -> tuple[Kind, ...]: ...

    @property
    def TENDS(self) -> tuple[Kind, ...]: ...

    def reconcile(self, resource: Object, world: World, /) -> Iterable[Action]: ...


def run(standin: Standin, kubeconfig: Path) -> None:
    """Tend the cluster until standard input ends, which it does when whoever started this ends,
    however he ends.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # The client's own cache of kinds outlives the kinds
    with tempfile.TemporaryDirectory() as folder:
        api = DynamicClient(
            config.new_client_from_config(str(kubeconfig)), cache_file=f"{folder}/kinds.json"
        )
    changes: Changes = queue.SimpleQueue()
    kinds = [
        kind for kind in dict.fromkeys((*standin.TENDS, *standin.FOLLOWS)) if _known(api, kind)
    ]
    for kind in kinds:
        resource = api.resources.get(api_version=kind.api_version, kind=kind.kind)
        threading.Thread(target=_follow, args=(resource, kind, changes), daemon=True).start()
    world = World()
    while True:
        _take_changes(world, changes)
        if len(world.objects) >= len(kinds):  # every kind was listed once
            world.now = datetime.now(UTC)
            for tended in [tended for kind in standin.TENDS for tended in world.all(kind)]:
                if "deletionTimestamp" not in tended["metadata"]:
                    _bring_about(api, list(standin.reconcile(tended, world)), world)


def _bring_about(api: DynamicClient, actions: list[Action], world: World) -> None:
    """One action after the other, up to the first that is refused: the next pass sees how things
    are then.
    """
    for action in actions:
        summary = (
            f"{type(action).__name__} {action.target['kind']} {action.target['metadata']['name']}"
        )
        try:
            _carry_out(api, action, world)
        except (ApiException, HTTPError) as error:
            # The object changed or went meanwhile, it is not allowed
            message = _message_of(error)
            log.warning("%s: %s", summary, message)
            if (
                isinstance(action, Create)
                and action.refused
                and getattr(error, "status", None) == 403
            ):
                _bring_about(api, [Create(warning(action.refused, message, world.now))], world)
            return
        log.info("%s", summary)


def _carry_out(api: DynamicClient, action: Action, world: World) -> None:
    target = action.target
    where = {"name": target["metadata"]["name"], "namespace": target["metadata"].get("namespace")}
    resource = api.resources.get(api_version=target["apiVersion"], kind=target["kind"])
    match action:
        case Create():
            world.take(resource.create(body=target, namespace=where["namespace"]).to_dict())
        case Patch(_, body, subresource):
            part = getattr(resource, subresource) if subresource else resource
            world.take(
                part.patch(
                    body=body, content_type="application/merge-patch+json", **where
                ).to_dict()
            )
        case Delete():
            resource.delete(body={"propagationPolicy": "Background"}, **where)
            world.drop(target)


def _message_of(error: Exception) -> str:
    """What the API server says of it, in one line."""
    try:
        return str(json.loads(getattr(error, "body", ""))["message"])
    except (ValueError, TypeError, KeyError):
        return " ".join(str(error).split())[:300]


def _take_changes(world: World, changes: Changes) -> None:
    """Wait for a change, then for the swarm; a second at most."""
    deadline, timeout_s = time.monotonic() + _TICK_S, _TICK_S
    while time.monotonic() < deadline:
        try:
            change, kind, objects = changes.get(timeout=timeout_s)
        except queue.Empty:
            return
        timeout_s = _SETTLE_S
        if change == "LISTED":
            world.objects[kind] = {}
        for changed in objects:
            (world.drop if change == "DELETED" else world.take)(changed)


def _follow(resource: Any, kind: Kind, changes: Changes) -> None:
    while True:
        try:
            listed = resource.get(_request_timeout=_TIMEOUTS_S).to_dict()
            # What is listed does not say of what kind it is.
            objects = [
                {"apiVersion": kind.api_version, "kind": kind.kind, **item}
                for item in listed["items"]
            ]
            changes.put(("LISTED", kind, objects))
            begin = {
                "resource_version": listed["metadata"]["resourceVersion"],
                "timeout_seconds": 300,
            }
            for event in Watch().stream(
                resource.get, serialize=False, _request_timeout=_TIMEOUTS_S, **begin
            ):
                changes.put((event["type"], kind, [event["raw_object"]]))
        except (ApiException, HTTPError) as error:
            # The API server restarts, or a version is too old
            log.warning("the watch of %s broke: %s", kind.kind, error)
            time.sleep(1)


def _known(api: DynamicClient, kind: Kind) -> bool:
    try:
        api.resources.get(api_version=kind.api_version, kind=kind.kind)
    except ResourceNotFoundError:
        log.warning("the cluster does not know %s: not followed", kind.kind)
        return False
    return True


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)
