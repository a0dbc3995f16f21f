"""The log of a Cloud Build, read from the object that the build writes to its log bucket, as gcloud does.

Where that may not be read (VPC-SC, logging CLOUD_LOGGING_ONLY) the kept log holds the link to it instead.
"""

import codecs
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.system.rawlog import RawLog
from seatrial.text.redact import Secrets

if TYPE_CHECKING:
    from google.cloud.devtools.cloudbuild_v1 import Build
    from google.cloud.storage import Client

log = logging.getLogger("seatrial.image")


class LogCopy:
    """The build's log, copied to a file as far as it has been written."""

    def __init__(self, client: "Client", log_file: Path) -> None:
        self._client = client
        self._log = RawLog(log_file, Secrets.of(os.environ), append=True)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._read = 0
        self._readable = True

    def copy(self, build: "Build") -> None:
        from google.api_core.exceptions import Forbidden, GoogleAPIError, Unauthorized
        from google.auth.exceptions import GoogleAuthError
        from requests import RequestException

        bucket, _, folder = build.logs_bucket.removeprefix("gs://").partition("/")
        if not self._readable or not bucket:
            return
        blob = self._client.bucket(bucket).blob(f"{folder}/log-{build.id}.txt".lstrip("/"))
        try:
            self._add(blob.download_as_bytes(start=self._read, raw_download=True, checksum=None, timeout=30))
        except (Forbidden, Unauthorized):
            self._readable = False
            self._add(f"The log cannot be read from here; it is at {build.log_url}\n".encode())
        except (GoogleAPIError, GoogleAuthError, RequestException):
            return  # nothing there, nothing new, or out of reach for a moment; the build tells which

    def _add(self, text: bytes) -> None:
        self._read += len(text)
        self._tell(self._log.write(self._decoder.decode(text)))

    def close(self) -> None:
        """Nothing follows: what was held back is written."""
        self._tell(self._log.close())

    @staticmethod
    def _tell(text: str) -> None:
        for line in text.splitlines():
            log.debug("%s", line)
