"""What Cloud Build is asked to build, of what, and when not at all."""

import io
import re
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.model.errors import InputError
from seatrial.system.shipped import IMAGES
from tests.integration.cloud_build.building import BUILDS, build, config
from tests.integration.google_cloud import GoogleCloud


def as_gcloud_sends_it(recipe: Path, substitutions: dict[str, str]) -> dict[str, Any]:
    """The Build that `gcloud builds submit --config RECIPE --substitutions ...` sends, apart from
    its source.

    Fields as the file has them; the file's substitutions under those of the command line, sorted by
    name.
    """
    document: dict[str, Any] = yaml.safe_load(recipe.read_text())
    return document | {
        "substitutions": dict(sorted((document.get("substitutions", {}) | substitutions).items()))
    }


def test_a_build_is_submitted_waited_for_and_its_digest_returned(
    cloud: GoogleCloud, tmp_path: Path
) -> None:
    built = build(cloud, tmp_path)
    assert re.fullmatch(
        rf"{cloud.registry.host}/repo/testbed:nemo25\.04-gib1\.0\.6-A4-[0-9a-f]{{12}}",
        built.reference,
    )
    _, path, tag = (
        built.reference.replace(":", "/").split("/", 2)[0],
        "repo/testbed",
        built.reference.rpartition(":")[2],
    )
    assert built.digest == next(
        d for (p, d) in reversed(cloud.registry.manifests) if p == path and d != tag
    )
    assert (built.architectures, built.fresh) == (("amd64",), True)
    assert (tmp_path / "image-build.log").read_text() == "Step 1\nStep 2\nDONE\n"
    assert cloud.cancelled == []


def test_build_request_equals_that_of_gcloud(cloud: GoogleCloud, tmp_path: Path) -> None:
    """The shipped recipe unchanged: without arguments, and with its own base image."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seatrial.builders.registry.look_up", lambda reference, login: None)
        built = build(cloud, tmp_path, args={})
    ((path, sent),) = cloud.submitted
    assert path == BUILDS
    source = sent.pop("source")["storageSource"]
    request = as_gcloud_sends_it(
        IMAGES / "testbed-a4/cloudbuild.yaml", {"_ARTIFACT_REGISTRY": f"{cloud.registry.host}/repo"}
    )
    tag = built.reference.rpartition(":")[2]
    assert tag.startswith(request["substitutions"]["_TAG"])  # the recipe's own, and the hash
    request["substitutions"]["_TAG"] = tag
    assert sent == request
    assert source["bucket"] == "my-project_cloudbuild"
    assert re.fullmatch(r"source/\d+\.\d+-[0-9a-f]{32}\.tgz", source["object"])
    assert source["generation"] == "1700000000000001"


def test_uploaded_source_archive_holds_only_the_files_of_the_image(
    cloud: GoogleCloud, tmp_path: Path
) -> None:
    build(cloud, tmp_path)
    source = cloud.submitted[0][1]["source"]["storageSource"]
    with tarfile.open(
        fileobj=io.BytesIO(cloud.objects[source["bucket"], source["object"]])
    ) as archive:
        members = {member.name: member for member in archive}
        dockerfile = archive.extractfile("images/testbed-a4/Dockerfile")
        assert dockerfile is not None
        assert dockerfile.read() == (IMAGES / "testbed-a4/Dockerfile").read_bytes()
    assert {"/".join(name.split("/")[:2]) for name in members} == {
        *("images/common", "images/testbed-a4", "seatrial/nccl", "seatrial/remote"),
    }
    assert members["images/common/bin/seatrial-node"].mode == 0o755
    assert {(member.uid, member.uname) for member in members.values()} == {(0, "")}
    assert cloud.buckets == {"my-project_cloudbuild": "my-project"}


def test_the_cluster_file_sets_fields_of_the_request(cloud: GoogleCloud, tmp_path: Path) -> None:
    arguments = {"BASE": config(cloud).args["BASE"], "EXTRA_DEB": "vim $HOME"}
    more: dict[str, Any] = {
        "args": arguments,
        "machine": "E2_HIGHCPU_8",
        "timeout_s": 600,
        "substitutions": {"_OWN": "1"},
    }
    build(cloud, tmp_path, bucket="my-bucket", **more)
    sent = cloud.submitted[0][1]
    assert sent["steps"][0]["args"] == [
        "build",
        f"--build-arg=BASE={arguments['BASE']}",
        "--build-arg=EXTRA_DEB=vim $$HOME",
        "--file=images/testbed-a4/Dockerfile",
        "--tag=${_ARTIFACT_REGISTRY}/testbed:${_TAG}",
        ".",
    ]
    assert sent["options"] == {"machineType": "E2_HIGHCPU_8", "automapSubstitutions": True}
    assert sent["timeout"] == "600s"
    assert sent["substitutions"]["_OWN"] == "1"
    assert sent["source"]["storageSource"]["bucket"] == "my-bucket"


def test_a_folder_without_cloudbuild_yaml_is_one_docker_build(
    cloud: GoogleCloud, tmp_path: Path
) -> None:
    built = build(cloud, tmp_path, build="cpu")
    assert built.reference.startswith(f"{cloud.registry.host}/repo/cpu:nemo25.04-gib1.0.6-A4-")
    sent = cloud.submitted[0][1]
    assert sent["steps"][0]["args"][2:] == [
        "--file=images/cpu/Dockerfile",
        "--tag=${_ARTIFACT_REGISTRY}/cpu:${_TAG}",
        ".",
    ]
    assert sent["options"]["machineType"] == "E2_HIGHCPU_32"
    assert sent["timeout"] == "7200s"


def test_an_unchanged_image_is_not_built_again(cloud: GoogleCloud, tmp_path: Path) -> None:
    first = build(cloud, tmp_path)
    second = build(cloud, tmp_path)
    assert second == replace(first, fresh=False)
    assert len(cloud.submitted) == 1
    cloud.polls = 0
    assert build(cloud, tmp_path, rebuild=True).fresh
    assert len(cloud.submitted) == 2


def test_an_invalid_cloudbuild_yaml_is_named(cloud: GoogleCloud, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM scratch\n")
    recipe = folder / "cloudbuild.yaml"
    recipe.write_text("steps: [{name: x, args: [build, .]}]\nimages: ['x/y:1']\n")
    with pytest.raises(
        InputError, match=r"cloudbuild\.yaml: images: the first must end in :\$\{_TAG\}"
    ):
        build(cloud, tmp_path, build=str(folder), args={})
    recipe.write_text("stepz: []\n")
    with pytest.raises(InputError, match=r"cloudbuild\.yaml: needs steps and images"):
        build(cloud, tmp_path, build=str(folder), args={})
    image = f"{cloud.registry.host}/own:${{_TAG}}"
    recipe.write_text(f"steps: [{{name: x, argz: [build, .]}}]\nimages: ['{image}']\n")
    with pytest.raises(InputError, match=r"cloudbuild\.yaml: .*argz"):
        build(cloud, tmp_path, build=str(folder), args={})
