"""Where this user's state lies between runs: $XDG_STATE_HOME/seatrial, ~/.local/state/seatrial when unset."""

import os
from pathlib import Path

from seatrial.errors import InputError
from seatrial.private import private_folder


def state_home() -> Path:
    """The folder, which need not be there. Raises InputError where this user has no home."""
    given = os.environ.get("XDG_STATE_HOME")
    try:
        return Path(given).absolute() / "seatrial" if given else Path.home() / ".local" / "state" / "seatrial"
    except RuntimeError as error:
        raise InputError("HOME: is not set, and this user has no home; set XDG_STATE_HOME to a folder") from error


def state_folder(*names: str) -> Path:
    """A folder of it, mode 0700, made where it is not there. Raises InputError in one line."""
    folder = state_home().joinpath(*names)
    try:
        return private_folder(folder)
    except OSError as error:
        raise InputError(f"{unusable(folder, error)}; set XDG_STATE_HOME to a folder of yours") from error


def unusable(folder: Path, error: OSError) -> str:
    """What is wrong with it, or with the folder above it that is at fault."""
    at_fault = error.filename if isinstance(error.filename, str) else folder
    return f"{at_fault}: {error.strerror or error}"
