"""When nodes are kept, for how long, and who may end that."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.run import Run
from seatrial.flows import reap as flow
from seatrial.model.errors import InputError, LaunchError, SeatrialError
from seatrial.model.verdict import Verdict
from seatrial.platforms import Leftover
from seatrial.platforms import state as states
from seatrial.tasks import launch as step
from seatrial.tasks.launch import reap

CLUSTERS = sorted((Path(__file__).parents[2] / "deployments" / "clusters").glob("*.yaml"))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs keep their state, apart from that of real ones."""
    monkeypatch.setattr(states, "root_folder", lambda kind: tmp_path / kind)
    return tmp_path


def run_with(keep: str, out: Path = Path("out")) -> Run:
    asked = {"name": "c", "nodes": 2, "platform": {"kind": "local"}, "keep": keep, "keep_s": 600}
    return Run("r1", Cluster.model_validate(asked), load_suite("quick"), out)


class Keeps:
    """A platform that has something to keep, or not, or cannot."""

    def __init__(self, answer: bool | Exception) -> None:
        self.answer, self.kept = answer, list[tuple[str, float]]()

    def keep(self, run_id: str, seconds: float) -> bool:
        if isinstance(self.answer, Exception):
            raise self.answer
        self.kept.append((run_id, seconds))
        return self.answer


@pytest.mark.parametrize(
    ("keep", "verdict", "kept"),
    [
        ("never", Verdict.FAIL, False),
        ("always", Verdict.PASS, True),
        ("on_failure", Verdict.PASS, False),
        *(("on_failure", verdict, True) for verdict in Verdict if verdict is not Verdict.PASS),
    ],
)
def test_nodes_are_kept_according_to_keep_and_verdict(
    monkeypatch: pytest.MonkeyPatch, keep: str, verdict: Verdict, kept: bool
) -> None:
    platform = Keeps(True)
    monkeypatch.setattr(step, "platform_for", lambda _: platform)
    message = step.keep(run_with(keep), verdict)
    assert platform.kept == ([("r1", 600)] if kept else [])
    assert bool(message) is kept
    if message:
        assert "seatrial ssh r1 head" in message
        assert "seatrial reap --run r1" in message


@pytest.mark.parametrize("answer", [False, LaunchError("the API server does not answer")])
def test_failed_keep_lets_the_nodes_be_taken_down(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    monkeypatch.setattr(step, "platform_for", lambda _: Keeps(answer))
    assert step.keep(run_with("always"), Verdict.FAIL) is None


def test_a_kept_run_is_abandoned_when_its_time_is_over_and_not_before(root: Path) -> None:
    folder = states.make_folder("r1", "local")
    assert states.is_at_work(folder)
    states.keep(folder, 60)
    assert not states.is_at_work(folder)
    (folder / "owner.json").write_text(json.dumps({"pid": 1, "started": 0}))  # the process is gone
    assert not states.is_abandoned(folder)
    states.keep(folder, -1)
    assert states.is_abandoned(folder)
    (folder / "kept.json").unlink()
    assert states.is_abandoned(folder), "one that was never kept"


def test_state_folder_is_readable_by_its_user_only(root: Path) -> None:
    folder = states.make_folder("r1", "local")
    states.remember(folder, run_with("never").cluster)
    assert (folder / "cluster.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_remembered_cluster_file_is_read_back_unchanged(root: Path, path: Path) -> None:
    cluster = load_cluster(path)
    folder = states.make_folder("r1", "kubernetes")
    states.remember(folder, cluster)
    assert states.recall(folder) == cluster
    assert (states.find("r1"), states.run_ids()) == (folder, ["r1"])


def test_kept_run_is_ended_by_its_id(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[tuple[str, str]] = []
    monkeypatch.setattr(
        step, "teardown", lambda cluster, run_id: ended.append((cluster.name, run_id))
    )
    folder = states.make_folder("r1", "local")
    states.remember(folder, run_with("always").cluster)
    with pytest.raises(InputError, match="run r1: is at work; interrupt it"):
        step.end("r1")
    states.keep(folder, 60)
    assert step.end("r1") == "r1"
    assert ended == [("c", "r1")]


def test_a_run_of_another_machine_needs_its_cluster_file(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(step, "teardown", lambda cluster, run_id: ended.append(run_id))
    with pytest.raises(
        InputError, match="run r7: is over, or not from this machine and user; none is up"
    ):
        step.end("r7")
    assert step.end("r7", run_with("always").cluster) == "r7"
    assert ended == ["r7"]


def test_kubernetes_gives_a_run_that_may_be_kept_its_time_on_top() -> None:
    from seatrial.platforms.kubernetes.plan import plan

    def deadline_s(keep: str) -> int:
        platform = {"kind": "kubernetes", "deadline_s": 3600}
        asked = {
            "name": "c",
            "nodes": 2,
            "image": "r/i:1",
            "platform": platform,
            "keep": keep,
            "keep_s": 600,
        }
        return plan(
            Run("r1", Cluster.model_validate(asked), load_suite("quick"), Path("out"))
        ).deadline_s

    assert [deadline_s(keep) for keep in ("never", "on_failure", "always")] == [3600, 4200, 4200]


def test_nothing_is_kept_on_kubernetes_while_no_pod_has_a_node(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seatrial.platforms.kubernetes.platform import Kubernetes

    pods: list[dict[str, Any]] = [{"metadata": {}, "spec": {}}]
    platform = Kubernetes.__new__(Kubernetes)
    monkeypatch.setattr(
        platform, "_api", SimpleNamespace(list=lambda kind, selector: pods), raising=False
    )
    folder = states.make_folder("r1", "kubernetes")
    assert not platform.keep("r1", 60)
    pods[0] = {"metadata": {}, "spec": {"nodeName": "n"}}
    assert platform.keep("r1", 60)
    assert time.time() < (states.kept_until(folder) or 0) <= time.time() + 60


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 4000,
        "[]",
        '{"pid": -1, "started": 1}',
        '{"pid": true, "started": 1}',
        '{"pid": "1"}',
        '{"pid": 9876543210, "started": 1}',
        "x" * 5000,
    ],
)
def test_malformed_owner_record_names_no_process(root: Path, text: str) -> None:
    folder = states.make_folder("r1", "local")
    (folder / "owner.json").write_text(text)
    assert states.read_owner(folder, "owner") is None


@pytest.mark.parametrize("until", ['"1"', "NaN", "Infinity", "true", "null", "[]", "1" * 400])
def test_invalid_keep_time_keeps_no_run(root: Path, until: str) -> None:
    folder = states.make_folder("r1", "local")
    (folder / "kept.json").write_text(f'{{"until": {until}}}')
    assert states.kept_until(folder) is None


@pytest.mark.parametrize("run_id", ["", ".", "..", "../r1", "a/b", "-r", "a\nb", "r" * 200])
def test_invalid_run_id_is_refused(root: Path, run_id: str) -> None:
    with pytest.raises(InputError, match=r"is no run id; legal: letters, digits"):
        states.run_folder(run_id, "local")


class Stubborn:
    """A platform with three leftovers, of which the first cannot be removed."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def leftovers(self) -> list[Leftover]:
        return [Leftover(f"run-{number}", 60, "a namespace") for number in (1, 2, 3)]

    def teardown(self, run_id: str) -> None:
        if run_id == "run-1":
            raise OSError("busy")
        self.removed.append(run_id)


def test_reap_tries_every_leftover_though_one_fails() -> None:
    platform: Any = Stubborn()
    with pytest.raises(
        SeatrialError, match=r"^1 of 3 leftovers cannot be removed: run run-1: busy$"
    ):
        reap(platform)
    assert platform.removed == ["run-2", "run-3"]


def test_a_platform_that_breaks_is_a_problem_of_its_cluster_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("a bug in an SDK")

    file = tmp_path / "a.yaml"
    file.write_text("nodes: 2\nplatform: {kind: local}\n")
    monkeypatch.setattr(flow, "platform_for", broken)
    assert flow._reap(str(file)) == (0, "a bug in an SDK")
