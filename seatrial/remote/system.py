"""What tells the system of a node from others: nodes that are namespaces of one machine may see the same files."""

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from seatrial.remote.command import run_command

if TYPE_CHECKING:
    import paramiko

_MARK = "seatrial-system"
_FILE = r"\d{1,20}:\d{1,20}"  # device and inode: within one boot of one kernel, no two files have both
_ANSWER = re.compile(rf"^{_MARK} (\S{{1,253}}) ([0-9a-f-]{{36}}) ({_FILE})(?: ({_FILE}))?$", re.MULTILINE)


class System(NamedTuple):
    """A node's host name, the boot of its kernel, its root folder, and the file of a probe, "" where it has none."""

    hostname: str
    boot: str
    root: str
    probes: str

    def has_files_of(self, other: "System") -> bool:
        """Whether both see the same files, so that the same software is installed."""
        return (self.boot, self.root) == (other.boot, other.root)


def ask_system(transport: "paramiko.Transport", probe: str, timeout_s: float) -> System | None:
    """None where the node does not tell. Raises RemoteError when the connection breaks."""
    files = f"$(stat -L -c %d:%i / {shlex.quote(probe)} 2>/dev/null)"
    command = f"echo {_MARK} $(uname -n) $(cat /proc/sys/kernel/random/boot_id) {files}"
    answer = _ANSWER.search(run_command(transport, command, timeout_s=timeout_s).output)
    return System(*(part or "" for part in answer.groups())) if answer else None
