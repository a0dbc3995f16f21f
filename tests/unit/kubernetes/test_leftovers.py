"""What is taken for abandoned: by what says whose it is, and by the keys on this machine."""

import json
import os
import time
from pathlib import Path
from typing import Any, cast

import pytest

from seatrial.config.cluster import Cluster
from seatrial.model.errors import LaunchError, MissingError
from seatrial.platforms import platform_for
from seatrial.platforms import state as states
from seatrial.platforms.kubernetes.api import Api, RuntimeUnseenError, connect, refused
from seatrial.platforms.kubernetes.ending import own_pod
from seatrial.platforms.kubernetes.launchers import LAUNCHERS
from seatrial.platforms.kubernetes.plan import EXPIRES, OWNER, RUN_ID, TENDED_BY, Kind
from seatrial.platforms.kubernetes.platform import Kubernetes
from seatrial.platforms.state import this_owner

LONG_AGO = "2026-01-01T00:00:00Z"


class There:
    """An API server with these objects, by kind."""

    context: str | None = None

    def __init__(self, **objects: list[dict[str, Any]]) -> None:
        self._objects = objects

    def list(self, kind: Kind, selector: str | None = None) -> list[dict[str, Any]]:
        return self._objects.get(kind.kind, [])

    def patch(self, doing: str, kind: Kind, name: str, patch: dict[str, Any]) -> None:
        (annotated,) = (each for each in self.list(kind) if each["metadata"]["name"] == name)
        kept = {**annotated["metadata"]["annotations"], **patch["metadata"]["annotations"]}
        annotated["metadata"]["annotations"] = {
            key: value for key, value in kept.items() if value is not None
        }


def kubernetes_object(run_id: str, **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {
            "labels": {RUN_ID: run_id},
            "annotations": annotations,
            "creationTimestamp": LONG_AGO,
        }
    }


def platform(
    launcher: str = "job", namespace: str = "default", **objects: list[dict[str, Any]]
) -> Kubernetes:
    settings = {"kind": "kubernetes", "launcher": launcher, "namespace": namespace}
    cluster = Cluster.model_validate(
        {"name": "c", "nodes": 2, "image": "image:1", "platform": settings}
    )
    made = platform_for(cluster)
    assert isinstance(made, Kubernetes)
    made._api = cast(Api, There(**objects))
    made._api.namespace = namespace
    return made


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(states, "root_folder", lambda kind: tmp_path / kind)
    return tmp_path


def test_objects_made_by_a_controller_do_not_hide_an_abandoned_run() -> None:
    """The Job of a JobSet has the labels of the run but no expiry."""
    abandoned = kubernetes_object("r1", **{OWNER: "somebody", EXPIRES: LONG_AGO})
    leftovers = platform(
        "jobset", Job=[kubernetes_object("r1")], JobSet=[abandoned], Pod=[kubernetes_object("r1")]
    ).leftovers()
    assert [each.run_id for each in leftovers] == ["r1"]


def test_parent_kinds_are_deleted_before_the_kinds_they_create() -> None:
    order = [launcher.kind.kind for launcher in LAUNCHERS.values()]
    assert order.index("TrainJob") < order.index("JobSet") < order.index("Job")


def test_keys_of_an_expired_run_without_objects_are_leftovers(root: Path) -> None:
    here, elsewhere = platform(), platform(namespace="other")
    for run_id in ("over", "at-work"):
        states.remember(states.make_folder(run_id, "kubernetes"), here._cluster)
    states.keep(root / "kubernetes" / "over", -1)
    assert [(each.run_id, each.what) for each in here.leftovers()] == [
        ("over", "its keys on this machine")
    ]
    assert elsewhere.leftovers() == []


def test_failed_listing_of_an_optional_kind_hides_no_leftover(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = platform(Secret=[kubernetes_object("r1", **{OWNER: "somebody", EXPIRES: LONG_AGO})])
    asked = here._api.list

    def listed(kind: Kind, selector: str | None = None) -> list[dict[str, Any]]:
        if kind.kind == "JobSet":
            raise LaunchError("cannot list JobSet: storage is (re)initializing")
        return asked(kind, selector)

    monkeypatch.setattr(here._api, "list", listed)
    assert [each.run_id for each in here.leftovers()] == ["r1"]


def test_failed_listing_of_a_required_kind_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    here = platform()

    def listed(kind: Kind, selector: str | None = None) -> list[dict[str, Any]]:
        raise LaunchError("the API server does not answer")

    monkeypatch.setattr(here._api, "list", listed)
    monkeypatch.setattr(here._api, "knows", lambda kind: None, raising=False)
    with pytest.raises(LaunchError, match="does not answer"):
        here.leftovers()


def test_a_run_with_several_objects_is_one_leftover(root: Path) -> None:
    folder = states.make_folder("r1", "kubernetes")
    made = kubernetes_object("r1", **{OWNER: this_owner("kubernetes"), EXPIRES: LONG_AGO})
    here = platform(Secret=[made])
    states.remember(folder, here._cluster)
    states.keep(folder, -1)
    os.utime(folder, (time.time() - 100, time.time() - 100))
    assert [each.what for each in here.leftovers()] == ["objects in namespace default"]


@pytest.mark.parametrize(
    ("phase", "abandoned"),
    [
        ("Running", False),
        ("Pending", False),
        ("Unknown", False),
        ("Succeeded", False),
        ("Failed", True),
        (None, True),
    ],
)
def test_a_run_in_a_pod_is_abandoned_when_the_pod_is_gone_or_was_killed(
    phase: str | None, abandoned: bool
) -> None:
    """One that ended by itself has taken its nodes down, or keeps them."""
    made = kubernetes_object("r1", **{OWNER: "trial-x/1", EXPIRES: "2999-01-01T00:00:00Z"})
    secret = kubernetes_object(
        "r1", **{OWNER: "trial-x/1", TENDED_BY: "trial-x", EXPIRES: "2999-01-01T00:00:00Z"}
    )
    pods = (
        [{"metadata": {"name": "trial-x", "labels": {}}, "status": {"phase": phase}}]
        if phase
        else []
    )
    leftovers = platform(Job=[made], Secret=[secret], Pod=pods).leftovers()
    assert [each.run_id for each in leftovers] == (["r1"] if abandoned else [])


def test_kept_run_is_no_leftover_when_the_pod_that_started_it_is_gone(root: Path) -> None:
    folder = states.make_folder("r1", "kubernetes")
    secret = kubernetes_object(
        "r1", **{OWNER: "trial-x/1", TENDED_BY: "trial-x", EXPIRES: "2999-01-01T00:00:00Z"}
    )
    secret["metadata"]["name"] = "seatrial-r1"
    node = {"metadata": {"labels": {RUN_ID: "r1"}, "name": "node-0"}, "spec": {"nodeName": "a"}}
    here = platform(Secret=[secret], Pod=[node])
    states.remember(folder, here._cluster)
    assert [each.run_id for each in here.leftovers()] == ["r1"]
    assert here.keep("r1", 60)
    assert here.leftovers() == []


def test_own_pod_is_known_only_in_the_cluster_and_namespace_of_the_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not in another cluster or namespace, nor by the host name on the host network."""
    monkeypatch.setattr("socket.gethostname", lambda: "trial-x")
    beside = platform(Pod=[{"metadata": {"name": "trial-x"}}])._api
    assert own_pod(beside) is None
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert own_pod(beside) == "trial-x"
    assert own_pod(platform()._api) is None
    beside.context = "elsewhere"
    assert own_pod(beside) is None


def test_a_folder_in_place_of_a_kubeconfig_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What Docker makes where the file that is mounted is not there."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path))
    with pytest.raises(MissingError, match=r"no cluster to talk to: .*Is a directory"):
        connect(None)


def test_a_missing_login_program_of_a_kubeconfig_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The library would ask without a login."""
    user = {
        "exec": {
            "command": "gke-gcloud-auth-plugin",
            "apiVersion": "client.authentication.k8s.io/v1beta1",
        }
    }
    content = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "me"}}],
        "clusters": [{"name": "one", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": user}],
    }
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(json.dumps(content))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        MissingError,
        match=r"by the program gke-gcloud-auth-plugin, which this machine does not have",
    ):
        connect(None)
    plugin = tmp_path / "gke-gcloud-auth-plugin"
    plugin.write_text("#!/bin/sh\necho 'ERROR: Reauthentication failed' >&2\nexit 1\n")
    plugin.chmod(0o755)
    with pytest.raises(
        MissingError, match=r"logs in failed: process returned 1\. ERROR: Reauthentication failed$"
    ):
        connect(None)


class Refusal:
    status = 403 + 19
    reason = "Invalid"
    body = (
        '{"message": "admission webhook denied: specified trainingRuntime must be created before"}'
    )


def test_submit_is_retried_until_the_trainer_sees_the_runtime(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    error = refused("create TrainJob", "default", Refusal())
    assert isinstance(error, RuntimeUnseenError)
    answers: list[Any] = [error, error, {"kind": "TrainJob"}]

    def create(parent: dict[str, Any]) -> dict[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, LaunchError):
            raise answer
        return dict(answer)

    here = platform("trainjob")
    monkeypatch.setattr(here._api, "create", create, raising=False)
    assert here._submit({}) == {"kind": "TrainJob"}
    assert answers == []
