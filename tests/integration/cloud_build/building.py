"""An image that Cloud Build is to build, as a cluster file says it."""

from pathlib import Path
from typing import Any

from seatrial.builders import ensure_image
from seatrial.builders.stored import BuiltImage
from seatrial.config.image import CloudBuild
from tests.integration.google_cloud import GoogleCloud

GOES_WELL = [
    ("QUEUED", ""),
    ("WORKING", "Step 1\n"),
    ("WORKING", ""),
    ("WORKING", "Step 2\n"),
    ("SUCCESS", "DONE\n"),
]
BUILDS = "/v1/projects/my-project/locations/us-central1/builds"


def config(cloud: GoogleCloud, **settings: Any) -> CloudBuild:
    own = {
        "builder": "cloud-build",
        "build": "testbed-a4",
        "project": "my-project",
        "region": "us-central1",
    }
    base = f"{cloud.registry.host}/mirror/a4:nemo25.04-gib1.0.6-A4"
    repository = f"{cloud.registry.host}/repo"
    return CloudBuild.model_validate(
        {**own, "repository": repository, "args": {"BASE": base}, **settings}
    )


def build(
    cloud: GoogleCloud, folder: Path, *, rebuild: bool = False, **settings: Any
) -> BuiltImage:
    return ensure_image(
        config(cloud, **settings), "amd64", folder / "image-build.log", rebuild=rebuild
    )
