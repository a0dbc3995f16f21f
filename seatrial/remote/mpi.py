"""Start ranks by mpirun with a hostfile on the head node (Open MPI 4 and 5), or by the testbed's
launcher, and follow their output.
"""

import base64
import json
import os
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from uuid import uuid4

from seatrial.model.errors import LaunchError, RemoteError
from seatrial.model.testbed import Node, RankProcess, Testbed
from seatrial.remote.command import RemoteRanks, run_command, start_process
from seatrial.remote.follower import Follower
from seatrial.remote.mpi_result import SSH_FAILED, MpiResult, Session
from seatrial.remote.ssh import connected
from seatrial.system.rawlog import RawLog
from seatrial.text.redact import Secrets

Environ = Mapping[str, str]
OnLine = Callable[[str], None] | None  # called with each printed line
# NCCL_DEBUG=INFO prints some 40 KiB per rank
OUTPUT_BYTES = 32 * 1024**2
OUTPUT_BYTES_PER_RANK = 128 * 1024
# Limits on the login output of each node
_SESSION_LINES = 20
_SESSION_CHARACTERS = 1000
_SESSIONS_BYTES = 4 * 1024**2  # most bytes of all nodes
# Characters that rsh_agent.sh replaces in a host's file name
_FILE_NAME = re.compile(r"[^A-Za-z0-9.-]")


def hostfile(nodes: Iterable[Node]) -> str:
    """Return the hostfile: one line per node, with the address or name by which its peers reach it.

    mpirun fills a node's slots before the next, in this order.
    """
    lines = (f"{node.address} slots={node.slots} port={node.port}\n" for node in nodes)
    return "".join(lines)


def mpirun_argv(testbed: Testbed, argv: Sequence[str], env: Environ) -> list[str]:
    """Return the command line that runs `argv` on one rank per slot, consecutive ranks on one node.

    It names the variables of `variables(testbed, env)`, and mpirun takes their values from its own
    environment: command lines are logged, and anybody on the node can read them. Ranks are not
    bound to cores.
    """
    network = []
    if testbed.network:
        for parameter in ("btl_tcp_if_include", "oob_tcp_if_include"):
            network += ["--mca", parameter, testbed.network]
    exports = chain.from_iterable(("-x", name) for name in variables(testbed, env))
    return [
        testbed.mpirun,
        *(("--allow-run-as-root",) if testbed.user == "root" else ()),
        "--hostfile",
        hostfile_path(testbed),
        "-np",
        str(testbed.world_size),
        "--map-by",
        "slot",
        "--bind-to",
        "none",
        "--mca",
        "orte_keep_fqdn_hostnames",
        "1",
        *network,
        *testbed.mpirun_args,
        "--tag-output",
        *exports,
        *argv,
    ]


def variables(testbed: Testbed, env: Environ) -> dict[str, str]:
    """Return the environment that every rank gets: the testbed's, and `env` on top."""
    return {**dict(testbed.env), **env}


def hostfile_path(testbed: Testbed) -> str:
    """Return the path of the hostfile on the head node, which depends on the testbed's label, as
    parts of a testbed may share head and folder.
    """
    path = f"{testbed.workdir}/hostfile"
    if testbed.label:
        path += f"-{testbed.label}"
    return path


def mpirun(
    testbed: Testbed,
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Environ | None = None,
    on_line: OnLine = None,
    is_done: Callable[[str], bool] | None = None,
    log_file: Path | None = None,
    max_bytes: int | None = None,
    secrets: Secrets | None = None,
) -> MpiResult:
    """Run `argv` on every slot of the testbed and follow its output, at most `max_bytes` of it.

    `is_done(line)` returns whether nothing of interest follows the line: mpirun, or the testbed's
    launcher, then gets a few seconds before it is ended. A supervisor ends everything if this
    connection breaks. `secrets` are removed from all output (default: those of this process'
    environment and of the testbed's). Raises RemoteError if the head cannot be reached.
    """
    launcher = testbed.launcher
    ranks_env = variables(testbed, env or {})
    python = launcher.python if launcher else testbed.python
    supervisor, script = (python, "supervise.py") if python else ("sh", "supervise.sh")
    # Folder on the head, of this mpirun only
    sessions = f"{testbed.workdir}/sessions-{uuid4().hex}"
    argv = ["sh", f"{testbed.workdir}/rank.sh", _pipe(sessions), *argv]
    ranks = (launcher.argv if launcher else mpirun_argv)(testbed, argv, ranks_env)
    command = shlex.join([supervisor, f"{testbed.workdir}/{script}", str(timeout_s), *ranks])
    hidden = secrets or Secrets.of({**os.environ, **dict(testbed.env)})
    with (launcher.started if launcher else _started_on_head)(testbed, command) as process:
        environment = _supervisor_env(testbed, ranks_env, sessions)
        encoded = json.dumps(environment).encode() if python else _for_shell(environment)
        with suppress(OSError, EOFError):  # it ended at once; its output has the reason
            process.send(encoded + b"\n")
        with RawLog(log_file, hidden) as file:
            file.write(f"$ {command}\n")
            size = testbed.world_size
            most = max_bytes or OUTPUT_BYTES + OUTPUT_BYTES_PER_RANK * size
            follower = Follower(process, file, on_line, is_done, most, timeout_s, size)
            done = follower.follow()
            if not launcher and not done.ok:
                done = replace(done, sessions=_sessions(testbed, sessions, hidden))
    return replace(
        done,
        node_names={node.address: node.name for node in testbed.nodes},
        rank_nodes=_rank_nodes(testbed),
        waited_s=0.0 if testbed.shared_cores is None else done.waited_s,
        unreported=tuple(sorted(set(range(size)) - follower.reported)),
    )


def _supervisor_env(testbed: Testbed, ranks_env: Environ, sessions: str) -> Environ:
    """Return the launcher's variables; for mpirun, also rank 0's pipe and the remote shell for Open
    MPI 4 and 5, unless the cluster file sets it.
    """
    if testbed.launcher:
        return testbed.launcher.environment(ranks_env)
    agent = f"sh {testbed.workdir}/rsh_agent.sh {sessions}"
    return {
        "OMPI_MCA_plm_rsh_agent": agent,
        "PRTE_MCA_plm_ssh_agent": agent,
        "SEATRIAL_PIPE": _pipe(sessions),
        **ranks_env,
    }


def _pipe(sessions: str) -> str:
    """Return the path of the named pipe that rank 0 prints into, separate from the launcher's
    output.
    """
    return f"{sessions}/rank-0"


def _for_shell(environment: Environ) -> bytes:
    """Return the variables as one line for supervise.sh: exports, in base64, since values may have
    newlines.
    """
    exports = (f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())
    return base64.b64encode("".join(exports).encode())


def _rank_nodes(testbed: Testbed) -> tuple[str, ...]:
    """Return the name of the node of each rank, by rank."""
    return tuple(node.name for node in testbed.nodes for _ in range(node.slots))


def _sessions(testbed: Testbed, folder: str, secrets: Secrets) -> tuple[Session, ...]:
    """Return mpirun's logins that printed something or failed, each as evidence about its own node
    only.

    Only the first one that failed keeps its exit status, since mpirun then ends the other daemons.
    """
    first = f'FNR <= {_SESSION_LINES} {{ print FILENAME ":" substr($0, 1, {_SESSION_CHARACTERS}) }}'
    oldest_first = "ls -tr | grep -v -e '\\.ssh$' -e '^rank-0$'"
    firsts = f"{oldest_first} | xargs awk {shlex.quote(first)}"
    command = f"cd {shlex.quote(folder)} && {firsts}"
    try:
        with connected(testbed, testbed.head, 30) as head:
            output = run_command(head, command, timeout_s=30, max_bytes=_SESSIONS_BYTES).output
    except (RemoteError, LaunchError):  # the original failure is more informative
        return ()
    by_file: dict[str, list[str]] = defaultdict(list)
    for line in output.splitlines():
        file, _, words = line.partition(":")
        by_file[file].append(secrets.out_of_line(words))
    first_failed = _first_failed(by_file)
    sessions = []
    for node in testbed.nodes:
        file = _FILE_NAME.sub("_", node.address)
        status_file = f"{file}.status"
        status = "".join(by_file[status_file])
        exit_status = None  # the login has not ended, or the file is incomplete
        if re.fullmatch(r"\d{1,3}", status):
            exit_status = int(status)
        session = Session(node.name, tuple(by_file[file]), exit_status)
        if session.failed and status_file != first_failed:
            session = replace(session, exit_status=None)
        if session.lines or session.failed:
            sessions.append(session)
    return tuple(sessions)


def _first_failed(by_file: Mapping[str, Sequence[str]]) -> str | None:
    """Return the oldest status file of a failed command, ignoring failures of ssh itself."""
    harmless = ("0", str(SSH_FAILED))
    for file, lines in by_file.items():
        if file.endswith(".status") and lines[0] not in harmless:
            return file
    return None


@contextmanager
def _started_on_head(testbed: Testbed, command: str) -> Iterator[RankProcess]:
    """Write the hostfile and start the command on the head node; close the connection at the end.

    The supervisor ends the command with the connection.
    """
    with connected(testbed, testbed.head, 30) as head:
        path = shlex.quote(hostfile_path(testbed))
        lines = hostfile(testbed.nodes).encode()
        run_command(head, f"cat > {path}", stdin=lines, timeout_s=30)
        process = start_process(head, command, RemoteRanks)
        try:
            yield process
        finally:
            process.close()
