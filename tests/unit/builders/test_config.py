"""`image:` in a cluster file: what is legal, and what is said about the rest."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.builders import builder_for, platforms_of
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.image import Buildah, CloudBuild, Docker, Prebuilt
from seatrial.system.shipped import IMAGES
from tests.cluster_files import refusal

PKG_DEV = "us-central1-docker.pkg.dev/my-project/repo"


def read(folder: Path, image: object) -> Cluster:
    file = folder / "c.yaml"
    file.write_text(yaml.safe_dump({"nodes": 2, "platform": {"kind": "local"}, "image": image}))
    return load_cluster(file)


def recipe(folder: Path, **image: Any) -> Docker | Buildah | CloudBuild:
    parsed = read(folder, image).image
    assert isinstance(parsed, Docker | Buildah | CloudBuild)
    return parsed


@pytest.mark.parametrize(
    "reference",
    [
        "debian",
        "debian:bookworm-slim",
        "nvcr.io/nvidia/pytorch:26.01-py3",
        "127.0.0.1:5000/a/b:c",
        f"x@sha256:{64 * 'a'}",
    ],
)
def test_image_given_as_a_reference_is_prebuilt(tmp_path: Path, reference: str) -> None:
    image = read(tmp_path, reference).image
    assert isinstance(image, Prebuilt)
    assert image.reference == reference


@pytest.mark.parametrize("kind", ["docker", "buildah", "cloud-build"])
def test_every_builder_is_found(tmp_path: Path, kind: str) -> None:
    image = recipe(tmp_path, build="cpu", builder=kind, repository=PKG_DEV)
    assert builder_for(image).reference("t") == f"{PKG_DEV}/cpu:t"


def test_the_projects_own_images_share_a_context(tmp_path: Path) -> None:
    image = recipe(tmp_path, build="cpu", builder="docker")
    assert (image.context, image.dockerfile, image.name) == (
        IMAGES.parent,
        "images/cpu/Dockerfile",
        "cpu",
    )


def test_folder_outside_the_project_is_its_own_build_context(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM scratch\n")
    image = recipe(tmp_path, build=str(folder), builder="docker")
    assert (image.context, image.dockerfile, image.name) == (folder, "Dockerfile", "mine")


def test_project_and_region_default_to_those_of_the_repository(tmp_path: Path) -> None:
    image = recipe(tmp_path, build="cpu", builder="cloud-build", repository=PKG_DEV)
    assert isinstance(image, CloudBuild)
    assert (image.own_project, image.own_region) == ("my-project", "us-central1")
    image = recipe(
        tmp_path,
        build="cpu",
        builder="cloud-build",
        repository=PKG_DEV,
        project="other",
        region="global",
    )
    assert isinstance(image, CloudBuild)
    assert (image.own_project, image.own_region) == ("other", "global")


def test_images_are_built_for_the_nodes_architecture(tmp_path: Path) -> None:
    image = recipe(tmp_path, build="cpu", builder="docker", repository="r.example.com/x")
    assert platforms_of(image, "arm64") == ("linux/arm64",)
    both = recipe(
        tmp_path,
        build="cpu",
        builder="docker",
        repository="r.io/x",
        platforms=["linux/amd64", "linux/arm64"],
    )
    assert platforms_of(both, "arm64") == ("linux/amd64", "linux/arm64")
    assert platforms_of(
        recipe(tmp_path, build="cpu", builder="cloud-build", repository=PKG_DEV), "arm64"
    ) == ("linux/amd64",)


CLOUD = {"build": "cpu", "builder": "cloud-build", "repository": PKG_DEV}
DOCKER = {"build": "cpu", "builder": "docker"}
LOGIN = (
    r"(args|substitutions): the value of \w+ has a login in its address, .*; legal: an "
    "address without one"
)
BOTH = ["linux/amd64", "linux/arm64"]


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (5, r"image: must be a reference or what to build, .*, is 5"),
        ("Foo Bar", r"image: must be an image reference, .* is 'Foo Bar'"),
        ({"build": "cpu"}, r"image: needs a field builder, such as \{builder: docker, build: cpu\}"),
        ({"build": "cpu", "builder": "kaniko"}, r"image: .*'kaniko'.*'prebuilt', 'file', .*, 'docker', 'buildah'"),
        ({"builder": "docker"}, r"image\.build: is required"),
        (DOCKER | {"build": "nope"}, r"build: .*nope has no Dockerfile; legal: acceptance, cpu, pytorch-mpi, "),
        (DOCKER | {"foo": 1}, r"image\.foo: unknown field; legal: args, build, builder, platforms, "),
        (DOCKER | {"args": {"HF_TOKEN": "x"}}, r"args: the name or value of HF_TOKEN looks like a secret"),
        (DOCKER | {"args": {"REGISTRY_KEY": "x"}}, r"REGISTRY_KEY looks like a secret"),
        (DOCKER | {"args": {"SITE_PASSPHRASE": "x"}}, r"SITE_PASSPHRASE looks like a secret"),
        (DOCKER | {"args": {"SITE_KEYS": "-----BEGIN PRIVATE KEY-----"}}, r"SITE_KEYS looks like a secret"),
        (DOCKER | {"args": {"HTTPS_PROXY": "http://u:hunter2@proxy"}}, LOGIN),
        (DOCKER | {"args": {"https_proxy": "u:hunter2@proxy:3128"}}, LOGIN),
        (DOCKER | {"args": {"EXTRA_PIP": "-i HTTPS://hunter2@mirror.example.com/simple x"}}, LOGIN),
        (CLOUD | {"substitutions": {"_PROXY": "socks5://:hunter2@proxy"}}, LOGIN),
        (DOCKER | {"args": {"FOO": "x"}}, r"args: the Dockerfile has no ARG FOO; legal: BASE, EXTRA_DEB, EXTRA_PIP"),
        (DOCKER | {"args": {"EXTRA_DEB": 1}}, r"args\.EXTRA_DEB: must be text, is 1: quote it"),
        (DOCKER | {"platforms": ["linux/riscv64"]}, r"platforms\.0: .*'linux/arm64', is 'linux/riscv64'"),
        (DOCKER | {"platforms": BOTH}, r"repository: is required with more than one platform"),
        (DOCKER | {"repository": "R.io/X:tag"}, r"repository: must be registry/path without tag"),
        (DOCKER | {"timeout_s": 0}, r"timeout_s: .*at least 1, is 0"),
        (DOCKER | {"builder": "buildah", "platforms": BOTH}, r"platforms: buildah builds for one"),
        (CLOUD | {"platforms": ["linux/arm64"]}, r"platforms: cloud-build's machines are linux/amd64"),
        (CLOUD | {"repository": "r.example.com/x"}, r"project: is required with a repository outside "),
        (CLOUD | {"substitutions": {"_TAG": "x"}}, r"substitutions: _TAG is set from the build context"),
        (CLOUD | {"substitutions": {"TAG": "x"}}, r"substitutions: 'TAG' is no name of a substitution"),
        ({"build": "cpu", "builder": "cloud-build"}, r"image\.repository: is required"),
    ],
)  # fmt: skip
def test_invalid_settings_are_one_line(tmp_path: Path, image: object, message: str) -> None:
    line = refusal(tmp_path, platform={"kind": "local"}, image=image)
    assert re.match(rf"{tmp_path}/cluster\.yaml: (line \d+: )?image", line)
    assert re.search(message, line)
    assert "hunter2" not in line


def test_built_image_for_remote_nodes_needs_a_repository(tmp_path: Path) -> None:
    line = refusal(tmp_path, platform={"kind": "kubernetes"}, image=DOCKER)
    assert "image: needs a repository, from which the nodes of platform kubernetes pull it" in line


def test_predefined_proxy_arguments_need_no_arg_instruction(tmp_path: Path) -> None:
    assert recipe(tmp_path, **DOCKER, args={"HTTPS_PROXY": "http://proxy:3128"}).args


@pytest.mark.parametrize(
    "value",
    [
        "git+https://example.com/x@v1",
        "git+ssh://git@example.com/x",
        "x @ https://example.com:8443/x.whl",
        "a@b",
    ],
)
def test_an_at_sign_in_a_reference_is_not_read_as_a_login(tmp_path: Path, value: str) -> None:
    assert recipe(tmp_path, **DOCKER, args={"EXTRA_PIP": value}).args
