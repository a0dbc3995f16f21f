"""The digest that each base had when this machine last asked, for when its registry does not answer."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def with_last_seen(digests: Mapping[str, str | None]) -> dict[str, str | None]:
    """`digests`, with what was last seen of those that are None. Remembers the others."""
    told = {base: digest for base, digest in digests.items() if digest}
    seen = _read() | told
    with suppress(OSError):  # a home that cannot be written to: nothing is remembered
        _write(seen)
    return {base: seen.get(base) for base in digests}


def _file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "seatrial" / "bases.json"


def _read() -> dict[str, str]:
    try:
        found: object = json.loads(_file().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(seen: Mapping[str, str]) -> None:
    """As a whole: another run may read meanwhile."""
    _file().parent.mkdir(parents=True, exist_ok=True)
    written = _file().with_suffix(f".{os.getpid()}")
    written.write_text(json.dumps(seen, indent=2))
    written.replace(_file())
