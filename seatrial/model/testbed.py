"""The testbed of a run, which every platform brings up: nodes that answer on an sshd, one of them
the head.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from seatrial.model.reason import Reason

if TYPE_CHECKING:
    import socket

Dial = Callable[["Node", float], "socket.socket"]


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its name inside the testbed, the address its peers reach it at, and the host key it
    must answer with.

    `host_key` is a public key line ("ssh-ed25519 AAAA..."); `slots` is how many MPI ranks it takes.
    `user` logs in there in place of the testbed's, where nodes have different users.
    """

    name: str
    address: str
    port: int
    slots: int
    host_key: str
    gpus: int = 0
    user: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the node as run.json shows it."""
        return {
            "name": self.name,
            "address": self.address,
            "port": self.port,
            "slots": self.slots,
            "gpus": self.gpus,
        }


class RankProcess(Protocol):
    """A running command that starts ranks; its standard input stays open until `close_stdin`, which
    ends it.
    """

    received_bytes: int

    def send(self, data: bytes) -> None:
        """Write to its standard input. Raises OSError when the command does not take it."""

    def close_stdin(self) -> None: ...

    def read(self, timeout_s: float) -> bytes | None:
        """Read some of the output; empty if nothing arrives within `timeout_s`, None at its end."""

    def read_lines(self, timeout_s: float) -> list[str] | None:
        """Return the whole lines that arrive within `timeout_s`.

        An empty list when none do, None at the end of output.
        """

    def exit_status(self) -> int | None:
        """Return the exit status; None if it is unknown."""


class RankLauncher(Protocol):
    """A starter of ranks in place of mpirun on the head node."""

    @property
    def python(self) -> str:
        """The Python that runs the supervisor of the command."""

    def argv(self, testbed: "Testbed", argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """Return the command line that runs `argv` on one rank per slot, consecutive ranks on one
        node.
        """

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of the command, which gives each rank `env`."""

    def started(self, testbed: "Testbed", command: str) -> AbstractContextManager[RankProcess]:
        """Start `command`, a line for the shell; nothing of it runs after the block.

        Raises RemoteError.
        """


BlamelessReason = Callable[[Node], Reason | None]


def _blamed(node: Node) -> Reason | None:
    return None


def _nothing(check: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Testbed:
    """The nodes of one run and how to reach them.

    `python` is empty where the nodes have none: then the shell starts mpirun, and no probe runs.
    `dial(node, timeout_s)` returns a connected socket to the node's sshd: plain TCP, a namespace's,
    or a port-forward stream. `workdir` and `python` are paths on the nodes; `network` (CIDR or
    interface) is what MPI and gloo use.

    `shared_cores`: how many cores do the work of all nodes, where one machine plays all of them;
    None where each is a machine. It sizes what is tried at once.

    `launcher` starts the ranks; mpirun on the head node when None.

    `after_check(name)` is called when a check is through, for a platform that breaks its nodes on
    purpose.

    `nccl_tests` is the folder of nccl-tests on the nodes; empty where they are on PATH.

    `label` names a part of a testbed that runs beside other parts; it keeps their files apart.

    `groups` are the nodes that share a switch, rack or block, by its name; empty where the platform
    does not know.

    `blameless_reason(node)` says why a node that went silent is not to blame (its scheduler took it
    away), or None.
    """

    run_id: str
    nodes: tuple[Node, ...]
    user: str
    key_file: Path
    dial: Dial = field(compare=False)
    workdir: str
    python: str = "python3"
    mpirun: str = "mpirun"
    mpirun_args: tuple[str, ...] = ()
    network: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    blameless_reason: BlamelessReason = _blamed
    shared_cores: int | None = None
    launcher: RankLauncher | None = None
    nccl_tests: str = ""
    after_check: Callable[[str], None] = field(default=_nothing, compare=False)
    label: str = ""
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict, compare=False)

    @property
    def head(self) -> Node:
        """The node that commands run on and that mpirun starts from."""
        return self.nodes[0]

    @property
    def names(self) -> list[str]:
        """The names of its nodes, the head first."""
        return [node.name for node in self.nodes]

    @property
    def by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @property
    def world_size(self) -> int:
        """MPI ranks over all nodes."""
        return sum(node.slots for node in self.nodes)

    @property
    def has_gpus(self) -> bool:
        return any(node.gpus for node in self.nodes)

    def user_of(self, node: Node) -> str:
        """Return the user to log in with on that node."""
        return node.user or self.user

    def without(self, names: Iterable[str]) -> "Testbed":
        """Return the testbed without those nodes."""
        gone = set(names)
        return replace(self, nodes=tuple(node for node in self.nodes if node.name not in gone))

    def part(self, names: Sequence[str], label: str) -> "Testbed":
        """Return those nodes, in that order, as a part that runs beside others."""
        by_name = self.by_name
        return replace(self, nodes=tuple(by_name[name] for name in names), label=label)


def dial_tcp(node: Node, timeout_s: float) -> "socket.socket":
    """Connect to the node's address directly."""
    import socket

    return socket.create_connection((node.address, node.port), timeout_s)
