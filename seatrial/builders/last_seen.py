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
    told = {base: digest for base, digest in digests.items() if digest}
    seen = _read() | told
    with suppress(OSError):  # a home that cannot be written to: nothing is remembered
        _write(seen)
    return {base: seen.get(base) for base in digests}


def _file() -> Path:
    return state_home() / "bases.json"


def _read() -> dict[str, str]:
    try:
        found: object = json.loads(_file().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(seen: Mapping[str, str]) -> None:
    """As a whole: another run may read meanwhile."""
    closed_folder(_file().parent)
    write_atomic(_file(), json.dumps(seen, indent=2))
