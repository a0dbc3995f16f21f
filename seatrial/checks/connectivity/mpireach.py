"""Does MPI reach every node? `mpirun hostname` over the hostfile, and who is guilty when it does not."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.model.errors import MissingError
from seatrial.model.reason import Reason
from seatrial.model.testbed import Testbed
from seatrial.remote.command import MAX_OUTPUT_BYTES
from seatrial.remote.mpi import MpiResult, mpirun

_BYTES_PER_RANK = 4096  # of output: a host name, and what mpirun warns of
MAX_TRIES = 40  # of mpirun while searching: some ten guilty nodes among a thousand

Attempt = Callable[[Testbed], str | None]  # why MPI fails over that testbed, None when it works
Guilty = tuple[str, str]  # a node, and why


@dataclass(frozen=True, slots=True)
class HostnameResult:
    """What one `mpirun hostname` came to; `missing` are the nodes not shown once per slot."""

    result: MpiResult
    missing: tuple[str, ...]

    @property
    def why(self) -> str | None:
        """Why nodes are missing; None when none is."""
        if not self.missing:
            return None
        if self.result.cause:
            return self.result.cause
        if self.result.timed_out:
            return Reason.of("mpirun-hostname-failed", ended=f"did not end within {self.result.seconds:.0f} s")
        ended = f"ended with status {self.result.exit_status} and did not show it"
        return Reason.of("mpirun-hostname-failed", ended=ended)


def show_hosts(testbed: Testbed, hostnames: Mapping[str, str], timeout_s: float, log_file: Path) -> HostnameResult:
    """Run `hostname` once per slot; `hostnames` are the nodes' own, by node name. Raises RemoteError."""
    expected: Counter[str] = Counter()
    for node in testbed.nodes:
        expected[hostnames[node.name]] += node.slots
    counts: Counter[str] = Counter()

    def complete(line: str) -> bool:
        if (host := line.strip()) in expected:
            counts[host] += 1
        return counts == expected

    most = MAX_OUTPUT_BYTES + _BYTES_PER_RANK * testbed.world_size
    result = mpirun(testbed, ["hostname"], timeout_s=timeout_s, is_done=complete, log_file=log_file, max_bytes=most)
    wrong = {host for host, slots in expected.items() if counts[host] != slots}
    return HostnameResult(result, tuple(node.name for node in testbed.nodes if hostnames[node.name] in wrong))


def guilty_nodes(testbed: Testbed, attempt: Attempt) -> list[Guilty]:
    """The nodes without which MPI works, by halving: the head alone first, then the head with ever fewer others.

    Empty when no part fails by itself, or when the search takes more than MAX_TRIES. Raises MissingError when mpirun
    fails on single nodes one after the other: then it is mpirun that is broken, and no node.
    """
    head, *others = [node.name for node in testbed.nodes]
    if why := attempt(_alone(testbed, head)):
        if all(attempt(_alone(testbed, other)) for other in others[:2]):
            raise MissingError(Reason.of("mpirun-broken", cause=why))
        return [(head, why)]
    search = _Search(testbed, attempt)
    guilty = search.among(others)
    return guilty if search.tries <= MAX_TRIES else []


def _alone(testbed: Testbed, name: str) -> Testbed:
    return testbed.without(node.name for node in testbed.nodes if node.name != name)


@dataclass(slots=True)
class _Search:
    testbed: Testbed
    attempt: Attempt
    tries: int = 0

    def among(self, names: Sequence[str]) -> list[Guilty]:
        """The guilty among `names`, tried together with the head."""
        self.tries += 1
        if self.tries > MAX_TRIES:
            return []
        left_out = {node.name for node in self.testbed.nodes[1:]} - set(names)
        why = self.attempt(self.testbed.without(left_out))
        if why is None:
            return []
        if len(names) == 1:
            return [(names[0], why)]
        middle = len(names) // 2
        return self.among(names[:middle]) + self.among(names[middle:])
