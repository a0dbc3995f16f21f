"""Builder `cloud-build` against a server on loopback that speaks the REST surface of Cloud Build and Cloud Storage."""

import io
import re
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from google.api_core.exceptions import TooManyRequests
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import RefreshError, TransportError

from seatrial.builders import Built, cloud_build, ensure_image
from seatrial.builders.cloud_clients import GoogleClients
from seatrial.builders.config import IMAGES, CloudBuild
from seatrial.errors import InputError, LaunchError, MissingError
from tests.integration.google_cloud import GoogleCloud, serving_google
from tests.integration.interrupt import interrupted_when
from tests.integration.registry import Registry, serving

GOES_WELL = [("QUEUED", ""), ("WORKING", "Step 1\n"), ("WORKING", ""), ("WORKING", "Step 2\n"), ("SUCCESS", "DONE\n")]
BUILDS = "/v1/projects/my-project/locations/us-central1/builds"


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GoogleCloud]:
    """A project on loopback whose builds go well, and a registry that they push to and take their base from."""
    with serving(Registry()) as registry, serving_google(GoogleCloud(registry, list(GOES_WELL))) as cloud:
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBUILD", f"http://127.0.0.1:{cloud.port}/")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{cloud.port}")
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        monkeypatch.setattr(cloud_build, "POLL_S", 0.02)
        registry.add("mirror/a4", "nemo25.04-gib1.0.6-A4")
        yield cloud


def config(cloud: GoogleCloud, **settings: Any) -> CloudBuild:
    own = {"builder": "cloud-build", "build": "testbed-a4", "project": "my-project", "region": "us-central1"}
    base = f"{cloud.registry.host}/mirror/a4:nemo25.04-gib1.0.6-A4"
    repository = f"{cloud.registry.host}/repo"
    return CloudBuild.model_validate({**own, "repository": repository, "args": {"BASE": base}, **settings})


def build(cloud: GoogleCloud, folder: Path, *, rebuild: bool = False, **settings: Any) -> Built:
    return ensure_image(config(cloud, **settings), "amd64", folder / "image-build.log", rebuild=rebuild)


def as_gcloud_sends_it(recipe: Path, substitutions: dict[str, str]) -> dict[str, Any]:
    """The Build that `gcloud builds submit --config RECIPE --substitutions ...` sends, apart from its source.

    Fields as the file has them; the file's substitutions under those of the command line, sorted by name.
    """
    found: dict[str, Any] = yaml.safe_load(recipe.read_text())
    return found | {"substitutions": dict(sorted((found.get("substitutions", {}) | substitutions).items()))}


def test_it_submits_waits_and_tells_the_digest(cloud: GoogleCloud, tmp_path: Path) -> None:
    built = build(cloud, tmp_path)
    assert re.fullmatch(rf"{cloud.registry.host}/repo/testbed:nemo25\.04-gib1\.0\.6-A4-[0-9a-f]{{12}}", built.reference)
    _, path, tag = (
        built.reference.replace(":", "/").split("/", 2)[0],
        "repo/testbed",
        built.reference.rpartition(":")[2],
    )
    assert built.digest == next(d for (p, d) in reversed(cloud.registry.manifests) if p == path and d != tag)
    assert (built.architectures, built.fresh) == (("amd64",), True)
    assert (tmp_path / "image-build.log").read_text() == "Step 1\nStep 2\nDONE\n"
    assert cloud.cancelled == []


def test_the_request_is_what_gcloud_sends(cloud: GoogleCloud, tmp_path: Path) -> None:
    """The recipe as it stands: no arguments, and the base where the recipe has it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seatrial.builders.registry.look_up", lambda reference, login: None)
        built = build(cloud, tmp_path, args={})
    ((path, sent),) = cloud.submitted
    assert path == BUILDS
    source = sent.pop("source")["storageSource"]
    wanted = as_gcloud_sends_it(
        IMAGES / "testbed-a4/cloudbuild.yaml", {"_ARTIFACT_REGISTRY": f"{cloud.registry.host}/repo"}
    )
    tag = built.reference.rpartition(":")[2]
    assert tag.startswith(wanted["substitutions"]["_TAG"])  # the recipe's own, and the hash
    wanted["substitutions"]["_TAG"] = tag
    assert sent == wanted
    assert source["bucket"] == "my-project_cloudbuild"
    assert re.fullmatch(r"source/\d+\.\d+-[0-9a-f]{32}\.tgz", source["object"])
    assert source["generation"] == "1700000000000001"


def test_the_source_is_what_the_image_is_made_of(cloud: GoogleCloud, tmp_path: Path) -> None:
    build(cloud, tmp_path)
    source = cloud.submitted[0][1]["source"]["storageSource"]
    with tarfile.open(fileobj=io.BytesIO(cloud.objects[source["bucket"], source["object"]])) as archive:
        members = {member.name: member for member in archive}
        dockerfile = archive.extractfile("testbed-a4/Dockerfile")
        assert dockerfile is not None
        assert dockerfile.read() == (IMAGES / "testbed-a4/Dockerfile").read_bytes()
    assert {name.split("/")[0] for name in members} == {"common", "testbed-a4"}
    assert members["common/bin/seatrial-node"].mode == 0o755
    assert {(member.uid, member.uname) for member in members.values()} == {(0, "")}
    assert cloud.buckets == {"my-project_cloudbuild": "my-project"}


def test_what_the_cluster_file_says_goes_in(cloud: GoogleCloud, tmp_path: Path) -> None:
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
        "--file=testbed-a4/Dockerfile",
        "--tag=${_ARTIFACT_REGISTRY}/testbed:${_TAG}",
        ".",
    ]
    assert sent["options"] == {"machineType": "E2_HIGHCPU_8", "automapSubstitutions": True}
    assert sent["timeout"] == "600s"
    assert sent["substitutions"]["_OWN"] == "1"
    assert sent["source"]["storageSource"]["bucket"] == "my-bucket"


def test_a_folder_without_cloudbuild_yaml_is_one_docker_build(cloud: GoogleCloud, tmp_path: Path) -> None:
    built = build(cloud, tmp_path, build="cpu")
    assert built.reference.startswith(f"{cloud.registry.host}/repo/cpu:nemo25.04-gib1.0.6-A4-")
    sent = cloud.submitted[0][1]
    assert sent["steps"][0]["args"][2:] == [
        "--file=cpu/Dockerfile",
        "--tag=${_ARTIFACT_REGISTRY}/cpu:${_TAG}",
        ".",
    ]
    assert sent["options"]["machineType"] == "E2_HIGHCPU_32"
    assert sent["timeout"] == "7200s"


def test_an_unchanged_image_is_not_built_again(cloud: GoogleCloud, tmp_path: Path) -> None:
    first = build(cloud, tmp_path)
    started = time.monotonic()
    second = build(cloud, tmp_path)
    assert time.monotonic() - started < 2
    assert second == replace(first, fresh=False)
    assert len(cloud.submitted) == 1
    cloud.polls = 0
    assert build(cloud, tmp_path, rebuild=True).fresh
    assert len(cloud.submitted) == 2


@pytest.mark.parametrize(
    ("status", "said", "failure", "reason"),
    [
        (
            "FAILURE",
            "failed to resolve source metadata for nvcr.io/x: unauthorized\n",
            {"type": "USER_BUILD_STEP", "detail": "Build step failure"},
            r"FAILURE: base image access: failed to resolve source metadata for nvcr\.io/x.*; next: log in",
        ),
        ("FAILURE", "pushed\n", {"type": "PUSH_NOT_AUTHORIZED", "detail": "no"}, r"permission: PUSH_NOT_AUTHORIZED"),
        ("FAILURE", "exec /bin/sh: exec format error\n", {}, r"wrong platform: exec /bin/sh: exec format error"),
        ("TIMEOUT", "Step 1\n", {}, r"ended as TIMEOUT: timeout: .*; next: raise image\.timeout_s"),
        ("CANCELLED", "Step 1\n", {}, r"ended as CANCELLED"),
        ("INTERNAL_ERROR", "", {}, r"ended as INTERNAL_ERROR"),
    ],
)
def test_a_failed_build_says_why(
    cloud: GoogleCloud, tmp_path: Path, status: str, said: str, failure: dict[str, str], reason: str
) -> None:
    cloud.script = [("WORKING", ""), (status, said)]
    cloud.failure = failure
    with pytest.raises(LaunchError, match=reason) as error:
        build(cloud, tmp_path)
    assert str(error.value).endswith("(https://console/build-1)")
    assert "\n" not in str(error.value)
    assert cloud.cancelled == []


def test_a_build_that_takes_too_long_is_cancelled(cloud: GoogleCloud, tmp_path: Path) -> None:
    cloud.script = [("WORKING", "Step 1\n")]
    with pytest.raises(
        LaunchError, match=r"timeout: not built within 1 s \(WORKING\), so the build was cancelled; next:"
    ):
        build(cloud, tmp_path, timeout_s=1)
    assert cloud.cancelled == [f"{BUILDS}/build-1:cancel"]
    assert (tmp_path / "image-build.log").read_text() == "Step 1\n"


def test_an_interrupted_build_is_cancelled(cloud: GoogleCloud, tmp_path: Path) -> None:
    cloud.script = [("WORKING", "Step 1\n")]

    with interrupted_when(lambda: cloud.polls >= 3), pytest.raises(KeyboardInterrupt):
        build(cloud, tmp_path)
    assert cloud.cancelled == [f"{BUILDS}/build-1:cancel"]


def test_who_may_not_build_is_told(cloud: GoogleCloud, tmp_path: Path) -> None:
    cloud.refuses = {f"POST {BUILDS}": (403, "The caller does not have permission")}
    with pytest.raises(
        LaunchError, match=r"Cloud Build: permission: .*The caller does not have permission; next: give"
    ):
        build(cloud, tmp_path)
    cloud.refuses = {"GET /storage/v1/b/": (403, "me does not have storage.buckets.get access to the bucket")}
    with pytest.raises(LaunchError, match=r"permission: .*storage\.buckets\.get access"):
        build(cloud, tmp_path)
    assert cloud.cancelled == []


def test_a_log_that_may_not_be_read_is_linked(cloud: GoogleCloud, tmp_path: Path) -> None:
    cloud.refuses = {"GET /download/storage/v1/b/logs": (403, "VPC-SC")}
    assert build(cloud, tmp_path).digest
    assert (tmp_path / "image-build.log").read_text() == (
        "The log cannot be read from here; it is at https://console/build-1\n"
    )


def test_a_service_out_of_reach_for_a_moment_loses_no_build(
    cloud: GoogleCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.refuses = {f"GET {BUILDS}": (500, "backend error")}
    timer = threading.Timer(0.5, cloud.refuses.clear)
    timer.start()
    assert build(cloud, tmp_path).fresh
    timer.join()
    assert cloud.cancelled == []


@pytest.mark.parametrize(
    "fault",
    [
        TransportError("the token's server does not answer"),
        RefreshError("the metadata server does not answer"),  # what it makes of a TransportError
        requests.exceptions.ChunkedEncodingError("cut off"),
        TooManyRequests("slow down"),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_a_fault_of_the_network_loses_no_build(
    cloud: GoogleCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """Once the build runs, its state and its log can each be asked for only the second time."""
    failed = set()

    class Account(AnonymousCredentials):  # type: ignore[misc]
        def before_request(self, request: object, method: str, url: str, headers: object) -> None:
            place = re.search(r"/builds/|/download/", url)
            if cloud.submitted and place and place[0] not in failed:
                failed.add(place[0])
                raise fault

    monkeypatch.setattr(GoogleClients, "_credentials", Account())
    assert build(cloud, tmp_path).fresh
    assert failed == {"/builds/", "/download/"}
    assert (tmp_path / "image-build.log").read_text() == "Step 1\nStep 2\nDONE\n"
    assert cloud.cancelled == []


def test_a_network_that_is_down_is_no_missing_login(
    cloud: GoogleCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Account(AnonymousCredentials):  # type: ignore[misc]
        def before_request(self, *_: object) -> None:
            raise TransportError("[Errno 111] Connection refused")

    monkeypatch.setattr(GoogleClients, "_credentials", Account())
    with pytest.raises(LaunchError, match=r"Cloud Build: network: .*Connection refused; next: "):
        build(cloud, tmp_path, bucket="my-bucket")


def test_a_bucket_that_is_named_needs_the_right_to_write_only(cloud: GoogleCloud, tmp_path: Path) -> None:
    cloud.buckets["my-bucket"] = "another"
    cloud.refuses = {f"{verb} /storage/v1/b": (403, "no storage.buckets access") for verb in ("GET", "POST")}
    assert build(cloud, tmp_path, bucket="my-bucket").fresh


def test_a_bucket_that_is_named_is_made_when_it_is_not_there(cloud: GoogleCloud, tmp_path: Path) -> None:
    assert build(cloud, tmp_path, bucket="my-bucket").fresh
    assert cloud.buckets == {"my-bucket": "my-project"}
    assert cloud.objects["my-bucket", cloud.submitted[0][1]["source"]["storageSource"]["object"]]


def test_a_bucket_of_somebody_elses_is_not_used(cloud: GoogleCloud, tmp_path: Path) -> None:
    cloud.buckets["my-project_cloudbuild"] = "attacker"
    with pytest.raises(MissingError, match=r"bucket my-project_cloudbuild belongs to another project than my-project"):
        build(cloud, tmp_path)
    assert cloud.submitted == []


def test_a_recipe_that_is_none_is_named(cloud: GoogleCloud, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM scratch\n")
    recipe = folder / "cloudbuild.yaml"
    recipe.write_text("steps: [{name: x, args: [build, .]}]\nimages: ['x/y:1']\n")
    with pytest.raises(InputError, match=r"cloudbuild\.yaml: images: the first must end in :\$\{_TAG\}"):
        build(cloud, tmp_path, build=str(folder), args={})
    recipe.write_text("stepz: []\n")
    with pytest.raises(InputError, match=r"cloudbuild\.yaml: needs steps and images"):
        build(cloud, tmp_path, build=str(folder), args={})
    image = f"{cloud.registry.host}/own:${{_TAG}}"
    recipe.write_text(f"steps: [{{name: x, argz: [build, .]}}]\nimages: ['{image}']\n")
    with pytest.raises(InputError, match=r"cloudbuild\.yaml: .*argz"):
        build(cloud, tmp_path, build=str(folder), args={})
