"""The fake platform: launch, teardown and leftovers of nodes in memory."""

import shutil
import socket
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from pydantic import PrivateAttr

from seatrial.config.cluster import Cluster, PlatformSettings
from seatrial.config.run import Run
from seatrial.model.errors import InputError
from seatrial.model.testbed import Node, Testbed
from seatrial.platforms import Leftover, Rendered
from seatrial.platforms.testbed import node_of, testbed_of
from seatrial.remote.ssh import new_key_pair
from tests.fake_platform.mpi import ON_RANKS, supervise
from tests.fake_platform.node import FakeNode, Program, ProgramOutput, Request
from tests.fake_platform.programs import HEALTHY, program_name

if TYPE_CHECKING:
    from seatrial.text.redact import Secrets

_SUPERVISOR = "supervise.py"


class FakePlatform:
    """Fulfils `seatrial.platforms.Platform` with nodes in memory, named node-0, node-1, ...

    `programs` answer on every node, unless the node has its own of that name. `errors` are raised
    by the platform's method of that name (launch, attach, collect, keep, teardown, leftovers), once
    it has been called. `unclaimed` is what `leftovers` finds. `calls` are the methods called, in
    order; `up` the testbeds that are up, and `kept` the seconds that they are kept for, by run id.
    """

    def __init__(self, nodes: int = 2) -> None:
        self.nodes: Mapping[str, FakeNode] = MappingProxyType(
            {
                f"node-{i}": FakeNode(f"node-{i}", f"10.0.{i // 250}.{i % 250 + 1}")
                for i in range(nodes)
            }
        )
        self.programs: dict[str, Program] = {}
        self.errors: dict[str, BaseException] = {}
        self.unclaimed: list[Leftover] = []
        self.calls: list[str] = []
        self.up: dict[str, Testbed] = {}
        self.kept: dict[str, float] = {}
        self._keys: dict[str, Path] = {}

    def cluster(self, **fields: Any) -> Cluster:
        """A cluster of these nodes; `fields` are those of a cluster file.

        Raises pydantic's ValidationError.
        """
        described = {
            "name": "fake",
            "nodes": len(self.nodes),
            **fields,
            "platform": {"kind": "local"},
        }
        return Cluster.model_validate(described).model_copy(update={"platform": FakeSettings(self)})

    def render(self, run: Run) -> Rendered:
        return Rendered({"nodes.txt": "".join(f"{name}\n" for name in self.nodes)})

    def launch(self, run: Run) -> Testbed:
        with self._called("launch"):
            key, folder = new_key_pair(), Path(tempfile.mkdtemp(prefix="seatrial-fake-"))
            self._keys[run.run_id] = folder
            (folder / "id_ed25519").write_text(key.private)
            chosen = [node for node in self.nodes.values() if node.name in run.cluster.node_names()]
            nodes = (node_of(run.cluster, n.name, n.address, n.host_key.public) for n in chosen)
            self.up[run.run_id] = testbed_of(
                run.cluster,
                run.run_id,
                nodes,
                user="root",
                key_file=folder / "id_ed25519",
                dial=partial(self._dial, key.public),
                workdir="/tmp/seatrial",
                network="10.0.0.0/16",
            )
        return self.up[run.run_id]

    def attach(self, run_id: str) -> Testbed:
        with self._called("attach"):
            if run_id not in self.up:
                raise InputError(f"run {run_id}: is not up")
        return self.up[run_id]

    def collect(self, run_id: str, folder: Path, timeout_s: float, secrets: "Secrets") -> None:
        with self._called("collect"):
            pass

    def keep(self, run_id: str, seconds: float) -> bool:
        with self._called("keep"):
            if run_id in self.up:
                self.kept[run_id] = seconds
        return run_id in self.up

    def teardown(self, run_id: str) -> None:
        with self._called("teardown"):
            self.up.pop(run_id, None)
            self.kept.pop(run_id, None)
            if folder := self._keys.pop(run_id, None):
                shutil.rmtree(folder)
                for node in self.nodes.values():
                    node.disconnect()

    def leftovers(self) -> list[Leftover]:
        with self._called("leftovers"):
            return list(self.unclaimed)

    def missing(self) -> list[str]:
        return []

    @contextmanager
    def _called(self, method: str) -> Iterator[None]:
        """What a platform has done when it fails stays done, so the error comes last."""
        self.calls.append(method)
        yield
        if error := self.errors.get(method):
            raise error

    def _dial(self, user_key: str, node: Node, timeout_s: float) -> socket.socket:
        from tests.fake_platform.server import dial  # paramiko takes a while to load

        here = self.nodes[node.name]
        return dial(
            here,
            user_key,
            lambda words, stdin: self._answer(Request(here, words, stdin, self.nodes)),
        )

    def _answer(self, request: Request) -> ProgramOutput:
        """What a command on a node comes to."""
        name = program_name(request.words)
        if name == _SUPERVISOR:
            return supervise(request, self._run)
        return self._run(request)

    def _run(self, request: Request) -> ProgramOutput:
        name = program_name(request.words)
        shipped: Mapping[str, Program] = {**HEALTHY, **ON_RANKS}
        program = request.node.programs.get(name) or self.programs.get(name) or shipped.get(name)
        if program is None:
            return ProgramOutput(f"sh: 1: {name}: not found\n", 127)
        answer = program(request)
        return ProgramOutput(answer) if isinstance(answer, str) else answer


def platform(cluster: Cluster) -> FakePlatform:
    """The platform that made the cluster."""
    assert isinstance(cluster.platform, FakeSettings)
    return cluster.platform.platform


class FakeSettings(PlatformSettings):
    """Holds the platform itself, which `seatrial.platforms.platform_for` returns."""

    kind: Literal["fake"]
    left_out: frozenset[str] = frozenset()
    _platform: "FakePlatform" = PrivateAttr()

    def __init__(self, platform: "FakePlatform") -> None:
        super().__init__(kind="fake")
        self._platform = platform

    def node_names(self, count: int) -> list[str]:
        names = super().node_names(count + len(self.left_out))
        return [name for name in names if name not in self.left_out]

    def without(self, names: Collection[str], of: Sequence[str]) -> PlatformSettings:
        return self.model_copy(update={"left_out": frozenset(names)})

    @property
    def platform(self) -> "FakePlatform":
        return self._platform
