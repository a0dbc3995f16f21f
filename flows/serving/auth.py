"""The login of our Prefect servers: `user:password`, which Prefect calls an auth string.

It is handed on by the environment alone, which other users of the machine cannot read; a command line they can.
"""

import os
import re
import secrets
from pathlib import Path

from seatrial.model.errors import InputError
from seatrial.system.private import private_opener, read_private

SERVER_AUTH = "PREFECT_SERVER_API_AUTH_STRING"  # what a server asks for
CLIENT_AUTH = "PREFECT_API_AUTH_STRING"  # what a client gives
ORIGINS = "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"
_FILE = "seatrial-serve.auth"
_LONGEST = 512
_USER_AND_PASSWORD = re.compile(r"[^\s:]+:\S+")


def random_auth_string() -> str:
    return f"seatrial:{secrets.token_urlsafe(24)}"


def prefect_home() -> Path:
    """Return Prefect's folder, made if need be, with a database that other users cannot read: it holds secrets.

    A folder that is there keeps its mode: it may be the system's. Raises InputError.
    """
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        for database in home.glob("prefect.db*"):
            if not database.is_symlink() and database.stat().st_uid == os.geteuid():
                database.chmod(0o600)
    except OSError as error:
        raise InputError(f"PREFECT_HOME {home}: {error.strerror}; name a folder that can be written to") from error
    return home


def auth_file(home: Path) -> Path:
    return home / _FILE


def kept_auth_string(home: Path) -> tuple[str, bool]:
    """Return the auth string that is kept in `home`, and whether it is new. Raises InputError."""
    path = auth_file(home)
    try:
        with open(path, "x", opener=private_opener) as file:
            made = random_auth_string()
            file.write(f"{made}\n")
        return made, True
    except FileExistsError:
        return _read(path), False


def _read(path: Path) -> str:
    try:
        text = read_private(path, _LONGEST).decode(errors="replace").strip()
        is_open = bool(path.stat().st_mode & 0o077)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; remove it for a new login") from error
    if is_open:
        raise InputError(f"{path}: other users may have read it, its mode must be 0600; remove it for a new login")
    if not _USER_AND_PASSWORD.fullmatch(text):
        raise InputError(f"{path}: must be one line user:password; remove it for a new login")
    return text


def configured_auth_string() -> str | None:
    """Return the login set in the environment or Prefect's profile. Raises InputError if that is no login."""
    from prefect.settings import get_current_settings

    setting = get_current_settings().server.api.auth_string
    if setting is None:
        return None
    text = setting.get_secret_value()
    if not _USER_AND_PASSWORD.fullmatch(text):
        raise InputError(f"{SERVER_AUTH}: must be user:password without spaces; unset it for a random login")
    return text
