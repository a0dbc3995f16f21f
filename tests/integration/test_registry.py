"""Images of a registry on loopback: found, missing, out of reach; and docker builds that end up in
it.
"""

import base64
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.builders import ensure_image
from seatrial.builders.registry import read_name
from seatrial.builders.stored import BuiltImage
from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.image import Docker, Prebuilt
from seatrial.config.run import Run
from seatrial.model.errors import LaunchError, MissingError
from seatrial.model.reason import Reason
from seatrial.tasks.image import image
from tests.integration.interrupt import interrupted_when
from tests.integration.registry import INDEX, Registry, serving, stand_in_for_docker

LOGIN = ("me", "secret")


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as registry:
        yield registry


@pytest.fixture(autouse=True)
def docker_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own ~/.docker, without logins."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    (tmp_path / "docker").mkdir()
    return tmp_path / "docker" / "config.json"


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in for docker, first on PATH; the file lists its calls."""
    monkeypatch.setenv("PATH", f"{stand_in_for_docker(tmp_path)}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def find(reference: str) -> BuiltImage:
    return ensure_image(
        Prebuilt(builder="prebuilt", reference=reference), None, Path("/nonexistent")
    )


@pytest.mark.parametrize(
    ("reference", "host", "path", "tag"),
    [
        ("debian", "registry-1.docker.io", "library/debian", "latest"),
        ("me/x:1", "registry-1.docker.io", "me/x", "1"),
        ("nvcr.io/nvidia/pytorch:26.01-py3", "nvcr.io", "nvidia/pytorch", "26.01-py3"),
        ("127.0.0.1:5000/a/b@sha256:00", "127.0.0.1:5000", "a/b", "sha256:00"),
        ("localhost:5000/a:t@sha256:00", "localhost:5000", "a", "sha256:00"),
    ],
)
def test_a_reference_is_read_as_docker_does(reference: str, host: str, path: str, tag: str) -> None:
    name = read_name(reference)
    assert (name.host, name.path, name.tag) == (host, path, tag)
    assert name.url.startswith("http://" if "5000" in host else "https://")


def test_existing_image_is_pinned_by_digest(registry: Registry) -> None:
    digest = registry.add("team/testbed", "1.2", "arm64")
    built = find(f"{registry.host}/team/testbed:1.2")
    assert built == BuiltImage(f"{registry.host}/team/testbed:1.2", digest, ("arm64",))
    assert built.pinned == f"{registry.host}/team/testbed:1.2@{digest}"
    assert find(built.pinned).pinned == built.pinned


def test_image_index_lists_all_known_architectures(registry: Registry) -> None:
    members = [{"platform": {"architecture": name}} for name in ("amd64", "arm64", "unknown")]
    digest = registry.put("x", "1", INDEX, {"manifests": members})
    assert find(f"{registry.host}/x:1") == BuiltImage(
        f"{registry.host}/x:1", digest, ("amd64", "arm64")
    )


def test_an_image_that_does_not_exist_is_named(registry: Registry) -> None:
    registry.add("x", "1")
    with pytest.raises(MissingError) as error:
        find(f"{registry.host}/x:2")
    assert error.value.reason == Reason.of("image-missing", image=f"{registry.host}/x:2")
    assert error.value.reason.code == "image-missing"


def test_unreachable_registry_is_only_a_warning(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(Registry()) as gone:
        pass
    assert find(f"{gone.host}/x:1") == BuiltImage(f"{gone.host}/x:1")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"registry {gone.host} does not answer: " in record.getMessage()
    assert "Connection refused" in record.getMessage()


def test_docker_login_is_honoured(
    registry: Registry, docker_config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry.login = LOGIN
    digest = registry.add("x", "1")
    assert find(f"{registry.host}/x:1").digest is None
    assert f"docker login {registry.host}" in caplog.text
    login = base64.b64encode(":".join(LOGIN).encode()).decode()
    docker_config.write_text(json.dumps({"auths": {registry.host: {"auth": login}}}))
    assert find(f"{registry.host}/x:1").digest == digest
    assert "/token?service=test&scope=repository%3Ax%3Apull" in "\n".join(registry.asked)


def test_credential_helpers_are_asked(
    registry: Registry, docker_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.login = LOGIN
    digest = registry.add("x", "1")
    helper = docker_config.parent / "docker-credential-test"
    helper.write_text(
        f"#!/bin/sh\ncat >/dev/null\necho '{json.dumps({'Username': 'me', 'Secret': 'secret'})}'\n"
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{helper.parent}:{os.environ['PATH']}")
    docker_config.write_text(json.dumps({"credHelpers": {registry.host: "test"}}))
    assert find(f"{registry.host}/x:1").digest == digest


def recipe(registry: Registry, folder: Path, **settings: Any) -> dict[str, Any]:
    (folder / "mine").mkdir(exist_ok=True)
    (folder / "mine" / "Dockerfile").write_text(f"FROM {registry.host}/base:1\nCOPY a /\n")
    (folder / "mine" / "a").write_text("a")
    return {
        "build": str(folder / "mine"),
        "builder": "docker",
        "repository": f"{registry.host}/team",
    } | settings


def build(
    registry: Registry, folder: Path, *, rebuild: bool = False, **settings: Any
) -> BuiltImage:
    return ensure(recipe(registry, folder, **settings), folder, rebuild=rebuild)


def ensure(settings: dict[str, Any], folder: Path, *, rebuild: bool = False) -> BuiltImage:
    config = Docker.model_validate(settings)
    return ensure_image(config, "amd64", folder / "logs" / "image-build.log", rebuild=rebuild)


def test_an_unchanged_image_is_not_built_again(
    registry: Registry, tmp_path: Path, calls: Path
) -> None:
    registry.add("base", "1")
    first = build(registry, tmp_path)
    assert first.fresh
    assert first.reference.startswith(f"{registry.host}/team/mine:1-")
    assert registry.manifests["team/mine", first.digest or ""]
    second = build(registry, tmp_path)
    assert (second.pinned, second.fresh) == (first.pinned, False)
    assert len(calls.read_text().splitlines()) == 1
    forced = build(registry, tmp_path, rebuild=True)
    assert forced.fresh
    assert forced.digest != first.digest
    assert "--no-cache" in json.loads(calls.read_text().splitlines()[1])
    log = (tmp_path / "logs" / "image-build.log").read_text()
    assert log.startswith("+ docker buildx build ")
    assert f"pushed {first.digest}" in log


def test_image_is_rebuilt_when_its_base_tag_has_a_new_digest(
    registry: Registry, tmp_path: Path, calls: Path
) -> None:
    registry.add("base", "1")
    first = build(registry, tmp_path)
    registry.add("base", "1")
    assert build(registry, tmp_path).reference != first.reference


def test_unreachable_base_registry_causes_no_rebuild(
    registry: Registry, tmp_path: Path, calls: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = recipe(registry, tmp_path)
    with serving(Registry()) as bases:
        digest = bases.add("base", "1")
        (tmp_path / "mine" / "Dockerfile").write_text(
            f"ARG BASE={bases.host}/base:1\nFROM $BASE\nCOPY a /\n"
        )
        first = ensure(settings, tmp_path)
    again = ensure(settings, tmp_path)
    assert (again.pinned, again.fresh) == (first.pinned, False)
    assert f"base {bases.host}/base:1: registry {bases.host} does not answer: " in caplog.text
    # What must be built now may be of another base than was last seen
    (tmp_path / "mine" / "a").write_text("b")
    unknown = ensure(settings, tmp_path)
    assert (unknown.fresh, ensure(settings, tmp_path).pinned) == (True, unknown.pinned)
    with_digest = settings | {"args": {"BASE": f"{bases.host}/base@{digest}"}}
    caplog.clear()
    assert ensure(with_digest, tmp_path).pinned == ensure(with_digest, tmp_path).pinned
    assert not caplog.records


def test_a_failed_build_says_why(
    registry: Registry, tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL", "ERROR: failed to push: unexpected status: 403 Forbidden")
    with pytest.raises(LaunchError, match=r"403 Forbidden; next: .*image-build\.log") as error:
        build(registry, tmp_path)
    assert error.value.reason.code == "image-build-permission"
    assert "FROM x" in (tmp_path / "logs" / "image-build.log").read_text()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_build_that_takes_too_long_is_ended(
    registry: Registry, tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANG", str(tmp_path / "pid"))
    with pytest.raises(LaunchError) as error:
        build(registry, tmp_path, timeout_s=2)
    assert error.value.reason.code == "image-build-time-limit"
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_an_interrupted_build_is_ended(
    registry: Registry, tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "pid"
    monkeypatch.setenv("HANG", str(pid))

    with (
        interrupted_when(lambda: pid.exists() and bool(pid.read_text())),
        pytest.raises(KeyboardInterrupt),
    ):
        build(registry, tmp_path)
    assert is_gone(int(pid.read_text()))


def run(folder: Path, hardware: str, section: object) -> Run:
    gpus = 0 if hardware == "cpu" else 4
    fields = {
        "nodes": 2,
        "hardware": hardware,
        "gpus_per_node": gpus,
        "platform": {"kind": "docker"},
        "image": section,
    }
    return Run("r", Cluster.model_validate({"name": "c", **fields}), load_suite("quick"), folder)


def test_image_step_records_the_digest(registry: Registry, tmp_path: Path, calls: Path) -> None:
    registry.add("base", "1")
    done = image(run(tmp_path, "H100-SXM", recipe(registry, tmp_path)))
    assert done.reference
    assert "@sha256:" in done.reference
    assert done.fingerprint == {"image": done.reference}
    assert "--platform=linux/amd64" in json.loads(calls.read_text())
    assert (tmp_path / "logs" / "image-build.log").exists()


def test_an_image_that_is_only_local_is_found_by_its_tag(
    registry: Registry, tmp_path: Path, calls: Path
) -> None:
    """An image's id is no digest that docker run would take."""
    kept = tmp_path / "bin" / "docker"
    kept.write_text(f'#!/bin/sh\n[ "$1" = image ] && echo sha256:{64 * "1"} amd64\n')
    done = image(run(tmp_path, "H100-SXM", recipe(registry, tmp_path) | {"repository": None}))
    assert done.reference
    assert "@" not in done.reference
    assert done.fingerprint == {"image": f"{done.reference}@sha256:{64 * '1'}"}


def test_an_image_of_another_architecture_is_not_launched(
    registry: Registry, tmp_path: Path, calls: Path
) -> None:
    registry.add("x", "1", "amd64")
    with pytest.raises(
        MissingError, match=r"/x:1 is for amd64, the nodes \(GB200-NVL72\) are arm64"
    ):
        image(run(tmp_path, "GB200-NVL72", f"{registry.host}/x:1"))
    with pytest.raises(
        MissingError, match=r"image mine is for amd64, the nodes \(GB200-NVL72\) are arm64"
    ):
        image(run(tmp_path, "GB200-NVL72", recipe(registry, tmp_path, platforms=["linux/amd64"])))
    assert not calls.exists()
