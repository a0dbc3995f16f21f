"""The end of a run's pods: wait until they are gone, and name the nodes that do not let go of theirs."""

import time

from seatrial.model.errors import LaunchError, MissingError, NodesError
from seatrial.model.reason import Reason
from seatrial.platforms.kubernetes.api import POD, Api
from seatrial.platforms.kubernetes.health import health
from seatrial.platforms.kubernetes.plan import Object, selector
from seatrial.platforms.kubernetes.watches import Watches, WatchEvent

GONE_S = 25.0  # without any pod going: the entry point leaves at once on TERM, but hundreds go one after the other


def wait_for_deletion(api: Api, run_id: str) -> None:
    """Wait until the pods of a run, which are deleted already, are gone.

    What a node that is not Ready still has is removed by force: nothing is scheduled there, and its kubelet ends the
    containers when it is back.

    Raises:
        NodesError: nodes have fallen silent; their pods are removed.
        LaunchError: pods are still ending although their nodes are well, or nobody can tell.
    """
    left = _wait_until_gone(api, run_id)
    try:
        ill = {node: why for node, why in health(api).items() if why and node in left.values()} if left else {}
    except MissingError:  # who may not look at nodes
        ill = {}
    for node in ill:
        api.delete_all(POD, selector(run_id), field_selector=f"spec.nodeName={node}", grace_s=0)
    if ill:
        raise NodesError(ill)
    if left:
        where, some = ", ".join(sorted(set(left.values()))), ", ".join(sorted(left)[:4])
        pods = f"{len(left)} pods of {run_id} are still ending, and none went for {GONE_S:g} s: {some}"
        raise LaunchError(Reason.of("pods-do-not-end", pods=pods, where=where))


def _wait_until_gone(api: Api, run_id: str) -> dict[str, str]:
    """The pods that are still there when time is up, each with its node."""
    deadline = time.monotonic() + GONE_S
    left: dict[str, str] | None = None
    with Watches(api) as watches:
        watches.add(POD, label_selector=selector(run_id))
        while (left is None or left) and time.monotonic() < deadline:
            change = watches.next(0.5)
            if change and change.change == "LISTED":
                left = {_name(pod): _node(pod) for pod in change.object["items"]}
            elif change and left is not None:
                _take(left, change)
                deadline = time.monotonic() + GONE_S if change.change == "DELETED" else deadline
    if left is None:
        raise LaunchError(Reason.of("teardown-unconfirmed", run_id=run_id))
    return left


def _take(left: dict[str, str], change: WatchEvent) -> None:
    if change.change == "DELETED":
        left.pop(_name(change.object), None)
    else:  # also a pod that a controller made at the last moment
        left[_name(change.object)] = _node(change.object)


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _node(pod: Object) -> str:
    return pod["spec"].get("nodeName") or "no node"
