"""Builder `buildah` for real: images/cpu as a cluster file asks for it, kept here; others pushed to
loopback.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.builders import ensure_image
from seatrial.builders.stored import BuiltImage
from seatrial.config.image import Buildah
from seatrial.model.errors import LaunchError
from tests.images import lane
from tests.integration.registry import Registry, serving

STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{root}"
runroot = "{run}"
"""
REGISTRIES = """\
[[registry]]
location = "{host}"
insecure = true
"""


@pytest.fixture
def registry(_lane: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """An empty registry that buildah may talk plain HTTP to, and the lane's own storage as
    buildah's.
    """
    with serving(Registry()) as registry:
        for name, text in {
            "CONTAINERS_STORAGE_CONF": STORAGE.format(
                root=lane.CACHE / "storage", run="/run/seatrial-images"
            ),
            "CONTAINERS_REGISTRIES_CONF": REGISTRIES.format(host=registry.host),
        }.items():
            (tmp_path / name).write_text(text)
            monkeypatch.setenv(name, str(tmp_path / name))
        (tmp_path / "config.json").write_text("{}")  # an own ~/.docker, without logins
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        yield registry


def build(log: Path, *, rebuild: bool = False, **settings: Any) -> BuiltImage:
    config = Buildah.model_validate(
        {"builder": "buildah", "build": "cpu", "args": {"BASE": lane.base()}} | settings
    )
    return ensure_image(config, None, log, rebuild=rebuild)


def test_an_unchanged_image_is_found(registry: Registry, tmp_path: Path) -> None:
    log = tmp_path / "image-build.log"
    first = build(log)
    assert first.reference.startswith("localhost/seatrial/cpu:")
    assert (first.digest or "").startswith("sha256:")
    log.unlink(missing_ok=True)
    second = build(log)
    assert (second.pinned, second.fresh) == (first.pinned, False)
    assert len(second.architectures) == 1
    assert not log.exists()
    assert (
        lane.run_once(
            second.reference, "sh", "-c", "command -v sshd mpirun seatrial-node"
        ).returncode
        == 0
    )


def small(folder: Path, text: str) -> dict[str, Any]:
    """A recipe on the lane's base that takes a moment to build."""
    (folder / "own").mkdir(exist_ok=True)
    (folder / "own" / "Dockerfile").write_text(f"ARG BASE\nFROM ${{BASE}}\n{text}\n")
    return {"build": str(folder / "own")}


def test_the_image_is_pushed_to_its_repository(registry: Registry, tmp_path: Path) -> None:
    log = tmp_path / "image-build.log"
    settings = small(tmp_path, "RUN date +%N > /made") | {"repository": f"{registry.host}/team"}
    first = build(log, **settings)
    assert first.fresh
    assert (first.reference.rpartition(":")[0], first.digest) == (
        f"{registry.host}/team/own",
        first.digest,
    )
    assert ("team/own", first.digest) in registry.manifests
    assert "+ buildah push" in log.read_text()
    second = build(log, **settings)
    assert (second.pinned, second.fresh) == (first.pinned, False)
    assert second.architectures == first.architectures
    forced = build(log, rebuild=True, **settings)
    assert forced.digest != first.digest
    lane.podman("rmi", "--force", first.reference)


@pytest.mark.gate
def test_a_failing_step_is_named(registry: Registry, tmp_path: Path) -> None:
    log = tmp_path / "image-build.log"
    with pytest.raises(
        LaunchError, match=r"image localhost/seatrial/own:.*: the build failed: .*exit status 3"
    ):
        build(log, **small(tmp_path, "RUN echo no such thing >&2; exit 3"))
    assert "no such thing" in log.read_text()


def test_a_missing_base_image_is_named(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(
        LaunchError, match=r"base image access: .*nowhere:1.*; next: log in to its registry"
    ):
        build(
            tmp_path / "log",
            **small(tmp_path, "RUN true"),
            args={"BASE": f"{registry.host}/nowhere:1"},
        )


def test_a_build_that_hangs_is_ended(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="the build was ended: it did not end within 5 s"):
        build(tmp_path / "log", **small(tmp_path, "RUN sleep 555"), timeout_s=5)
    listing = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert b"sleep\x00555\x00" not in listing
