"""What a cluster file of Docker may say, and what is created for it, held to golden files."""

import hashlib
import io
import json
import tarfile
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.config.cluster import load_cluster
from seatrial.model.errors import MissingError
from seatrial.platforms import platform_for
from seatrial.platforms.docker.plan import keys_archive
from tests.cluster_files import refusal
from tests.unit.docker.golden import GOLDEN, clusters, rendered

GPUS = {"hardware": "H100-SXM", "gpus_per_node": 2}


def cluster_file(folder: Path, platform: dict[str, Any], **fields: Any) -> Path:
    path = folder / "trial.yaml"
    described = {
        "nodes": 2,
        "image": "registry.example.com/a:1",
        **fields,
        "platform": {"kind": "docker", **platform},
    }
    path.write_text(yaml.safe_dump(described))
    return path


@pytest.mark.parametrize(
    ("platform", "fields", "problem"),
    [
        ({}, {"image": None}, "image: is required with platform docker"),
        ({}, {"nodes": 65}, "nodes: one Docker host takes at most 64, is 65"),
        ({"network": "host"}, {}, "platform.network: host takes one container"),
        ({"network": "bridge"}, {}, "'own' or 'host'"),
        (
            {"host": "unix:///a.sock", "context": "b"},
            {},
            "platform.context: not together with platform.host",
        ),
        ({"host": "http://a"}, {}, "host"),
        ({"context": "../x"}, {}, "context"),
        (
            {"ipc": "host", "shared_memory_gib": 1},
            {},
            "platform.shared_memory_gib: not with ipc: host",
        ),
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
        (
            {"mounts": [{"source": "/a/../b", "target": "/b"}]},
            {},
            "must be a full path without '..'",
        ),
        ({"mounts": [{"source": "/a", "target": "/etc"}]}, {}, "'/etc' hides /etc/seatrial"),
        ({"mounts": [{"source": "/a", "target": "/root/.ssh/x"}]}, {}, "hides /root/.ssh"),
        ({"mounts": [{"source": "/a", "target": "/"}]}, {}, "hides /etc/seatrial"),
    ],
)
def test_cluster_file_fields_that_do_not_fit_docker_are_refused(
    tmp_path: Path, platform: dict[str, Any], fields: dict[str, Any], problem: str
) -> None:
    document = {
        "image": "registry.example.com/a:1",
        **fields,
        "platform": {"kind": "docker", **platform},
    }
    assert problem in refusal(tmp_path, **document)


def test_a_cluster_of_one_node_is_legal(tmp_path: Path) -> None:
    assert load_cluster(cluster_file(tmp_path, {}, nodes=1)).nodes == 1


def problem_of(path: Path) -> str:
    problems = platform_for(load_cluster(path)).missing()
    assert len(problems) == 1
    return problems[0].sentence


@pytest.fixture
def _no_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's own daemon and settings of docker do not matter here."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_no_docker")
def test_doctor_names_the_unreachable_socket_and_the_setting_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert "(context other): docker knows no such context" in problem_of(
        cluster_file(tmp_path, {"context": "other"})
    )


@pytest.mark.usefixtures("_no_docker")
def test_teardown_of_what_was_never_created_needs_no_daemon(tmp_path: Path) -> None:
    path = cluster_file(tmp_path, {"host": f"unix://{tmp_path}/no.sock"})
    platform = platform_for(load_cluster(path))
    platform.teardown("never-was")
    with pytest.raises(MissingError):
        platform.leftovers()


NAMES = sorted(clusters())


@pytest.mark.parametrize("name", NAMES)
def test_created_objects_match_the_golden_files(name: str) -> None:
    kept = {path.name: path.read_text() for path in (GOLDEN / name).iterdir()}
    assert rendered(name) == kept


@pytest.mark.parametrize("name", NAMES)
def test_no_gpu_is_in_two_containers(name: str) -> None:
    cluster, bodies = clusters()[name], [yaml.safe_load(text) for text in rendered(name).values()]
    requests = chain.from_iterable(
        body.get("HostConfig", {}).get("DeviceRequests", []) for body in bodies
    )
    gpus = [gpu for request in requests for gpu in request["DeviceIDs"]]
    assert len(gpus) == cluster.nodes * cluster.gpus
    assert len(set(gpus)) == len(gpus)


def test_cpu_containers_set_nvidia_visible_devices_to_void() -> None:
    assert "NVIDIA_VISIBLE_DEVICES=void" in yaml.safe_load(rendered("cpu")["node-0.yaml"])["Env"]


def test_time_limit_of_containers_includes_the_time_they_are_kept() -> None:
    environment = yaml.safe_load(rendered("cpu")["node-0.yaml"])["Env"]
    assert f"SEATRIAL_MAX_SECONDS={4 * 3600 + 2 * 3600}" in environment


def test_keys_in_a_container_are_readable_by_root_only() -> None:
    with tarfile.open(fileobj=io.BytesIO(keys_archive({"id_ed25519": "secret\n"}))) as archive:
        entries = {entry.name: (entry.mode, entry.uid, entry.isdir()) for entry in archive}
        key = archive.extractfile("seatrial/id_ed25519")
        assert key
        assert key.read() == b"secret\n"
    assert entries == {"seatrial": (0o700, 0, True), "seatrial/id_ed25519": (0o600, 0, False)}
