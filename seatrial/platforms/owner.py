"""Who made an object that other users and machines see too."""

import hashlib
import os
import socket
from pathlib import Path

from seatrial.platforms import state as states


def this_one(folder: str) -> str:
    """This owner: the host's name for people, and what tells it from another of that name."""
    told_apart = (_machine_id(), _process_tree(), os.geteuid(), states.root_folder(folder))
    return f"{socket.gethostname()}/{hashlib.sha256(repr(told_apart).encode()).hexdigest()[:12]}"


def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return ""


def _process_tree() -> str:
    """Containers of one machine may share its id and a host name; their processes do not see each other."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
