"""The search for the nodes that MPI fails with, and the probe that reads the banner of every
peer.
"""

import json
import math
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.connectivity import check
from seatrial.checks.connectivity.check import MAX_TRIES, HostnameResult, guilty_nodes
from seatrial.checks.connectivity.findings import Findings
from seatrial.model.errors import MissingError
from seatrial.model.reason import Reason, uncoded
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.probes import probe, reach
from tests.unit.collectives.fake_mpirun import make_run, make_testbed


class Mpi:
    """Fails when a bad node takes part."""

    def __init__(self, *bad: str) -> None:
        self.bad = set(bad)
        self.tries = 0

    def __call__(self, testbed: Testbed) -> Reason | None:
        self.tries += 1
        taking_part = self.bad & {node.name for node in testbed.nodes}
        return uncoded(f"{sorted(taking_part)[0]} is bad") if taking_part else None


def test_faulty_head_is_blamed_also_in_a_pair() -> None:
    for count in (2, 5):
        assert guilty_nodes(make_testbed(count), Mpi("node-0")) == [
            ("node-0", uncoded("node-0 is bad"))
        ]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_mpirun_that_fails_on_every_single_node_blames_none(count: int) -> None:
    with pytest.raises(
        MissingError,
        match="mpirun does not work, on one node alone neither: segfault; check Open MPI",
    ):
        guilty_nodes(make_testbed(count), lambda testbed: uncoded("segfault"))


@pytest.mark.parametrize(
    "bad", [("node-1",), ("node-4",), ("node-2", "node-7"), ("node-1", "node-2", "node-3")]
)
def test_exactly_the_faulty_nodes_are_found(bad: tuple[str, ...]) -> None:
    assert {name for name, _ in guilty_nodes(make_testbed(9), Mpi(*bad))} == set(bad)


def test_search_among_a_thousand_nodes_takes_logarithmically_many_tries() -> None:
    mpi = Mpi("node-777")
    assert guilty_nodes(make_testbed(1000), mpi) == [("node-777", uncoded("node-777 is bad"))]
    assert mpi.tries <= 2 + 2 * math.ceil(math.log2(1000))


def test_no_node_is_blamed_when_only_all_nodes_together_fail() -> None:
    whole = make_testbed(4)
    assert (
        guilty_nodes(
            whole, lambda testbed: uncoded("too many") if len(testbed.nodes) == 4 else None
        )
        == []
    )


def test_search_for_faulty_nodes_stops_at_its_limit_of_tries() -> None:
    mpi = Mpi(*(f"node-{i}" for i in range(1, 200)))
    assert guilty_nodes(make_testbed(200), mpi) == []
    assert mpi.tries <= MAX_TRIES + 1


def test_a_machine_that_is_too_busy_for_mpirun_is_no_nodes_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tries = []

    def starved(*arguments: object) -> HostnameResult:
        tries.append(arguments)
        return HostnameResult(MpiResult(None, (), 20.0, timed_out=True, waited_s=15.0), ("node-1",))

    monkeypatch.setattr(check, "show_hosts", starved)
    findings = Findings(make_testbed(4))
    check._try_mpi(findings, {}, make_run(tmp_path))
    done = findings.check()
    assert (done.verdict, done.reason.code, done.suspects) == (
        Verdict.INCONCLUSIVE,
        "machine-too-busy",
        (),
    )
    assert len(tries) == 1


Serve = Callable[[socket.socket], None]
read_banners: Callable[[list[Any], float, int], Iterator[tuple[int, str]]] = reach.reach


@contextmanager
def listening(serve: Serve | None) -> Iterator[list[Any]]:
    """The address of a server that calls `serve` for its one connection; None: it never accepts."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_accept, args=(listener, serve))
        if serve:
            thread.start()
        try:
            yield list(listener.getsockname())
        finally:
            if serve:
                listener.shutdown(socket.SHUT_RDWR)
                thread.join()


def _accept(listener: socket.socket, serve: Serve) -> None:
    with suppress(OSError):
        connection, _ = listener.accept()
        with connection:
            serve(connection)


def sends(*parts: bytes) -> Serve:
    def serve(connection: socket.socket) -> None:
        for part in parts:
            connection.sendall(part)
        connection.recv(1)  # until the probe closes

    return serve


def endless(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"welcome\r\n" * 1000)


def closes(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


SERVERS: dict[str, tuple[Serve | None, str]] = {
    "an sshd": (sends(b"SSH-2.0-OpenSSH_9.2\r\n"), ""),
    "an old sshd": (sends(b"SSH-1.99-OpenSSH_3.9\r\n"), ""),
    "lines before the version": (sends(b"maintenance at noon\r\n", b"SSH-2.0-x\r\n"), ""),
    "a version in pieces": (sends(b"SSH", b"-2", b".0-x\r\n"), ""),
    "never accepts": (None, "timeout"),
    "never answers": (sends(), "timeout"),
    "stops in the middle": (sends(b"SSH-"), "timeout"),
    "floods": (endless, "other-banner"),
    "sshd that is full": (sends(b"Exceeded MaxStartups\r\n"), "max-startups"),
    "one endless line": (sends(b"\0" * (1 << 16)), "other-banner"),
    "a web server that leaves": (
        lambda connection: connection.sendall(b"HTTP/1.1 400\r\n\r\n"),
        "other-banner",
    ),
    "closes at once": (closes, "closed"),
}


@pytest.mark.parametrize("server", SERVERS)
def test_each_misbehaviour_of_a_peer_has_a_reason(server: str) -> None:
    serve, reason = SERVERS[server]
    with listening(serve) as address:
        assert list(read_banners([address], 0.5 if reason == "timeout" else 30, 8)) == [(0, reason)]


def closed_port() -> list[Any]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return list(listener.getsockname())


def test_refused_and_unroutable_peers_have_different_reasons() -> None:
    answers = dict(read_banners([closed_port(), ["0.0.0.256", 22], ["255.255.255.255", 22]], 5, 8))
    assert (answers[0], answers[1], bool(answers[2])) == ("refused", "no-route", True)


def with_files(limit: int, peers: Sequence[Any], timeout_s: float, parallel: int) -> dict[str, Any]:
    """The answer of a node that may open no more files than that."""
    done = subprocess.run(
        ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", sys.executable, str(probe("reach"))],
        input=json.dumps({"peers": peers, "timeout_s": timeout_s, "parallel": parallel}),
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_few_files_are_enough_for_many_peers() -> None:
    """The limit of open files is far below the number of peers."""
    answer = with_files(32, [closed_port()] * 500, 60, 8)
    assert (answer["tried"], list(answer["failed"]), len(answer["failed"]["refused"])) == (
        500,
        ["refused"],
        500,
    )


def test_lack_of_open_files_on_the_node_is_not_blamed_on_peers() -> None:
    with listening(None) as address:
        failed = with_files(16, [address] * 64, 0.5, 64)["failed"]
    assert set(failed) == {"local", "timeout"}
    assert len(failed["local"]) + len(failed["timeout"]) == 64
