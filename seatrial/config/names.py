"""Names: one that is legal on every platform, and one that is only shown and compared."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

# The strictest of the platforms' rules (a Kubernetes label, less room for suffixes), so one name serves everywhere.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def _legal_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError("must be 1 to 40 of a-z, 0-9 and '-', with a letter or digit at both ends")
    return value


Name = Annotated[str, AfterValidator(_legal_name)]


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must be printable text on one line")
    return value


ShownName = Annotated[str, Field(min_length=1, max_length=63), AfterValidator(_printable)]
