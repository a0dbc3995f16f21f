"""Which bucket the source goes to."""

from pathlib import Path

import pytest

from seatrial.model.errors import MissingError
from seatrial.model.reason import Reason
from tests.integration.cloud_build.building import build
from tests.integration.google_cloud import GoogleCloud


def test_named_bucket_needs_only_write_permission(cloud: GoogleCloud, tmp_path: Path) -> None:
    cloud.buckets["my-bucket"] = "another"
    cloud.refuses = {
        f"{verb} /storage/v1/b": (403, "no storage.buckets access") for verb in ("GET", "POST")
    }
    assert build(cloud, tmp_path, bucket="my-bucket").fresh


def test_a_bucket_that_is_named_is_made_when_it_is_not_there(
    cloud: GoogleCloud, tmp_path: Path
) -> None:
    assert build(cloud, tmp_path, bucket="my-bucket").fresh
    assert cloud.buckets == {"my-bucket": "my-project"}
    assert cloud.objects["my-bucket", cloud.submitted[0][1]["source"]["storageSource"]["object"]]


def test_bucket_of_another_project_is_not_used(cloud: GoogleCloud, tmp_path: Path) -> None:
    cloud.buckets["my-project_cloudbuild"] = "attacker"
    with pytest.raises(MissingError) as error:
        build(cloud, tmp_path)
    assert error.value.reason.code == "bucket-foreign"
    assert error.value.reason == Reason.of(
        "bucket-foreign", bucket="my-project_cloudbuild", project="my-project"
    )
    assert cloud.submitted == []
