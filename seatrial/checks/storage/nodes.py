"""The probe storage.py or objects.py on all nodes: send requests to all at once, and collect the
answers.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Any

from pydantic import Field, FiniteFloat

from seatrial.model.errors import RemoteError
from seatrial.model.testbed import Node, Testbed
from seatrial.remote.answers import Answer, NodeAnswer, ProbeError, Text
from seatrial.remote.line_probe import LineProbe, read_either
from seatrial.remote.node_setup import standard_library_program
from seatrial.remote.ssh import answered, connected, fan_out, on_each

log = logging.getLogger("seatrial.storage")

Bytes = Annotated[int, Field(ge=0, lt=1 << 60)]
Seconds = Annotated[FiniteFloat, Field(ge=0, le=1e6)]


def is_object_store(path: str) -> bool:
    """Return whether the path is a URL instead of a folder."""
    return not path.startswith("/")


class StoreGreeting(NodeAnswer):
    """A node's own folder in the path, and the type of its file system or the scheme of its object
    store.

    `lacks` is a program or package that is missing on the node; empty if none.
    """

    folder: Annotated[str, Field(pattern=r"^\.seatrial-[A-Za-z0-9_]{1,32}$")]
    filesystem: Text
    lacks: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{0,64}$")]


class Greeting(StoreGreeting):
    """The greeting of a node on a file system, with its free space."""

    free_bytes: Bytes
    direct: bool


class Done(NodeAnswer):
    """The answer that the request `id` is done."""

    id: int


class Timed(Done):
    """The duration of a request; `wrong` describes data that differs from what was written."""

    seconds: Annotated[FiniteFloat, Field(gt=1e-6, le=1e6)]
    wrong: Text = ""


class Transfer(Timed):
    """The number of bytes written or read."""

    bytes: Annotated[int, Field(gt=0, lt=1 << 60)]

    @property
    def gb_s(self) -> float:
        """The rate in GB/s (1e9 bytes)."""
        return self.bytes / self.seconds / 1e9


class Note(Done):
    """The digest of a file that a node wrote for others."""

    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Look(Done):
    """The seconds until another node's file was visible; if it never was, `seen` says what was
    there.
    """

    seconds: Seconds | None = None
    seen: Text = ""


class Contention(Done):
    """Whether a file that another node has locked is locked here too."""

    locked: bool


class SmallFiles(Timed):
    """The answer that all small files were written and read."""


class StorageNodes:
    """The nodes that answer for one path, each with an open connection until `close`.

    A node that fails is not asked again; `failed` has its error.
    """

    def __init__(self, testbed: Testbed, path: str, timeout_s: float) -> None:
        self.failed: dict[str, RemoteError] = {}
        self.greetings: dict[str, StoreGreeting] = {}
        self._testbed = testbed
        self._timeout_s = timeout_s
        self._open = ExitStack()
        self._probes: dict[str, LineProbe] = {}
        started = on_each(testbed.nodes, lambda node: self._started(node, path), fan_out(testbed))
        for name, answer in started.items():
            if isinstance(answer, RemoteError):
                self.failed[name] = answer
            else:
                self._probes[name], self.greetings[name] = answer

    @property
    def names(self) -> list[str]:
        """The nodes that have not failed, in testbed order."""
        return [node.name for node in self.nodes]

    @property
    def nodes(self) -> list[Node]:
        return [node for node in self._testbed.nodes if node.name in self._probes]

    def close(self) -> None:
        """Wait until the nodes have removed their files, and end the connections."""
        self.ask(self.names, lambda name: {"do": "leave"}, Done)
        self._open.close()

    def _started(self, node: Node, path: str) -> tuple[LineProbe, StoreGreeting]:
        """Start the probe of a path on a node, and return it with its greeting."""
        model = StoreGreeting if is_object_store(path) else Greeting
        program = standard_library_program(self._testbed, "storage.py")
        if is_object_store(path):
            program = [self._testbed.python, f"{self._testbed.workdir}/objects.py"]
        transport = self._open.enter_context(connected(self._testbed, node, self._timeout_s))
        probe = LineProbe(transport, [*program, path])
        answer = probe.first(partial(read_either, model, ProbeError), self._timeout_s)
        if isinstance(answer, ProbeError):
            raise RemoteError(answer.error)
        return probe, answer

    def ask(
        self,
        names: Iterable[str],
        request: Callable[[str], Mapping[str, Any]],
        model: type[Answer],
        more_s: float = 0.0,
    ) -> dict[str, Answer]:
        """Send a request to each of the named nodes at once, and return their answers by name.

        `request` returns the request for a node. `more_s` is time in addition to the usual timeout.
        """
        requested = set(names)
        asked = [node for node in self.nodes if node.name in requested]

        def send(node: Node) -> int:
            return self._probes[node.name].send(request(node.name))

        # Send all requests before reading any answer, so that nodes begin together
        sent = on_each(asked, send, at_once=1)
        numbers = answered(sent)

        def collect(node: Node) -> Answer:
            number = numbers[node.name]
            return self._probes[node.name].answer(number, model, self._timeout_s + more_s)

        reached = [node for node in asked if node.name in numbers]
        answers = on_each(reached, collect, fan_out(self._testbed))
        for name, answer in {**sent, **answers}.items():
            if isinstance(answer, RemoteError):
                log.warning("%s: %s", name, answer)
                self.failed[name] = answer
                del self._probes[name]
        return answered(answers)


def ring(names: Sequence[str]) -> dict[str, str]:
    """Return the next node of each node, cyclically; empty for a single node."""
    if len(names) > 1:
        return dict(zip(names, (*names[1:], names[0]), strict=True))
    return {}
