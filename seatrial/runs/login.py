"""Find runs by id or folder, and log in to their nodes with the system's ssh."""

import logging
import os
import shlex
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.model.errors import InputError, MissingError, RemoteError, os_errors_named
from seatrial.model.testbed import Node, Testbed
from seatrial.platforms import platform_for
from seatrial.platforms import state as states
from seatrial.runs.load import load_result
from seatrial.text.words import some_of

if TYPE_CHECKING:
    from seatrial.model.result import RunResult


log = logging.getLogger("seatrial.report")
_SHOWN = 8  # names in an error; a testbed may have thousands


def find_run(run: str) -> Path:
    """Return the folder of a run. Raises InputError."""
    if path := _path(run):
        return path
    from seatrial.history import open_store

    with open_store() as store:
        row = store.run(run)
    if row is None:
        raise _unknown(run)
    if not holds(row.out, run):
        raise InputError(
            f"RUN {run}: its folder {row.out} has it no more; give the folder it is in now"
        )
    return Path(row.out)


def run_of(run: str) -> "RunResult":
    """Return the result of a run from its folder, else from the history. Raises InputError."""
    if path := _path(run):
        return load_result(path)
    from seatrial.history import open_store

    with open_store() as store:
        row = store.run(run)
        if row and holds(row.out, run):
            return load_result(Path(row.out))
        stored = store.result(run)
    if stored is None:
        raise _unknown(run)
    return stored


def id_of(run: str) -> str:
    """Return the id of the run that a folder or its run.json holds; any other text is the id.

    Raises InputError.
    """
    path = _path(run)
    return (
        load_result(path).run_id
        if path and (path.is_file() or (path / "run.json").exists())
        else run
    )


def _path(run: str) -> Path | None:
    """Return the path that `run` names, None if there is none.

    Raises InputError for an invalid path.
    """
    # It may be too long, or in a folder that is closed to us
    with os_errors_named(f"RUN {run[:80]}", "; give a run's folder, its run.json or its id"):
        return next((path for path in (Path(run), Path("runs") / run) if path.exists()), None)


def holds(out: str, run_id: str) -> bool:
    """Return whether the folder `out` holds that run, and not another one or none."""
    try:
        return (Path(out) / "run.json").exists() and load_result(Path(out)).run_id == run_id
    except InputError as error:
        log.warning("%s", error)
        return False


def _unknown(run: str) -> InputError:
    return InputError(
        f"RUN {run}: neither a folder nor a run of the history; `seatrial history` lists those"
    )


def testbed_of(run: str) -> Testbed:
    """Return the testbed of a run that is up on this machine. Raises InputError."""
    run_id, folder = folder_of(run)
    testbed = platform_for(states.recall(folder)).attach(run_id)
    states.read_file(folder, testbed.key_file.name)  # ssh itself would follow a link
    return testbed


def folder_of(run: str) -> tuple[str, Path]:
    """Return the id of a run, given by id or folder, and the folder of its state.

    Raises InputError.
    """
    path = Path(run)
    run_id = run
    if os.path.isdir(run):  # unlike Path.is_dir, False for a path that is too long
        run_id = load_result(path).run_id if (path / "run.json").exists() else path.resolve().name
    folder = states.find(run_id)
    if folder is None:
        up = f"up: {', '.join(states.run_ids()[-_SHOWN:])}" if states.run_ids() else "none is up"
        raise InputError(f"run {run_id}: is over, or not from this machine and user; {up}")
    return run_id, folder


def node_of(testbed: Testbed, name: str) -> Node:
    """Return a node by name, index, or `head`. Raises InputError with the legal names."""
    by_name = testbed.by_name
    if name in by_name:
        return by_name[name]
    if name == "head":
        return testbed.head
    if name.isdecimal() and int(name) < len(testbed.nodes):
        return testbed.nodes[int(name)]
    legal = f"{some_of(by_name, _SHOWN)}, head, or 0 to {len(testbed.nodes) - 1}"
    raise InputError(f"run {testbed.run_id}: has no node {name!r}; legal: {legal}")


def ssh_argv(
    testbed: Testbed, node: Node, command: tuple[str, ...], *, terminal: bool
) -> list[str]:
    """Return the ssh command with the run's key and pinned host key, without the user's
    configuration.
    """
    dial = shlex.join([sys.executable, "-P", "-m", "seatrial", "dial", testbed.run_id, node.name])
    options = {
        "ProxyCommand": dial.replace("%", "%%"),
        "IdentityFile": str(testbed.key_file),
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": str(testbed.key_file.with_name("known_hosts")),
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "LogLevel": "ERROR",
    }
    flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    where = [
        *(["-t"] if terminal else []),
        "-p",
        str(node.port),
        "-l",
        testbed.user_of(node),
        node.address,
    ]
    return ["ssh", "-F", "none", *flags, *where, *command]


def log_in(run: str, node: str, command: tuple[str, ...]) -> None:
    """Replace this process with ssh. Raises InputError, or MissingError without ssh."""
    if _is_up(node) and not _is_up(run):
        raise InputError(f"ssh: RUN comes before NODE: seatrial ssh {node} {run}")
    testbed = testbed_of(run)
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    argv = ssh_argv(testbed, node_of(testbed, node), command, terminal=on_terminal)
    try:
        os.execvp(argv[0], argv)
    except FileNotFoundError as error:
        raise MissingError.of("ssh-missing") from error


def _is_up(run: str) -> bool:
    try:
        folder_of(run)
    except InputError:
        return False
    return True


def dial(run: str, node: str) -> None:
    """Connect standard input and output to the sshd of a node. Raises RemoteError."""
    testbed = testbed_of(run)
    target = node_of(testbed, node)
    try:
        stream = testbed.dial(target, 20.0)
    except OSError as error:
        raise RemoteError(f"{target.name}: {error.strerror or error}") from error
    with stream:
        stream.settimeout(None)

        def send() -> None:
            with suppress(OSError):
                while data := os.read(0, 65536):
                    stream.sendall(data)
                stream.shutdown(socket.SHUT_WR)

        threading.Thread(target=send, daemon=True).start()
        with suppress(OSError):  # ssh has gone
            while data := stream.recv(65536):
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
