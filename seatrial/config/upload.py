"""The address of a folder for the files of runs, and what writing there takes."""

import re
import sys
from importlib.util import find_spec
from typing import Annotated

from pydantic import AfterValidator

from seatrial.text.lines import one_line

# Known without loading fsspec: rendering starts in no time
_USUAL = ("gs", "s3", "abfs", "az", "file", "memory")


def _legal_address(url: str) -> str:
    match = re.fullmatch(r"([a-z][a-z0-9+.-]*)://([^/\s]*)(/\S*)?", url, re.IGNORECASE)
    if not match or "::" in url:
        raise ValueError(
            f"must be the URL of a folder, such as gs://bucket/testbed-logs, is {url!r}"
        )
    protocol, host, _ = match.groups()
    if protocol not in _USUAL and protocol not in _protocols():
        raise ValueError(f"unknown protocol {protocol!r}; legal: {', '.join(_protocols())}")
    if "@" in host and protocol not in ("abfs", "abfss", "az"):  # there it is container@account
        raise ValueError(
            "must not hold a login, because it is shown; give it by environment or configuration"
        )
    if protocol == "file" and (host or not match[3]):
        raise ValueError(
            f"must be file:// and a full path, such as file:///srv/testbed-logs, is {url!r}"
        )
    if protocol != "file" and not (host or match[3]):
        raise ValueError(f"must name a bucket or folder behind {protocol}://")
    return url.rstrip("/")


Address = Annotated[str, AfterValidator(_legal_address)]


def _protocols() -> list[str]:
    from fsspec.registry import known_implementations

    return sorted(known_implementations)


def missing_package(url: str) -> str | None:
    """Return what this machine lacks to write to `url`, with the next step; None if nothing."""
    from fsspec.registry import get_filesystem_class, known_implementations

    protocol = url.partition("://")[0]
    package = known_implementations[protocol]["class"].partition(".")[0]
    if package != "fsspec":
        extra = {"gcsfs": "gcs", "s3fs": "s3", "adlfs": "azure"}.get(package)
        step = (
            f"install seatrial with its extra `{extra}`"
            if extra
            else f"{sys.executable} -m pip install {package}"
        )
        return (
            None
            if find_spec(package)
            else f"{package} is not installed, which {protocol}:// needs: {step}"
        )
    try:
        get_filesystem_class(protocol)
    except ImportError as error:  # one of fsspec's own, and its words name the package
        return f"{one_line(error)}: {sys.executable} -m pip install it"
    return None
