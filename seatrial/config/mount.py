"""What a container sees of the machine that it runs on."""

import posixpath
import re
from typing import Annotated

from pydantic import AfterValidator, Field

from seatrial.config.yamlfile import Strict


def legal_path(value: str) -> str:
    """A full path that no option of a container runtime reads otherwise. Raises ValueError."""
    if not re.fullmatch(r"/[A-Za-z0-9_./+@-]*", value) or posixpath.normpath(value) != value or value.startswith("//"):
        raise ValueError(f"must be a full path without '..', such as /data, is {value!r}")
    return value


FullPath = Annotated[str, Field(max_length=1000), AfterValidator(legal_path)]


class Mount(Strict):
    """A file or folder of the machine that its containers see."""

    source: FullPath = Field(description="full path on the machine that runs the container; it must exist")
    target: FullPath = Field(description="full path in the containers")
    read_only: bool = Field(True, description="whether the containers may only read it")
