"""Pods that do not go: whose fault that is, and which of them are removed by force."""

from typing import Any

import pytest

from seatrial.model.errors import LaunchError, MissingError, NodesError
from seatrial.platforms.kubernetes import ending
from seatrial.platforms.kubernetes.plan import Kind


def node(name: str, ready: str) -> dict[str, Any]:
    since = "2026-11-21T03:00:00Z"
    condition = {"type": "Ready", "status": ready, "message": "Kubelet stopped.", "lastTransitionTime": since}
    return {"metadata": {"name": name}, "status": {"conditions": [condition]}}


class There:
    """An API server with two nodes, of which the second is silent; remembers what was removed by force."""

    def __init__(self, may_look: bool = True) -> None:
        self.forced: list[tuple[str | None, int | None]] = []
        self._may_look = may_look

    def list(self, kind: Kind, selector: str | None = None) -> list[dict[str, Any]]:
        if not self._may_look:
            raise MissingError("may not list nodes")
        return [node("node-0", "True"), node("node-1", "Unknown")]

    def delete_all(self, kind: Kind, selector: str, field_selector: str | None, grace_s: int | None) -> None:
        assert kind.kind == "Pod"
        self.forced.append((field_selector, grace_s))


def see_off(monkeypatch: pytest.MonkeyPatch, api: There, left: dict[str, str]) -> None:
    monkeypatch.setattr(ending, "_wait_until_gone", lambda api, run_id: left)
    ending.wait_for_deletion(api, "r1")  # type: ignore[arg-type]


def test_pods_that_are_gone_are_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    api = There()
    see_off(monkeypatch, api, {})
    assert api.forced == []


def test_a_silent_node_is_to_blame_and_loses_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    api = There()
    with pytest.raises(NodesError) as raised:
        see_off(monkeypatch, api, {"pod-1": "node-1"})
    assert raised.value.evidence == {"node-1": "NotReady since 2026-11-21T03:00:00Z: Kubelet stopped."}
    assert api.forced == [("spec.nodeName=node-1", 0)]


def test_pods_on_a_node_that_is_well_are_not_removed_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    api = There()
    with pytest.raises(LaunchError, match=r"1 pods of r1 are still ending.*: pod-0 on node-0"):
        see_off(monkeypatch, api, {"pod-0": "node-0"})
    assert api.forced == []


def test_who_may_not_look_at_nodes_blames_none(monkeypatch: pytest.MonkeyPatch) -> None:
    api = There(may_look=False)
    with pytest.raises(LaunchError, match="pod-1 on node-1"):
        see_off(monkeypatch, api, {"pod-1": "node-1"})
    assert api.forced == []
