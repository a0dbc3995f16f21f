"""The folder that a run has on this machine: its owner, whether it is kept, and how to tell that nobody tends it.

It holds keys and names processes: it is trusted only where it, the folder above and each file are this user's own.
"""

import json
import os
import re
import shutil
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.config import PLATFORMS
from seatrial.model.errors import InputError, LaunchError
from seatrial.model.reason import Reason
from seatrial.system.private import check_private_folder, closed_folder, private_opener, read_private
from seatrial.system.process import Process, this_process
from seatrial.system.state_home import state_home, unusable

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_RECORD_BYTES = 4096
_NEVER = 1e11  # in seconds of the epoch
_FILE_BYTES = 16 * 1024**2  # known_hosts of thousands of nodes


def root_folder(kind: str) -> Path:
    """Where runs of this user on such a platform keep their state, on this machine alone, as homes are shared.

    /run/seatrial-KIND for root, else a folder among the user's own state.
    """
    if os.geteuid() == 0:
        return Path("/run") / f"seatrial-{kind}"
    return state_home() / f"up-{kind}" / socket.gethostname()


def run_folder(run_id: str, kind: str) -> Path:
    """Where the state of that run is, if there is any.

    Raises InputError for what cannot be a run's id, and where the place is another user's or a link.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise InputError(f"run {run_id!r}: is no run id; legal: letters, digits, '.', '_' and '-', as in runs/")
    folder = root_folder(kind) / run_id
    for place in (folder.parent, folder):
        _is_trusted(place)
    return folder


def _is_trusted(place: Path) -> bool:
    """Whether it is there. Raises InputError where it is another user's or a link: nothing in it is believed then."""
    try:
        check_private_folder(place)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise InputError(_refusal(place, error)) from error
    return True


def make_folder(run_id: str, kind: str) -> Path:
    """A run's own folder, readable by its user alone. Raises LaunchError when somebody else owns the place."""
    folder = root_folder(kind) / run_id
    try:
        closed_folder(folder.parent)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise LaunchError(Reason.of("run-keys-refused", problem=_refusal(folder, error))) from error
    write_owner(folder, "owner", this_process())
    return folder


def _refusal(folder: Path, error: OSError) -> str:
    other = "" if os.geteuid() == 0 else ", or set XDG_STATE_HOME to another folder of yours"
    return f"{unusable(folder, error)}; runs keep their keys there: remove it{other}"


def write_owner(folder: Path, name: str, owner: Process) -> None:
    write_private(folder / f"{name}.json", json.dumps({"pid": owner.pid, "started": owner.started}))


def read_owner(folder: Path, name: str) -> Process | None:
    """None when it was never written, or is not what was written."""
    content = _record(folder / f"{name}.json")
    pid, started = content.get("pid"), content.get("started")
    return Process(pid, started) if type(pid) is int and type(started) is int and 0 < pid < 2**31 else None


def _record(path: Path) -> dict[str, Any]:
    """Empty where there is none that this user wrote."""
    try:
        content = json.loads(read_private(path, _RECORD_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def remember(folder: Path, cluster: "Cluster") -> None:
    """Write down which cluster the run is on, for other processes."""
    write_private(folder / "cluster.json", cluster.model_dump_json())


def recall(folder: Path) -> "Cluster":
    """Raises InputError where there is none: the run has only begun, or is being taken down."""
    from seatrial.config.cluster import Cluster

    try:
        return Cluster.model_validate_json(read_private(folder / "cluster.json", _FILE_BYTES))
    except (OSError, ValueError) as error:
        raise InputError(f"run {folder.name}: is not up, or only just coming up") from error


def write_private(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", opener=private_opener) as file:
        file.write(text)


def find(run_id: str) -> Path | None:
    """The folder of a run of this user on this machine; None when there is none. Raises InputError, as `folders`."""
    return next((folder for folder in _folders() if folder.name == run_id), None)


def known() -> list[str]:
    """The ids of all runs of this user that have a folder on this machine."""
    return sorted(folder.name for folder in _folders())


def _folders() -> list[Path]:
    return [folder for kind in PLATFORMS for folder in folders(kind)]


def folders(kind: str) -> list[Path]:
    """Those of this user's runs on a platform of that kind.

    Raises InputError where the place, or one of them, is another user's or a link.
    """
    root = root_folder(kind)
    return sorted(folder for folder in root.iterdir() if _is_trusted(folder)) if _is_trusted(root) else []


def read_file(folder: Path, name: str) -> str:
    """What this user's run has written there. Raises InputError where it is not there, or not as it was written."""
    try:
        return read_private(folder / name, _FILE_BYTES).decode()
    except (OSError, ValueError) as error:
        raise InputError(f"run {folder.name}: {name}: {getattr(error, 'strerror', error)}") from error


def keep(folder: Path, seconds: float) -> None:
    """From now on and for so long the run is not abandoned, whether its process lives or not."""
    write_private(folder / "kept.json", json.dumps({"until": time.time() + seconds}))


def kept_until(folder: Path) -> float | None:
    """In seconds of the epoch; None when the run is not kept."""
    until = _record(folder / "kept.json").get("until")
    if isinstance(until, int | float) and not isinstance(until, bool) and 0 <= until < _NEVER:
        return float(until)
    return None


def is_at_work(folder: Path) -> bool:
    """Whether the run's process lives, and has not left its nodes for people to look at."""
    owner = read_owner(folder, "owner")
    return bool(owner and owner.alive) and kept_until(folder) is None


def is_abandoned(folder: Path) -> bool:
    """Whether nobody tends the run: its process is gone, or the time that it was kept for is over.

    A folder without owner is being made right now, unless it is old.
    """
    if until := kept_until(folder):
        return time.time() > until
    owner = read_owner(folder, "owner")
    return not owner.alive if owner else age_s(folder) > 60


def age_s(folder: Path) -> float:
    """Seconds since the folder last changed."""
    try:
        return max(0.0, time.time() - folder.stat().st_mtime)
    except OSError:
        return 0.0


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
