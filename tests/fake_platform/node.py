"""A node in memory: what it is, how it is broken, and what its programs answer."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seatrial.remote.ssh import KeyPair, new_key_pair

GIB_PER_NODE = 64.0


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """What a program prints (stdout and stderr as one), and its exit status.

    `rank_0` has the pipe of rank 0.

    `hangs`: it prints that and does not end. Its supervisor then ends an mpirun at once, as if its
    time were up; any other command stays silent until the caller's time limit, which is real.
    """

    output: str = ""
    exit_status: int = 0
    hangs: bool = False
    rank_0: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """A program that is to run: its words, its standard input, and the node that runs it.

    A program that mpirun starts is asked once for all ranks, on the head: `ranks` has the node of
    each rank and `env` what mpirun was told to export. `peers` are all nodes of the platform by
    name.
    """

    node: "FakeNode"
    words: tuple[str, ...]
    stdin: str = ""
    peers: Mapping[str, "FakeNode"] = field(default_factory=dict)
    ranks: tuple["FakeNode", ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def option(self, name: str, default: str = "") -> str:
        """The word that follows `name`; `default` where it is not among the words."""
        return self.words[self.words.index(name) + 1] if name in self.words[:-1] else default


# A text alone is the output of a program that ended well
Program = Callable[[Request], ProgramOutput | str]


@dataclass(slots=True)
class FakeNode:
    """One node. Every field may be changed at any time, also while a check runs.

    `facts` go over what seatrial/remote/probes/facts.py says of a healthy node. `link_mb_s` (1e6
    bytes per second) is what its network carries, `latency_us` what a message takes at least,
    `step_time_ms` one step of training. `clock_offset_s` is its clock minus the real one.
    `programs` are by name: facts.py, pairs.py, stream.py, date, hostname, collective.py,
    training.py, mpirun, all_reduce_perf, ...

    Faults: `refuses` (nothing listens at its port), `wrong_host_key`, and `commands_left`, the
    number of commands after which it dies: its connections break, and it refuses from then on.
    """

    name: str
    address: str
    facts: dict[str, Any] = field(default_factory=dict)
    link_mb_s: float = 1000.0
    latency_us: float = 20.0
    step_time_ms: float = 5.0
    clock_offset_s: float = 0.0
    refuses: bool = False
    wrong_host_key: bool = False
    commands_left: int | None = None
    programs: dict[str, Program] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # text by path, as `cat` left it
    # All that it was asked to run, in order
    commands: list[tuple[str, ...]] = field(default_factory=list)
    host_key: KeyPair = field(default_factory=new_key_pair)
    connections: list[Callable[[], None]] = field(default_factory=list, repr=False)  # each ends one
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def hostname(self) -> str:
        return str(self.facts.get("hostname", self.name))

    @property
    def dead(self) -> bool:
        return self.commands_left is not None and self.commands_left <= 0

    @property
    def unreachable(self) -> str | None:
        """Why SSH cannot reach it, in ssh's own words; None where it can."""
        if self.refuses or self.dead:
            return f"ssh: connect to host {self.address} port 222: Connection refused"
        return "Host key verification failed." if self.wrong_host_key else None

    def disconnect(self) -> None:
        """End every connection to it."""
        while self.connections:
            self.connections.pop()()

    def begin(self, words: tuple[str, ...]) -> bool:
        """Count a command; False where the node is dead, or dies of it."""
        with self._lock:
            if self.dead:
                return False
            self.commands.append(words)
            if self.commands_left is not None:
                self.commands_left -= 1
            return not self.dead
