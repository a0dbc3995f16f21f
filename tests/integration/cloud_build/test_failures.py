"""Builds that fail, take too long, are interrupted or may not be; a network with faults loses
none.
"""

import re
import threading
from pathlib import Path

import pytest
import requests
from google.api_core.exceptions import TooManyRequests
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import RefreshError, TransportError

from seatrial.builders.cloud_build import GoogleClients
from seatrial.model.errors import LaunchError
from tests.integration.cloud_build.building import BUILDS, build
from tests.integration.google_cloud import GoogleCloud
from tests.integration.interrupt import interrupted_when


@pytest.mark.parametrize(
    ("status", "log", "failure", "reason"),
    [
        (
            "FAILURE",
            "failed to resolve source metadata for nvcr.io/x: unauthorized\n",
            {"type": "USER_BUILD_STEP", "detail": "Build step failure"},
            (
                "FAILURE: base image access: failed to resolve source metadata for "
                r"nvcr\.io/x.*; next: log in"
            ),
        ),
        (
            "FAILURE",
            "pushed\n",
            {"type": "PUSH_NOT_AUTHORIZED", "detail": "no"},
            r"permission: PUSH_NOT_AUTHORIZED",
        ),
        (
            "FAILURE",
            "exec /bin/sh: exec format error\n",
            {},
            r"wrong platform: exec /bin/sh: exec format error",
        ),
        (
            "TIMEOUT",
            "Step 1\n",
            {},
            r"ended as TIMEOUT: time limit: .*; next: raise image\.timeout_s",
        ),
        ("CANCELLED", "Step 1\n", {}, r"ended as CANCELLED"),
        ("INTERNAL_ERROR", "", {}, r"ended as INTERNAL_ERROR"),
    ],
)
def test_a_failed_build_says_why(
    cloud: GoogleCloud, tmp_path: Path, status: str, log: str, failure: dict[str, str], reason: str
) -> None:
    cloud.script = [("WORKING", ""), (status, log)]
    cloud.failure = failure
    with pytest.raises(LaunchError, match=reason) as error:
        build(cloud, tmp_path)
    assert str(error.value).endswith("(https://console/build-1)")
    assert "\n" not in str(error.value)
    assert cloud.cancelled == []


def test_a_build_that_takes_too_long_is_cancelled(cloud: GoogleCloud, tmp_path: Path) -> None:
    cloud.script = [("WORKING", "Step 1\n")]
    with pytest.raises(LaunchError, match=r"within 1 s.*\(WORKING, ") as error:
        build(cloud, tmp_path, timeout_s=1)
    assert error.value.reason.code == "image-build-time-limit"
    assert cloud.cancelled == [f"{BUILDS}/build-1:cancel"]
    assert (tmp_path / "image-build.log").read_text() == "Step 1\n"


def test_an_interrupted_build_is_cancelled(cloud: GoogleCloud, tmp_path: Path) -> None:
    cloud.script = [("WORKING", "Step 1\n")]

    with interrupted_when(lambda: cloud.polls >= 3), pytest.raises(KeyboardInterrupt):
        build(cloud, tmp_path)
    assert cloud.cancelled == [f"{BUILDS}/build-1:cancel"]


def test_a_missing_permission_to_build_is_reported(cloud: GoogleCloud, tmp_path: Path) -> None:
    cloud.refuses = {f"POST {BUILDS}": (403, "The caller does not have permission")}
    with pytest.raises(
        LaunchError,
        match=r"Cloud Build: permission: .*The caller does not have permission; next: give",
    ):
        build(cloud, tmp_path)
    cloud.refuses = {
        "GET /storage/v1/b/": (403, "me does not have storage.buckets.get access to the bucket")
    }
    with pytest.raises(LaunchError, match=r"permission: .*storage\.buckets\.get access"):
        build(cloud, tmp_path)
    assert cloud.cancelled == []


def test_a_log_that_may_not_be_read_is_linked(cloud: GoogleCloud, tmp_path: Path) -> None:
    cloud.refuses = {"GET /download/storage/v1/b/logs": (403, "VPC-SC")}
    assert build(cloud, tmp_path).digest
    assert (tmp_path / "image-build.log").read_text() == (
        "The log cannot be read from here; it is at https://console/build-1\n"
    )


def test_a_short_outage_of_the_service_does_not_fail_the_build(
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
def test_a_network_error_does_not_fail_the_build(
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


def test_an_unreachable_network_is_not_reported_as_a_missing_login(
    cloud: GoogleCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Account(AnonymousCredentials):  # type: ignore[misc]
        def before_request(self, *_: object) -> None:
            raise TransportError("[Errno 111] Connection refused")

    monkeypatch.setattr(GoogleClients, "_credentials", Account())
    with pytest.raises(LaunchError, match=r"Cloud Build: network: .*Connection refused; next: "):
        build(cloud, tmp_path, bucket="my-bucket")
