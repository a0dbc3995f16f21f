"""What is created on a Docker host: held to golden files, and GPUs to one container each."""

import io
import tarfile
from itertools import chain

import pytest
import yaml

from seatrial.platforms.docker.plan import keys_archive
from tests.unit.docker.golden import GOLDEN, clusters, rendered

NAMES = sorted(clusters())


@pytest.mark.parametrize("name", NAMES)
def test_what_is_created_is_as_it_was(name: str) -> None:
    kept = {path.name: path.read_text() for path in (GOLDEN / name).iterdir()}
    assert rendered(name) == kept


@pytest.mark.parametrize("name", NAMES)
def test_no_gpu_is_in_two_containers(name: str) -> None:
    cluster, bodies = clusters()[name], [yaml.safe_load(text) for text in rendered(name).values()]
    requests = chain.from_iterable(body.get("HostConfig", {}).get("DeviceRequests", []) for body in bodies)
    gpus = [gpu for request in requests for gpu in request["DeviceIDs"]]
    assert len(gpus) == cluster.nodes * cluster.gpus
    assert len(set(gpus)) == len(gpus)


def test_containers_without_gpus_get_none_from_an_image_that_wants_all() -> None:
    assert "NVIDIA_VISIBLE_DEVICES=void" in yaml.safe_load(rendered("cpu")["node-0.yaml"])["Env"]


def test_kept_nodes_live_longer() -> None:
    environment = yaml.safe_load(rendered("cpu")["node-0.yaml"])["Env"]
    assert f"SEATRIAL_MAX_SECONDS={4 * 3600 + 2 * 3600}" in environment


def test_the_keys_are_for_root_alone() -> None:
    with tarfile.open(fileobj=io.BytesIO(keys_archive({"id_ed25519": "secret\n"}))) as archive:
        entries = {entry.name: (entry.mode, entry.uid, entry.isdir()) for entry in archive}
        key = archive.extractfile("seatrial/id_ed25519")
        assert key
        assert key.read() == b"secret\n"
    assert entries == {"seatrial": (0o700, 0, True), "seatrial/id_ed25519": (0o600, 0, False)}
