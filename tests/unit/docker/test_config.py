"""What a cluster file of Docker may say: what does not fit together is one line with the field and what is legal."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.config.cluster import load_cluster
from seatrial.model.errors import MissingError
from seatrial.platforms import platform_for
from tests.cluster_files import refusal

GPUS = {"hardware": "H100-SXM", "gpus_per_node": 2}


def cluster_file(folder: Path, platform: dict[str, Any], **fields: Any) -> Path:
    path = folder / "trial.yaml"
    described = {"nodes": 2, "image": "registry.example.com/a:1", **fields, "platform": {"kind": "docker", **platform}}
    path.write_text(yaml.safe_dump(described))
    return path


@pytest.mark.parametrize(
    ("platform", "fields", "problem"),
    [
        ({}, {"image": None}, "image: is required with platform docker"),
        ({}, {"nodes": 65}, "nodes: one Docker host takes at most 64, is 65"),
        ({"network": "host"}, {}, "platform.network: host takes one container"),
        ({"network": "bridge"}, {}, "'own' or 'host'"),
        ({"host": "unix:///a.sock", "context": "b"}, {}, "platform.context: not together with platform.host"),
        ({"host": "http://a"}, {}, "host"),
        ({"context": "../x"}, {}, "context"),
        ({"ipc": "host", "shared_memory_gib": 1}, {}, "platform.shared_memory_gib: not with ipc: host"),
        ({"gpus": [[0, 1]]}, GPUS, "platform.gpus: needs one list for each of the 2 nodes, has 1"),
        ({"gpus": [[0], [1, 2]]}, GPUS, "platform.gpus: node-0 needs 2 GPUs"),
        ({"gpus": [[0, 1], [2]]}, GPUS, "platform.gpus: node-1 needs 2 GPUs"),
        ({"gpus": [[0, 1], [1, 2]]}, GPUS, "platform.gpus: GPU 1 is in two places"),
        ({"gpus": [["all"], [1]]}, GPUS, "gpus"),
        ({"ulimits": {"memlok": 1}}, {}, "memlok"),
        ({"ulimits": {"memlock": True}}, {}, "must be a whole number, is true"),
        ({"ulimits": {"memlock": -2}}, {}, "memlock"),
        ({"devices": ["dev/infiniband"]}, {}, "must be a full path without '..'"),
        ({"capabilities": ["--privileged"]}, {}, "capabilities"),
        ({"mounts": [{"source": "/a/../b", "target": "/b"}]}, {}, "must be a full path without '..'"),
        ({"mounts": [{"source": "/a", "target": "/etc"}]}, {}, "'/etc' hides /etc/seatrial"),
        ({"mounts": [{"source": "/a", "target": "/root/.ssh/x"}]}, {}, "hides /root/.ssh"),
        ({"mounts": [{"source": "/a", "target": "/"}]}, {}, "hides /etc/seatrial"),
    ],
)
def test_what_does_not_fit_is_one_line(
    tmp_path: Path, platform: dict[str, Any], fields: dict[str, Any], problem: str
) -> None:
    document = {"image": "registry.example.com/a:1", **fields, "platform": {"kind": "docker", **platform}}
    assert problem in refusal(tmp_path, **document)


def test_one_node_is_legal(tmp_path: Path) -> None:
    assert load_cluster(cluster_file(tmp_path, {}, nodes=1)).nodes == 1


def problem_of(path: Path) -> str:
    problems = platform_for(load_cluster(path)).missing()
    assert len(problems) == 1
    return problems[0]


@pytest.fixture
def _no_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's own daemon and settings of docker do not matter here."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_no_docker")
def test_doctor_names_the_socket_and_where_it_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = f"unix://{tmp_path}/no.sock"
    assert f"at {nowhere} (platform.host)" in problem_of(cluster_file(tmp_path, {"host": nowhere}))
    monkeypatch.setenv("DOCKER_HOST", f"{nowhere}.env")
    assert f"at {nowhere}.env (DOCKER_HOST)" in problem_of(cluster_file(tmp_path, {}))


@pytest.mark.usefixtures("_no_docker")
def test_a_context_of_docker_is_honoured(tmp_path: Path) -> None:
    folder = tmp_path / "docker" / "contexts" / "meta" / hashlib.sha256(b"lab").hexdigest()
    folder.mkdir(parents=True)
    host = f"unix://{tmp_path}/lab.sock"
    (tmp_path / "docker" / "config.json").write_text("{}")
    (folder / "meta.json").write_text(
        json.dumps({"Name": "lab", "Metadata": {}, "Endpoints": {"docker": {"Host": host}}})
    )
    assert f"at {host} (context lab)" in problem_of(cluster_file(tmp_path, {"context": "lab"}))
    (folder / "meta.json").write_text('{"Name": "lab"}')
    assert "(context lab): " in problem_of(cluster_file(tmp_path, {"context": "lab"}))
    assert "(context other): docker knows no such context" in problem_of(cluster_file(tmp_path, {"context": "other"}))


@pytest.mark.usefixtures("_no_docker")
def test_teardown_of_what_was_never_created_needs_no_daemon(tmp_path: Path) -> None:
    path = cluster_file(tmp_path, {"host": f"unix://{tmp_path}/no.sock"})
    platform = platform_for(load_cluster(path))
    platform.teardown("never-was")
    with pytest.raises(MissingError):
        platform.leftovers()
