"""Which inputs a tag follows from, and what is run for it."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.builders import local, render_image
from seatrial.builders.plan import BuildPlan, bases_of, context_files, make_plan, tag_for
from seatrial.config.image import Buildah, Docker, Recipe, arguments, bases
from seatrial.remote.probes import PROBES
from seatrial.system.shipped import IMAGES

BASE = {"debian:bookworm-slim": "sha256:" + 64 * "a"}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a Dockerfile, a file that is copied and one that is ignored."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "Dockerfile").write_text(
        "ARG BASE=debian:bookworm-slim\nFROM ${BASE}\nARG EXTRA_DEB\nCOPY a /\n"
    )
    (folder / "a").write_text("a")
    (folder / "notes").write_text("nothing")
    (folder / ".dockerignore").write_text("# not these\nnotes\n")
    return folder


def config(folder: Path | str, **settings: object) -> Docker:
    return Docker.model_validate({"builder": "docker", "build": str(folder), **settings})


def plan(
    image: Recipe,
    platforms: tuple[str, ...] = ("linux/amd64",),
    base: dict[str, str | None] | None = None,
) -> BuildPlan:
    digests: dict[str, str | None] = dict(BASE) if base is None else base
    return make_plan(image, platforms, digests, lambda tag: f"r.example.com/x/{image.name}:{tag}")


def test_tag_is_the_base_name_and_a_hash(own: Path) -> None:
    tag = plan(config(own)).tag
    assert tag.startswith("bookworm-slim-")
    assert len(tag) == len("bookworm-slim-") + 12
    assert plan(config(own)).tag == tag


@pytest.mark.parametrize(
    ("base", "tag"),
    [
        ("nvcr.io/nvidia/pytorch:26.01-py3", "26.01-py3-abc"),
        ("127.0.0.1:5000/x", "abc"),
        (f"debian@sha256:{64 * 'a'}", "abc"),
        ("x:" + 128 * "y", 100 * "y" + "-abc"),
    ],
)
def test_a_tag_is_legal_whatever_the_base_is_called(base: str, tag: str) -> None:
    assert tag_for(["other:1", base], "abc") == tag
    assert tag_for([], "abc") == "abc"


def chmod(folder: Path) -> None:
    (folder / "a").chmod(0o755)


CHANGES: list[Callable[[Path], object]] = [
    lambda folder: (folder / "a").write_text("b"),
    lambda folder: (folder / "a").rename(folder / "b"),
    lambda folder: (folder / "c").symlink_to("a"),
    lambda folder: (folder / "Dockerfile").write_text(
        "FROM debian:bookworm-slim\nARG EXTRA_DEB\nUSER 0\n"
    ),
    chmod,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_context_changes_the_tag(
    own: Path, change: Callable[[Path], object]
) -> None:
    before = plan(config(own)).tag
    change(own)
    assert plan(config(own)).tag != before


def test_other_inputs_change_the_tag(own: Path) -> None:
    tags = {
        plan(config(own)).tag,
        plan(config(own, args={"EXTRA_DEB": "vim"})).tag,
        plan(config(own), ("linux/arm64",)).tag,
        plan(config(own), base={"debian:bookworm-slim": "sha256:" + 64 * "b"}).tag,
        plan(config(own), base={"debian:bookworm-slim": None}).tag,
    }
    assert len(tags) == 5


def test_ignored_files_do_not_change_the_tag(own: Path) -> None:
    before = plan(config(own)).tag
    (own / "notes").write_text("other")
    os.utime(own / "a", (0, 0))
    (own / "a").chmod(0o664)  # another umask
    assert plan(config(own)).tag == before
    moved = own.parent / "elsewhere" / "mine"
    shutil.copytree(own, moved)
    assert plan(config(moved)).tag == before
    assert plan(config(own, timeout_s=5)).tag == before


@pytest.mark.parametrize("name", ["acceptance", "cpu", "pytorch-mpi", "testbed-a4"])
def test_build_context_holds_the_image_folder_common_and_the_probes(name: str) -> None:
    files = context_files(config(name))
    # What links lead to
    probes = {path.resolve().relative_to(IMAGES.parent).as_posix() for path in PROBES}
    assert {file for file in files if not file.startswith("images/")} == probes
    assert {file.split("/")[1] for file in files if file.startswith("images/")} == {"common", name}
    assert f"images/{name}/Dockerfile" in files
    assert "images/common/bin/seatrial-node" in files
    assert "images/cpu/base/make-base" not in files
    assert all((IMAGES.parent / file).is_file() for file in files)


def test_base_images_of_the_shipped_dockerfiles_are_found() -> None:
    assert bases_of(config("cpu")) == ["debian:bookworm-slim"]
    assert bases_of(config("cpu", args={"BASE": "r.io/debian:12"})) == ["r.io/debian:12"]
    assert bases_of(config("acceptance")) == [
        "nvidia/cuda:12.6.1-devel-ubuntu24.04",
        "mambaorg/micromamba:2.0.5",
        "nvidia/cuda:12.6.1-runtime-ubuntu24.04",
    ]


def test_bases_are_images_that_are_not_stages_of_the_dockerfile() -> None:
    text = """\
# FROM not:this
ARG TAG=1 NAME="a"
FROM --platform=$BUILDPLATFORM x/$NAME:${TAG} AS one
FROM one AS two
FROM scratch
COPY --from=two /a /a
COPY --from=0 /a /b
COPY --from=y:${TAG:-2} \\
    /a /c
COPY --from=x/a:1 /a /d
ARG LATER=3
"""
    assert bases(text, {}) == ["x/a:1", "y:1"]
    assert bases(text, {"TAG": "9"}) == ["x/a:9", "y:9", "x/a:1"]
    assert arguments(text) == {"TAG", "NAME", "LATER"}


def test_docker_pushes_where_there_is_a_repository() -> None:
    image = config(
        "cpu", repository="r.example.com/x", args={"EXTRA_DEB": "vim htop", "BASE": "debian:12"}
    )
    made = BuildPlan(image, "t", "r.example.com/x/cpu:t", ("linux/amd64", "linux/arm64"), ())
    assert local.docker_argv(made, Path("/m.json")) == [
        *("docker", "buildx", "build", "--progress=plain", "--platform=linux/amd64,linux/arm64"),
        f"--file={IMAGES}/cpu/Dockerfile",
        "--tag=r.example.com/x/cpu:t",
        *("--build-arg=BASE=debian:12", "--build-arg=EXTRA_DEB=vim htop"),
        *("--push", "--metadata-file=/m.json", str(IMAGES.parent)),
    ]
    kept = local.docker_argv(
        BuildPlan(config("cpu"), "t", "seatrial/cpu:t", ("linux/amd64",), (), anew=True),
        Path("/m.json"),
    )
    assert "--load" in kept
    assert "--push" not in kept
    assert "--no-cache" in kept


def test_buildah_needs_no_daemon() -> None:
    image = Buildah.model_validate(
        {"builder": "buildah", "build": "cpu", "repository": "r.example.com/x"}
    )
    made = BuildPlan(image, "t", "r.example.com/x/cpu:t", ("linux/amd64",), ())
    assert local.buildah_argv(made) == [
        *(
            "buildah",
            "bud",
            "--layers",
            "--isolation=chroot",
            "--ulimit=nofile=1024:1024",
            "--platform=linux/amd64",
        ),
        f"--file={IMAGES}/cpu/Dockerfile",
        f"--ignorefile={IMAGES}/cpu/Dockerfile.dockerignore",
        "--tag=r.example.com/x/cpu:t",
        str(IMAGES.parent),
    ]
    assert "--no-cache" in local.buildah_argv(replace(made, anew=True))
    assert local.push_argv(made, Path("/d")) == [
        *(
            "buildah",
            "push",
            "--digestfile=/d",
            "r.example.com/x/cpu:t",
            "docker://r.example.com/x/cpu:t",
        ),
    ]


def test_a_plan_is_rendered_without_network_access() -> None:
    shown = render_image(config("cpu", repository="r.invalid/x"), "arm64")
    assert shown["image"] == "r.invalid/x/cpu:bookworm-slim-HASH for linux/arm64\n"
    assert shown["image-build"].startswith("docker buildx build ")
