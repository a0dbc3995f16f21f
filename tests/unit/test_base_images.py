"""Base images get the digests of their tags, and keep them where a registry does not answer."""

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.base_images import files, images, renewed
from seatrial.builders.stored import UnreachableError

OLD, NEW = f"sha256:{'0' * 64}", f"sha256:{'1' * 64}"
DOCKERFILE = f"""\
# FROM a comment:1
ARG BASE=nvcr.io/nvidia/pytorch:26.01-py3
ARG BUILD_BASE=nvidia/cuda:12.6.1-devel@{OLD}
ARG NCCL_TESTS_VERSION=2.19.6
ARG URL=https://github.com/NVIDIA/nccl-tests.git
FROM ${{BASE}} AS nccl-tests
FROM python:3.12-slim-bookworm AS tools
"""
COMPOSE = (
    "services:\n  db:\n    image: postgres:17-alpine\n  own:\n    image: "
    "${SEATRIAL_IMAGE:-seatrial}\n"
)


def test_every_base_of_the_tree_is_found() -> None:
    bases = {image for file in files() for image in images(file.read_text())}
    names = {image.partition(":")[0].rpartition("/")[2] for image in bases}
    assert {
        "debian",
        "cuda",
        "micromamba",
        "pytorch",
        "python",
        "postgres",
        "pytorch-gpu-nemo-nccl",
    } <= names


def test_digests_are_added_to_base_images(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text(DOCKERFILE)
    assert renewed(file, lambda image: NEW) == []
    lines = file.read_text().splitlines()
    assert lines[1:3] == [
        f"ARG BASE=nvcr.io/nvidia/pytorch:26.01-py3@{NEW}",
        f"ARG BUILD_BASE=nvidia/cuda:12.6.1-devel@{NEW}",
    ]
    assert lines[6] == f"FROM python:3.12-slim-bookworm@{NEW} AS tools"
    assert [line for line in lines if NEW not in line] == [
        DOCKERFILE.splitlines()[i] for i in (0, 3, 4, 5)
    ]
    file.write_text(COMPOSE)
    assert renewed(file, lambda image: NEW) == []
    assert file.read_text() == COMPOSE.replace("17-alpine", f"17-alpine@{NEW}")


def silent(image: str) -> str | None:
    raise UnreachableError("the registry does not answer")


@pytest.mark.parametrize(
    ("find", "why"), [(silent, "does not answer"), (lambda image: None, "does not have it")]
)
def test_files_are_unchanged_when_the_registry_gives_no_digest(
    find: Callable[[str], str | None], why: str, tmp_path: Path
) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text(DOCKERFILE)
    problems = renewed(file, find)
    assert len(problems) == 3
    assert all(why in problem for problem in problems)
    assert file.read_text() == DOCKERFILE
