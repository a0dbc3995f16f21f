"""Limits of the processes of a container, as `docker run --ulimit` names them."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"must be a whole number, is {str(value).lower()}")
    return value


Limit = Annotated[int, Field(ge=-1, le=2**62), BeforeValidator(_no_boolean)]
LimitName = Literal[
    "as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio",
    "sigpending", "stack",
]  # fmt: skip
Ulimits = dict[LimitName, Limit]
