"""What a cluster file says about a login by ssh."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from seatrial.config.yamlfile import Strict

_JUMP = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9][A-Za-z0-9._-]*(:\d{1,5})?")


def _legal_jump(value: str) -> str:
    if not all(_JUMP.fullmatch(part) for part in value.split(",")):
        raise ValueError(f"must be [USER@]HOST[:PORT], several with commas, first hop first, is {value!r}")
    return value


def legal_path(value: str) -> str:
    if not re.fullmatch(r"[~/A-Za-z0-9_.][A-Za-z0-9_./+@ -]*", value):
        raise ValueError(f"must be a path of letters, digits, spaces and _ . / + @ -, is {value!r}")
    return value


Jump = Annotated[str, AfterValidator(_legal_jump)]
Path = Annotated[str, AfterValidator(legal_path)]
Port = Annotated[int, Field(ge=1, le=65535)]
Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$", max_length=255)]
User = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*\$?$", max_length=64)]


class LoginSettings(Strict):
    """How to log in to a host; what is unset is as ssh's configuration says."""

    user: User | None = Field(None, description="who logs in")
    port: Port | None = Field(None, description="where its own sshd listens")
    jump: Jump | None = Field(None, description="the hosts to go through")
    key_file: Path | None = Field(None, description="private key of that user on this machine")
