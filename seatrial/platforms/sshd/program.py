"""What starts sshd on a node where no image does: a shell script, with the keys of the run in front. Pure."""

import shlex
from functools import cache
from pathlib import Path

from seatrial.remote.keys import KeyPair

MADE_LATER = KeyPair("<made for each run>", "<made for each run>")


def default_folder(run_id: str) -> str:
    """On the node, private to its user, and gone when sshd ends."""
    return f"/tmp/seatrial-{run_id}"


def node_script(
    run_id: str, port: int, run_key: KeyPair, host_key: KeyPair, folder: str | None = None, listen: str | None = None
) -> str:
    """For the standard input of `sh -s` on each node. `folder` is made there, in a folder that is; a full path.

    `listen` is the address that sshd listens on; every one when None.
    """
    values = {
        "FOLDER": folder or default_folder(run_id),
        "PORT": str(port),
        "USER_KEY": run_key.public,
        "RUN_KEY": run_key.private.strip(),
        "HOST_KEY": host_key.private.strip(),
        "HOST_KEY_PUBLIC": host_key.public,
        **({"LISTEN": listen} if listen else {}),
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items()) + _node_program()


@cache
def _node_program() -> str:
    """The functions that the entry point of images reads too, then the script itself."""
    functions, script = (Path(__file__).with_name(name).read_text() for name in ("functions.sh", "node.sh"))
    return functions.removeprefix("#!/bin/sh\n") + script
