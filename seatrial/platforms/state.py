"""The state of a run on this machine: a folder with its owner, keys and nodes, and whether it is
kept.

It holds keys and names processes, so it is trusted only if the folder, its parent and each file
belong to this user.
"""

import hashlib
import json
import os
import re
import shutil
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seatrial.config import PLATFORMS
from seatrial.config.cluster import Cluster
from seatrial.model.errors import InputError, LaunchError
from seatrial.model.testbed import Testbed
from seatrial.platforms import Leftover
from seatrial.remote.ssh import KeyPair, known_hosts, new_key_pair
from seatrial.system.private import (
    check_private_folder,
    closed_folder,
    read_private,
    write_atomic,
    write_private,
)
from seatrial.system.process import Process, this_process
from seatrial.system.state_home import state_home, unusable

if TYPE_CHECKING:
    from seatrial.config.run import Run

_NEVER = 1e11  # later than any time in a file, in seconds of the epoch
_FILE_BYTES = 16 * 1024**2  # most bytes of a file: known_hosts of thousands of nodes
KEY_FILE = "id_ed25519"  # private key that logs in to the nodes


class NodeAddress(BaseModel):
    """Address and port by which its peers reach a node's sshd."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(max_length=255)
    address: str = Field(min_length=1, max_length=255)
    port: int = Field(ge=1, le=65535)


class PlatformState(BaseModel):
    """Addresses of the nodes for other processes, in hostfile order; platforms may add fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host_key: str = Field(max_length=1000)
    nodes: tuple[NodeAddress, ...] = Field(min_length=1, max_length=10_000)

    def save(self, folder: Path, testbed: Testbed) -> None:
        """Write the state, and a known_hosts file for `seatrial ssh`, into the run's folder."""
        write_private(folder / "nodes.json", self.model_dump_json())
        write_private(folder / "known_hosts", known_hosts(testbed.nodes))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the state from the run's folder. Raises InputError if the file is missing
        or broken.
        """
        try:
            return cls.model_validate_json(read_file(folder, "nodes.json"))
        except ValidationError as error:
            raise InputError(f"run {folder.name}: nodes.json: is not what was written") from error


State = TypeVar("State", bound=PlatformState)


class RunsWithState(ABC, Generic[State]):
    """Common methods of platforms whose runs have a state folder on this machine; `leaves`
    describes what a killed run leaves behind.
    """

    kind: ClassVar[str]
    leaves: ClassVar[str]
    state_type: type[State]

    @abstractmethod
    def _is_up(self, run_id: str) -> bool:
        """Return whether the nodes of a run are up; its folder exists."""

    @abstractmethod
    def _testbed(self, run_id: str, state: State) -> Testbed: ...

    def _folder(self, run_id: str) -> Path:
        return run_folder(run_id, self.kind)

    def attach(self, run_id: str) -> Testbed:
        if not (self._folder(run_id).exists() and self._is_up(run_id)):
            raise InputError(f"run {run_id}: is over, or not up yet")
        return self._testbed(run_id, self.state_type.load(self._folder(run_id)))

    def keep(self, run_id: str, seconds: float) -> bool:
        if not (self._folder(run_id).exists() and self._is_up(run_id)):
            return False
        keep(self._folder(run_id), seconds)
        return True

    def leftovers(self) -> list[Leftover]:
        return leftovers(self.kind, self.leaves)


def begin(run: "Run", kind: str) -> tuple[Path, KeyPair, KeyPair]:
    """Create the folder of a new run, and return it with the key for logins and the host key of its
    nodes.
    """
    run_key = new_key_pair()
    host_key = new_key_pair()
    folder = make_folder(run.run_id, kind)
    remember(folder, run.cluster)
    write_private(folder / KEY_FILE, run_key.private)
    return folder, run_key, host_key


def root_folder(kind: str) -> Path:
    """Return the folder of this user's runs on a platform; it is local to this machine, unlike some
    homes.

    /run/seatrial-KIND for root, else a folder in the user's state folder.
    """
    if os.geteuid() == 0:
        return Path("/run") / f"seatrial-{kind}"
    return state_home() / f"up-{kind}" / socket.gethostname()


def run_folder(run_id: str, kind: str) -> Path:
    """Return the folder of the run's state, which may not exist.

    Raises InputError for an illegal run id, and where the folder is another user's or a link.
    """
    if not is_run_id(run_id):
        raise InputError(
            f"run {run_id!r}: is no run id; legal: letters, digits, '.', '_' and '-', as in runs/"
        )
    folder = root_folder(kind) / run_id
    for place in (folder.parent, folder):
        _is_trusted(place)
    return folder


def is_run_id(text: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", text))


def _is_trusted(place: Path) -> bool:
    """Return whether the folder exists. Raises InputError where it is another user's or a link."""
    try:
        check_private_folder(place)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise InputError(_refusal(place, error)) from error
    return True


def make_folder(run_id: str, kind: str) -> Path:
    """Create a run's folder, readable only by this user.

    Raises LaunchError if the parent is another user's.
    """
    folder = root_folder(kind) / run_id
    try:
        closed_folder(folder.parent)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise LaunchError.of("run-keys-refused", problem=_refusal(folder, error)) from error
    write_owner(folder, "owner", this_process())
    return folder


def _refusal(folder: Path, error: OSError) -> str:
    other = "" if os.geteuid() == 0 else ", or set XDG_STATE_HOME to another folder of yours"
    return f"{unusable(folder, error)}; runs keep their keys there: remove it{other}"


def ssh_config_file(text: str) -> Path:
    """Return a file with that configuration of ssh: ssh passes a file on to its jump hosts.

    It is named after its content, for any process of this user. Raises LaunchError if the folder is
    another user's.
    """
    folder = root_folder("ssh")
    file = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        closed_folder(folder)
        return file if file.exists() else write_atomic(file, text)
    except OSError as error:
        raise LaunchError.of("run-keys-refused", problem=_refusal(folder, error)) from error


def write_owner(folder: Path, name: str, owner: Process) -> None:
    write_private(folder / f"{name}.json", json.dumps({"pid": owner.pid, "started": owner.started}))


def read_owner(folder: Path, name: str) -> Process | None:
    """Return the process in the file; None if it is missing or broken."""
    content = read_record(folder, f"{name}.json")
    pid = content.get("pid")
    started = content.get("started")
    return (
        Process(pid, started)
        if type(pid) is int and type(started) is int and 0 < pid < 2**31
        else None
    )


def read_record(folder: Path, name: str) -> dict[str, Any]:
    """Return the JSON object in a file of the run's folder; empty if it is missing or broken."""
    content = read_json(folder, name)
    return content if isinstance(content, dict) else {}


def remember(folder: Path, cluster: Cluster) -> None:
    """Save the cluster of the run for other processes."""
    write_private(folder / "cluster.json", cluster.model_dump_json())


def recall(folder: Path) -> Cluster:
    """Return the cluster of the run.

    Raises InputError if the run has only just begun, or is being removed.
    """
    try:
        return Cluster.model_validate_json(read_private(folder / "cluster.json", _FILE_BYTES))
    except (OSError, ValueError) as error:
        raise InputError(f"run {folder.name}: is not up, or only just coming up") from error


def find(run_id: str) -> Path | None:
    """Return the folder of a run of this user on this machine, or None.

    Raises InputError, as `folders`.
    """
    return next((folder for folder in _folders() if folder.name == run_id), None)


def run_ids() -> list[str]:
    """Return the ids of all runs of this user on this machine."""
    return sorted(folder.name for folder in _folders())


def _folders() -> list[Path]:
    return [folder for kind in PLATFORMS for folder in folders(kind)]


def folders(kind: str) -> list[Path]:
    """Return the folders of this user's runs on a platform.

    Raises InputError where one of them, or their parent, is another user's or a link.
    """
    root = root_folder(kind)
    return (
        sorted(folder for folder in root.iterdir() if _is_trusted(folder))
        if _is_trusted(root)
        else []
    )


def read_file(folder: Path, name: str) -> str:
    """Return the text of a file in the run's folder.

    Raises InputError if it is missing or broken.
    """
    try:
        return read_private(folder / name, _FILE_BYTES).decode()
    except (OSError, ValueError) as error:
        raise InputError(
            f"run {folder.name}: {name}: {getattr(error, 'strerror', error)}"
        ) from error


def read_json(folder: Path, name: str) -> Any:
    """Return the document in a file of the run's folder; None if it is missing or broken."""
    try:
        return json.loads(read_file(folder, name))
    except (InputError, ValueError, RecursionError):
        return None


def keep(folder: Path, seconds: float) -> None:
    """Keep the run for `seconds` from now, even after its process ends."""
    write_private(folder / "kept.json", json.dumps({"until": time.time() + seconds}))


def kept_until(folder: Path) -> float | None:
    """Return the time until which the run is kept, in seconds of the epoch, or None."""
    return moment(read_record(folder, "kept.json").get("until"))


def moment(value: object) -> float | None:
    """Return the value if it is a valid time in seconds of the epoch; else None."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _NEVER:
        return float(value)
    return None


def is_at_work(folder: Path) -> bool:
    """Return whether the run's process lives, and does not merely keep the run."""
    owner = read_owner(folder, "owner")
    return bool(owner and owner.alive) and kept_until(folder) is None


def is_abandoned(folder: Path) -> bool:
    """Return whether the time for which the run is kept has passed, or, if it is not kept, its
    process is gone.

    A folder without an owner counts as being created, unless it is old.
    """
    if until := kept_until(folder):
        return time.time() > until
    owner = read_owner(folder, "owner")
    return not owner.alive if owner else age_s(folder) > 60


def is_object_abandoned(
    kind: str, run_id: str, owner: str | None, age_s: float, expires: float
) -> bool:
    """Return whether the run that made an object is gone: by its folder if it is ours, else by
    `expires` (epoch).

    A run creates its folder before its objects, and removes the folder last.
    """
    if owner != this_owner(kind):
        return time.time() > expires
    folder = run_folder(run_id, kind)
    return is_abandoned(folder) if folder.exists() else age_s > 60


def leftovers(
    kind: str, what: str, is_ours: Callable[[Path], bool] = lambda _: True
) -> list[Leftover]:
    """Return the leftovers of this user's abandoned runs on a platform, if `is_ours` accepts their
    folder.
    """
    abandoned = (folder for folder in folders(kind) if is_abandoned(folder) and is_ours(folder))
    return [Leftover(folder.name, age_s(folder), what) for folder in abandoned]


def age_s(folder: Path) -> float:
    """Return seconds since the folder last changed."""
    try:
        return max(0.0, time.time() - folder.stat().st_mtime)
    except OSError:
        return 0.0


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def this_owner(kind: str) -> str:
    """Return the owner label for shared objects: the host name, and a hash of machine, user and
    state folder.
    """
    machine = ""
    process_tree = ""
    with suppress(OSError):
        machine = Path("/etc/machine-id").read_text().strip()
    # The PID namespace, since containers of one machine may share machine id and host name
    with suppress(OSError):
        process_tree = os.readlink("/proc/self/ns/pid")
    identity = (machine, process_tree, os.geteuid(), root_folder(kind))
    return f"{socket.gethostname()}/{hashlib.sha256(repr(identity).encode()).hexdigest()[:12]}"
