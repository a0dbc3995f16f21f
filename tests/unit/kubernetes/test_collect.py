"""Logs of pods and events as files: how they are called, what stands in them, and that it ends."""

from pathlib import Path
from typing import Any, cast

import pytest

from seatrial.model.errors import LaunchError
from seatrial.platforms.kubernetes.api import Api
from seatrial.platforms.kubernetes.logs import events_text, pod_logs, write_pod_logs
from seatrial.text.redact import Secrets


def pod(index: int, node: str | None = None, role: str = "node", **spec: Any) -> dict[str, Any]:
    env = [{"name": "HF_TOKEN", "value": "hf_secret"}]
    return {
        "metadata": {"name": f"p-{index}", "labels": {"seatrial/role": role}},
        "spec": {
            "containers": [{"name": "node", "env": env}],
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {
            "phase": "Running",
            "podIP": f"10.0.0.{index}",
            "containerStatuses": [
                {"name": "node", "state": {"running": {"startedAt": "2026-11-21T15:00:00Z"}}}
            ],
        },
    }


def event(name: str, when: str, reason: str = "Started", **more: Any) -> dict[str, Any]:
    about = {
        "involvedObject": {"kind": "Pod", "name": name},
        "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
    }
    return {
        **about,
        "lastTimestamp": when,
        "reason": reason,
        "type": "Normal",
        "message": "a\n b",
        **more,
    }


def test_log_files_are_named_after_their_nodes() -> None:
    logs = pod_logs([pod(0, "gke-b"), pod(1, "gke-a")])
    assert [log.file for log in logs] == ["coordinator.log", "worker-gke-a.log"]
    assert logs[0].title == "pod p-0 on gke-b (10.0.0.0), container node: running"


def test_logs_of_pods_without_a_node_or_on_a_shared_one_use_pod_names() -> None:
    assert [log.file for log in pod_logs([pod(0), pod(1), pod(2)])] == [
        "coordinator.log",
        "worker-p-1.log",
        "worker-p-2.log",
    ]
    assert pod_logs([pod(0)])[0].title.startswith("pod p-0, on no node")
    assert [log.file for log in pod_logs([pod(0, "a"), pod(1, "a")])][1] == "worker-p-1.log"


def test_logs_of_sidecars_and_launcher_pods_are_separate_files() -> None:
    sidecar: dict[str, Any] = {"initContainers": [{"name": "tcpxo-daemon"}]}
    logs = pod_logs([pod(0, "a", **sidecar), pod(1, "b"), pod(2, "b", role="launcher")])
    assert [log.file for log in logs] == [
        "coordinator.log",
        "coordinator.tcpxo-daemon.log",
        "worker-b.log",
        "p-2.log",
    ]
    assert pod_logs([]) == []


def test_log_title_says_why_the_container_ended() -> None:
    ended = pod(0, "a")
    state = {
        "terminated": {"exitCode": 137, "reason": "OOMKilled", "message": None},
        "running": None,
    }
    ended["status"]["containerStatuses"][0]["state"] = state
    assert pod_logs([ended])[0].title.endswith("container node: terminated OOMKilled 137")


class Logs:
    """An API server whose pods have something to say, but for p-1, each after so many seconds."""

    def __init__(self, seconds: float, clock: list[float]) -> None:
        self.seconds, self.clock, self.limits = seconds, clock, list[float]()

    def log_tail(self, pod: str, container: str, timeout_s: float) -> bytes:
        self.limits.append(timeout_s)
        self.clock[0] += self.seconds
        if pod == "p-1":
            raise LaunchError("cannot read the log of pod p-1: is waiting to start")
        return b"Server listening\n"


@pytest.mark.parametrize(("seconds", "most"), [(0.0, 512), (0.5, 100)])
def test_logs_are_read_until_time_is_up_and_every_pod_has_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, most: int
) -> None:
    api = Logs(seconds, clock := [0.0])
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    write_pod_logs(
        cast(Api, api), [pod(i, f"n-{i}") for i in range(512)], tmp_path, 10.0, Secrets()
    )
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert len(texts) == 512
    assert texts["coordinator.log"].splitlines()[1] == "Server listening"
    assert "# no log: cannot read the log of pod p-1" in texts["worker-n-1.log"]
    assert "hf_secret" not in "".join(texts.values())
    assert len(api.limits) <= most
    assert 0 < max(api.limits) <= 10
    assert ("# not read: time is up" in texts["worker-n-511.log"]) is (most < 512)


def test_events_of_the_run_are_listed_by_time() -> None:
    events = [
        event("seatrial-r1-1", "2026-11-21T15:00:09Z", "BackOff", type="Warning", count=4),
        event("seatrial-r2-0", "2026-11-21T15:00:01Z"),
        event("job-seatrial-r1-f00", "", "Admitted", eventTime="2026-11-21T15:00:02.500000Z"),
        event("seatrial-r1-0", "", "Scheduled", lastTimestamp=None),
    ]
    assert events_text(events, "r1").splitlines() == [
        "2026-01-01T00:00:00Z Normal  Scheduled            Pod/seatrial-r1-0: a b",
        "2026-11-21T15:00:02.500000Z Normal  Admitted             Pod/job-seatrial-r1-f00: a b",
        "2026-11-21T15:00:09Z Warning BackOff              Pod/seatrial-r1-1 (x4): a b",
    ]
