"""Logs of pods and events as files: how they are called, what stands in them, and that it ends."""

import time
from pathlib import Path
from typing import Any, cast

from seatrial.model.errors import LaunchError
from seatrial.platforms.kubernetes.api import Api
from seatrial.platforms.kubernetes.platform import events_text, pod_logs, write_pod_logs
from seatrial.text.redact import Secrets


def pod(index: int, node: str | None = None, role: str = "node", **spec: Any) -> dict[str, Any]:
    env = [{"name": "HF_TOKEN", "value": "hf_secret"}]
    return {
        "metadata": {"name": f"p-{index}", "labels": {"seatrial/role": role}},
        "spec": {"containers": [{"name": "node", "env": env}], **({"nodeName": node} if node else {}), **spec},
        "status": {
            "phase": "Running",
            "podIP": f"10.0.0.{index}",
            "containerStatuses": [{"name": "node", "state": {"running": {"startedAt": "2026-11-21T15:00:00Z"}}}],
        },
    }


def event(name: str, when: str, reason: str = "Started", **more: Any) -> dict[str, Any]:
    about = {"involvedObject": {"kind": "Pod", "name": name}, "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}
    return {**about, "lastTimestamp": when, "reason": reason, "type": "Normal", "message": "a\n b", **more}


def test_files_are_called_after_the_nodes() -> None:
    logs = pod_logs([pod(0, "gke-b"), pod(1, "gke-a")])
    assert [log.file for log in logs] == ["coordinator.log", "worker-gke-a.log"]
    assert logs[0].title == "pod p-0 on gke-b (10.0.0.0), container node: running"


def test_pods_without_a_node_and_pods_that_share_one_by_their_own_names() -> None:
    assert [log.file for log in pod_logs([pod(0), pod(1), pod(2)])] == [
        "coordinator.log",
        "worker-p-1.log",
        "worker-p-2.log",
    ]
    assert pod_logs([pod(0)])[0].title.startswith("pod p-0, on no node")
    assert [log.file for log in pod_logs([pod(0, "a"), pod(1, "a")])][1] == "worker-p-1.log"


def test_sidecars_and_an_operators_own_pods_lie_beside() -> None:
    sidecar: dict[str, Any] = {"initContainers": [{"name": "tcpxo-daemon"}]}
    logs = pod_logs([pod(0, "a", **sidecar), pod(1, "b"), pod(2, "b", role="launcher")])
    assert [log.file for log in logs] == [
        "coordinator.log",
        "coordinator.tcpxo-daemon.log",
        "worker-b.log",
        "p-2.log",
    ]
    assert pod_logs([]) == []


def test_why_a_container_ended_is_told_above_its_log() -> None:
    ended = pod(0, "a")
    state = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": None}, "running": None}
    ended["status"]["containerStatuses"][0]["state"] = state
    assert pod_logs([ended])[0].title.endswith("container node: terminated OOMKilled 137")


class Logs:
    """An API server whose pods have something to say, or not."""

    def __init__(self, seconds: float = 0) -> None:
        self.seconds, self.asked = seconds, list[str]()

    def log_tail(self, pod: str, container: str, timeout_s: float) -> bytes:
        self.asked.append(pod)
        time.sleep(min(self.seconds, timeout_s))
        if pod == "p-1":
            raise LaunchError("cannot read the log of pod p-1: is waiting to start")
        return b"Server listening\n"


def test_a_pod_that_has_no_log_says_why_and_no_environment_is_shown(tmp_path: Path) -> None:
    write_pod_logs(cast(Api, Logs()), [pod(0, "a"), pod(1, "b")], tmp_path, time.monotonic() + 10, Secrets())
    assert (tmp_path / "coordinator.log").read_text().splitlines()[1] == "Server listening"
    assert "# no log: cannot read the log of pod p-1" in (tmp_path / "worker-b.log").read_text()
    assert "hf_secret" not in "".join(path.read_text() for path in tmp_path.iterdir())


def test_it_ends_in_time_however_many_there_are(tmp_path: Path) -> None:
    slow, started = Logs(seconds=0.5), time.monotonic()
    write_pod_logs(cast(Api, slow), [pod(i, f"n-{i}") for i in range(512)], tmp_path, time.monotonic() + 1, Secrets())
    assert time.monotonic() - started < 12  # of 16
    assert len(list(tmp_path.iterdir())) == 512  # of every pod at least its state is told
    assert len(slow.asked) < 100


def test_events_of_the_run_in_the_order_of_time() -> None:
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
