"""The folder of this user's state: $XDG_STATE_HOME/seatrial, else ~/.local/state/seatrial."""

import errno
import os
from pathlib import Path

from seatrial.model.errors import InputError
from seatrial.system.private import closed_folder


def ensure_home() -> None:
    """Have HOME name a folder that is not there for a user id without a home, as there are in
    containers.

    Libraries fail with a traceback on import otherwise; so each says which folder it needs, once it
    needs one.
    """
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/nonexistent"


def state_home() -> Path:
    """Return the folder, which need not be there."""
    folder = os.environ.get("XDG_STATE_HOME")
    return (Path(folder).absolute() if folder else Path.home() / ".local" / "state") / "seatrial"


def check_state_home() -> None:
    """Raise InputError if a run needs the folder and cannot write to it."""
    elsewhere = os.environ.get("SEATRIAL_HISTORY")
    is_root = os.geteuid() == 0
    if elsewhere and is_root:
        return
    other = ", or SEATRIAL_HISTORY to a database elsewhere" if is_root else ""
    folder = state_home()
    try:
        closed_folder(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "is not writable", str(folder))
    except OSError as error:
        raise InputError(
            f"{unusable(folder, error)}; set XDG_STATE_HOME to a folder of yours{other}"
        ) from error


def unusable(folder: Path, error: OSError) -> str:
    """Describe the problem of a folder, or of the folder above it that is at fault."""
    at_fault = error.filename if isinstance(error.filename, str) else folder
    return f"{at_fault}: {error.strerror or error}"
