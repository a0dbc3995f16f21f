"""The step `image` in a whole run: what the cluster file asks for is found or built, and recorded."""

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import Console, Finished, until
from tests.integration.registry import Registry, serving, stand_in_for_docker


@pytest.fixture
def calls(console: Console) -> Path:
    """docker's stand-in, first on PATH of the console; the file lists its calls."""
    console.environment |= {
        "PATH": f"{stand_in_for_docker(console.folder)}:{os.environ['PATH']}",
        "CALLS": str(console.folder / "calls"),
        "DOCKER_CONFIG": str(console.folder),
    }
    return console.folder / "calls"


def run(console: Console, image: object, name: str, *more: str) -> Finished:
    return console.check(console.cluster(2, image=image), console.suite(collectives=None), name, *more)


def test_the_image_is_built_once_and_recorded(console: Console, calls: Path) -> None:
    with serving(Registry()) as registry:
        registry.add("base", "1")
        folder = console.folder / "own"
        folder.mkdir()
        (folder / "Dockerfile").write_text(f"FROM {registry.host}/base:1\n")
        recipe = {"build": str(folder), "builder": "docker", "repository": f"{registry.host}/team"}
        first = run(console, recipe, "first")
        assert first.status == 0, first.output
        image = first.document["fingerprint"]["image"]
        assert image.startswith(f"{registry.host}/team/own:1-")
        assert "@sha256:" in image
        assert "torch" in first.document["fingerprint"]
        assert "pushed sha256:" in (console.folder / "first" / "logs" / "image-build.log").read_text()
        assert len(calls.read_text().splitlines()) == 1
        second = run(console, recipe, "second")
        assert second.document["fingerprint"]["image"] == image
        assert len(calls.read_text().splitlines()) == 1


def test_an_image_that_does_not_exist_is_a_prerequisite_that_is_missing(console: Console, calls: Path) -> None:
    with serving(Registry()) as registry:
        done = run(console, f"{registry.host}/team/nope:1", "out")
    assert done.status == 3, done.output
    assert done.check("image")["verdict"] == "not_run"
    assert done.check("image")["code"] == "image-missing"
    assert f"{registry.host}/team/nope:1" in done.check("image")["reason"]
    assert done.check("launch")["verdict"] == "not_run"


def test_a_build_that_fails_is_inconclusive(console: Console, calls: Path) -> None:
    console.environment["FAIL"] = "ERROR: no space left on device"
    with serving(Registry()) as registry:
        folder = console.folder / "own"
        folder.mkdir()
        (folder / "Dockerfile").write_text("FROM scratch\n")
        recipe = {"build": str(folder), "builder": "docker", "repository": f"{registry.host}/team"}
        done = run(console, recipe, "out")
    assert done.status == 3, done.output
    assert done.check("image")["verdict"] == "inconclusive"
    assert "quota: ERROR: no space left on device; next: free some" in done.check("image")["reason"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_cut_off_ends_its_build(console: Console, calls: Path, number: int, status: int) -> None:
    pid = console.folder / "pid"
    console.environment["HANG"] = str(pid)
    with serving(Registry()) as registry:
        folder = console.folder / "own"
        folder.mkdir()
        (folder / "Dockerfile").write_text("FROM scratch\n")
        cluster = console.cluster(
            2, image={"build": str(folder), "builder": "docker", "repository": f"{registry.host}/t"}
        )
        process = console.start("run", cluster, "--suite", console.suite(), "--out", console.folder / "out")
        until(lambda: pid.exists() and bool(pid.read_text()))
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == status
    assert not Path(f"/proc/{pid.read_text()}").exists()


def test_a_recipe_of_cloud_build_that_is_none_is_bad_input(console: Console) -> None:
    folder = console.folder / "own"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM scratch\n")
    (folder / "cloudbuild.yaml").write_text("steps: []\nimages: ['x:1']\n")
    recipe = {"build": str(folder), "builder": "cloud-build", "repository": "us-docker.pkg.dev/p/r"}
    done = run(console, recipe, "out")
    assert done.status == 2, done.output
    assert "cloudbuild.yaml: images: the first must end in :${_TAG}" in done.err
