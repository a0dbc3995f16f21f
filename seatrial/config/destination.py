"""Where a run's files are uploaded to: an address as fsspec knows it, and what this machine lacks to write there."""

import re
import sys
from importlib.util import find_spec
from typing import Annotated

from pydantic import AfterValidator

_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://([^/\s]*)(/\S*)?", re.IGNORECASE)
_USUAL = ("gs", "s3", "abfs", "az", "file", "memory")  # known without loading fsspec: rendering starts in no time


def protocol_of(url: str) -> str:
    return url.partition("://")[0]


def _legal_address(url: str) -> str:
    match = _ADDRESS.fullmatch(url)
    if not match or "::" in url:
        raise ValueError(f"must be the URL of a folder, such as gs://bucket/testbed-logs, is {url!r}")
    protocol, host, _ = match.groups()
    if protocol not in _USUAL and protocol not in _known():
        raise ValueError(f"unknown protocol {protocol!r}; legal: {', '.join(_known())}")
    if "@" in host and protocol not in ("abfs", "abfss", "az"):  # there it is container@account
        raise ValueError("must not hold a login, because it is shown; give it by environment or configuration")
    if protocol == "file" and (host or not match[3]):
        raise ValueError(f"must be file:// and a full path, such as file:///srv/testbed-logs, is {url!r}")
    if protocol != "file" and not (host or match[3]):
        raise ValueError(f"must name a bucket or folder behind {protocol}://")
    return url.rstrip("/")


Address = Annotated[str, AfterValidator(_legal_address)]


def _known() -> list[str]:
    from fsspec.registry import known_implementations

    return sorted(known_implementations)


def missing(url: str) -> str | None:
    """What this machine lacks to write to `url`, with the next step; None when nothing is known to be lacking."""
    from fsspec.registry import get_filesystem_class, known_implementations

    protocol = protocol_of(url)
    package = known_implementations[protocol]["class"].partition(".")[0]
    if package != "fsspec":
        step = f"{sys.executable} -m pip install {package}"
        return None if find_spec(package) else f"{package} is not installed, which {protocol}:// needs: {step}"
    try:
        get_filesystem_class(protocol)
    except ImportError as error:  # one of fsspec's own, and its words name the package
        return f"{' '.join(str(error).split())}: {sys.executable} -m pip install it"
    return None
