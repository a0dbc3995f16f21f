"""A server on loopback that speaks the REST surface of Cloud Build and Cloud Storage."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.builders import cloud_build
from tests.integration.cloud_build.building import GOES_WELL
from tests.integration.google_cloud import GoogleCloud, serving_google
from tests.integration.registry import Registry, serving


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GoogleCloud]:
    """A project on loopback whose builds go well, and a registry that they push to and take their
    base from.
    """
    with (
        serving(Registry()) as registry,
        serving_google(GoogleCloud(registry, list(GOES_WELL))) as cloud,
    ):
        monkeypatch.setenv(
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBUILD", f"http://127.0.0.1:{cloud.port}/"
        )
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{cloud.port}")
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        monkeypatch.setattr(cloud_build, "POLL_S", 0.02)
        registry.add("mirror/a4", "nemo25.04-gib1.0.6-A4")
        yield cloud
