"""The digest that each base had when this machine last asked, for when its registry does not answer."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from seatrial.system.atomic import write_atomic
from seatrial.system.private import closed_folder
from seatrial.system.state_home import state_home


def with_last_seen(digests: Mapping[str, str | None]) -> dict[str, str | None]:
    """`digests`, with what was last seen of those that are None. Remembers the others."""
    current = {base: digest for base, digest in digests.items() if digest}
    remembered = _read() | current
    with suppress(OSError):  # a home that cannot be written to: nothing is remembered
        _write(remembered)
    return {base: remembered.get(base) for base in digests}


def _file() -> Path:
    return state_home() / "bases.json"


def _read() -> dict[str, str]:
    try:
        document: object = json.loads(_file().read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _write(digests: Mapping[str, str]) -> None:
    """As a whole: another run may read meanwhile."""
    closed_folder(_file().parent)
    write_atomic(_file(), json.dumps(digests, indent=2))
