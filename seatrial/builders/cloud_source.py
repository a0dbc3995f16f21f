"""The build context as Cloud Build takes it: a tar archive in a bucket, where `gcloud builds submit` puts it."""

import os
import re
import tarfile
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from seatrial.builders.plan import BuildPlan
from seatrial.config.image import CloudBuild
from seatrial.model.errors import MissingError
from seatrial.model.reason import Reason

if TYPE_CHECKING:
    from google.cloud.storage import Bucket, Client


def default_bucket(project: str) -> str:
    """As gcloud names it; Google's own name is not allowed in a bucket's."""
    return re.sub(r"[:.]", "_", project).replace("google", "elgoog") + "_cloudbuild"


def upload(client: "Client", plan: BuildPlan, config: CloudBuild) -> dict[str, str]:
    """Put the context's files into the bucket, made when it is not there; returns the build's storageSource.

    A bucket that the cluster file names is not asked about first: who may write objects there may not always look.
    """
    from google.api_core.exceptions import NotFound

    with archive(plan) as file:
        if not config.bucket:
            return _put(_default(client, config.own_project), file)
        try:
            return _put(client.bucket(config.bucket), file)
        except NotFound:
            return _put(client.create_bucket(config.bucket, timeout=60), file)


def _put(bucket: "Bucket", file: IO[bytes]) -> dict[str, str]:
    blob = bucket.blob(f"source/{time.time():.6f}-{uuid.uuid4().hex}.tgz")
    size = file.seek(0, os.SEEK_END)  # told, a small archive goes up in one request
    blob.upload_from_file(file, rewind=True, size=size, content_type="application/gzip", timeout=120)
    return {"bucket": bucket.name, "object": blob.name, "generation": str(blob.generation)}


@contextmanager
def archive(plan: BuildPlan) -> Iterator[IO[bytes]]:
    """The files of the context with what their hash says: nothing of who owns them, and of the mode only one bit."""
    context = plan.config.context
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w:gz") as tar:
            for name in plan.files:
                tar.add(context / name, name, recursive=False, filter=_anonymous)
        yield file


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    if member.isfile():
        member.mode = 0o755 if member.mode & 0o111 else 0o644
    return member


def _default(client: "Client", project: str) -> "Bucket":
    """The project's own default bucket, which must be the project's: anybody may take a name that can be guessed."""
    name = default_bucket(project)
    bucket = client.lookup_bucket(name, timeout=30)
    if bucket is None:
        return client.create_bucket(name, timeout=60)
    if name not in {own.name for own in client.list_buckets(prefix=name, timeout=30)}:
        raise MissingError(Reason.of("bucket-foreign", bucket=name, project=project))
    return bucket
