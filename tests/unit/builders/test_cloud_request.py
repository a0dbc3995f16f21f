"""What Cloud Build is sent for a folder's own cloudbuild.yaml."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.builders import check_recipe
from seatrial.builders.cloud_build import GoogleClients
from seatrial.builders.cloud_build_recipe import reference, request, timeout_s
from seatrial.config.image import CloudBuild
from seatrial.model.errors import InputError

DOCKER = {"name": "gcr.io/cloud-builders/docker", "args": ["build", ".", "--tag", "x"]}
KANIKO = {"name": "gcr.io/kaniko-project/executor", "args": ["--destination=x"]}
ARGS = {"EXTRA_DEB": "vim"}
POOL = {"pool": {"name": "projects/p/locations/us-central1/workerPools/own"}}


def config(folder: Path, recipe: dict[str, Any], **settings: Any) -> CloudBuild:
    (folder / "own").mkdir(exist_ok=True)
    (folder / "own" / "Dockerfile").write_text("FROM scratch\nARG EXTRA_DEB\n")
    (folder / "own" / "cloudbuild.yaml").write_text(
        yaml.safe_dump({"steps": [DOCKER], "images": ["gcr.io/p/own:${_TAG}"], **recipe})
    )
    own = {
        "builder": "cloud-build",
        "build": str(folder / "own"),
        "repository": "us-central1-docker.pkg.dev/proj/repo",
    }
    return CloudBuild.model_validate({**own, **settings})


@pytest.mark.parametrize(
    ("image", "filled"),
    [
        ("gcr.io/$PROJECT_ID/own:${_TAG}", "gcr.io/proj/own:t"),
        (
            "${LOCATION}-docker.pkg.dev/${PROJECT_ID}/repo/own:${_TAG}",
            "us-central1-docker.pkg.dev/proj/repo/own:t",
        ),
        (
            "$_ARTIFACT_REGISTRY/own-$_KIND:${_TAG}",
            "us-central1-docker.pkg.dev/proj/repo/own-big:t",
        ),
    ],
)
def test_substitutions_known_before_the_build_are_filled_in(
    tmp_path: Path, image: str, filled: str
) -> None:
    own = config(tmp_path, {"images": [image], "substitutions": {"_KIND": "big"}})
    assert reference(own, "t") == filled


@pytest.mark.parametrize(
    "variable", ["$BUILD_ID", "${PROJECT_NUMBER}", "$_NOBODY_SAYS", "${_KIND%-*}", "$_NESTED"]
)
def test_a_name_that_is_not_known_before_the_build_is_refused(
    tmp_path: Path, variable: str
) -> None:
    recipe = {
        "images": [f"gcr.io/p/{variable}:${{_TAG}}"],
        "substitutions": {"_KIND": "a-b", "_NESTED": "${_KIND}"},
    }
    with pytest.raises(
        InputError,
        match=r"cloudbuild\.yaml: images: .* is not known before the build; legal: .*_KIND",
    ):
        check_recipe(config(tmp_path, recipe))


@pytest.mark.parametrize(
    ("recipe", "settings", "seconds"),
    [
        ({}, {}, 7200),
        ({"timeout": "10800s"}, {}, 10800),
        ({"timeout": "10800s"}, {"timeout_s": 7200}, 7200),
        ({}, {"timeout_s": 60}, 60),
    ],
)
def test_build_timeout_of_the_request_is_also_waited_for(
    tmp_path: Path, recipe: dict[str, Any], settings: dict[str, int], seconds: int
) -> None:
    own = config(tmp_path, recipe, **settings)
    assert (timeout_s(own), request(own, "t")["timeout"]) == (seconds, f"{seconds}s")


def test_arguments_go_into_docker_builds(tmp_path: Path) -> None:
    first, second = request(config(tmp_path, {"steps": [KANIKO, DOCKER]}, args=ARGS), "t")["steps"]
    assert first == KANIKO
    assert second["args"] == ["build", "--build-arg=EXTRA_DEB=vim", ".", "--tag", "x"]


@pytest.mark.parametrize(
    "step", [KANIKO, {"name": "docker"}, DOCKER | {"entrypoint": "bash"}, DOCKER | {"name": "x"}]
)
def test_arguments_that_nothing_takes_are_refused(tmp_path: Path, step: dict[str, Any]) -> None:
    with pytest.raises(
        InputError, match=r"image\.args: .*cloudbuild\.yaml has no docker step .*; legal: "
    ):
        check_recipe(config(tmp_path, {"steps": [step]}, args=ARGS))
    check_recipe(config(tmp_path, {"steps": [step]}))


def test_machine_type_is_refused_with_a_private_pool(tmp_path: Path) -> None:
    assert request(config(tmp_path, {"options": POOL}), "t")["options"] == POOL
    with pytest.raises(InputError, match=r"image\.machine: .* builds in a pool, .*; leave it out"):
        check_recipe(config(tmp_path, {"options": POOL}, machine="E2_HIGHCPU_8"))


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"timeout": 600}, r"timeout: must be seconds, such as 7200s, is 600"),
        ({"steps": ["docker build"]}, r"needs steps and images"),
        ({"steps": None}, r"needs steps and images"),
    ],
)
def test_invalid_settings_are_named(tmp_path: Path, recipe: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=rf"cloudbuild\.yaml: {message}"):
        check_recipe(config(tmp_path, recipe))


class Account:
    """An account that needs nobody to be refreshed."""

    token = "token"

    def refresh(self, request: object) -> None:
        pass


@pytest.mark.parametrize(
    ("registry", "gets_it"),
    [
        ("gcr.io", True),
        ("eu.gcr.io", True),
        ("us-docker.pkg.dev", True),
        ("notgcr.io", False),
        ("notpkg.dev", False),
        ("gcr.io.example.com", False),
        ("registry-1.docker.io", False),
    ],
)
def test_only_googles_registries_get_the_token(
    registry: str,
    gets_it: bool,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path_factory.mktemp("docker")))
    monkeypatch.setattr(GoogleClients, "_credentials", Account())
    assert GoogleClients("p").registry_login(registry) == (
        ("oauth2accesstoken", "token") if gets_it else None
    )
