"""What mpirun is called with, and what is made of how it ends; the head node is a class here."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.model.testbed import Node, Testbed
from seatrial.remote import mpi
from seatrial.remote.command import CommandResult
from seatrial.remote.mpi import hostfile, mpirun, mpirun_argv
from seatrial.remote.mpi_result import FLOOD, MpiResult
from tests.unit.collectives.fake_mpirun import make_testbed


def dial(node: Node, timeout_s: float) -> socket.socket:
    raise AssertionError("nothing is reached in these tests")


def two_nodes(**fields: object) -> Testbed:
    nodes = (
        Node("n0", "10.0.0.1", 222, 2, "ssh-ed25519 A"),
        Node("n1", "10.0.0.2", 222, 2, "ssh-ed25519 B"),
    )
    settings: dict[str, Any] = {
        "user": "ubuntu",
        "network": "10.0.0.0/24",
        "env": (("NCCL_NET", "gIB"),),
        **fields,
    }
    return Testbed("run", nodes, key_file=Path("/k"), dial=dial, workdir="/w", **settings)


def test_hostfile_lists_address_slots_and_port_of_each_node() -> None:
    assert hostfile(two_nodes().nodes) == "10.0.0.1 slots=2 port=222\n10.0.0.2 slots=2 port=222\n"


def test_mpirun_starts_one_rank_per_slot_and_exports_variables_by_name() -> None:
    argv = mpirun_argv(two_nodes(), ["hostname"], {"A": "1"})
    assert argv[0] == "mpirun"
    assert argv[argv.index("-np") + 1] == "4"
    assert argv[argv.index("--hostfile") + 1] == "/w/hostfile"
    named = [argv[i + 1] for i, part in enumerate(argv) if part == "-x"]
    assert named == ["NCCL_NET", "A"]  # values are nobody's business
    assert argv[argv.index("btl_tcp_if_include") + 1] == "10.0.0.0/24"
    assert argv[-1] == "hostname"
    assert "--allow-run-as-root" not in argv
    assert "--allow-run-as-root" in mpirun_argv(two_nodes(user="root"), ["hostname"], {})
    assert "btl_tcp_if_include" not in mpirun_argv(two_nodes(network=None), ["hostname"], {})


def test_head_is_the_first_remaining_node_after_removal() -> None:
    smaller = two_nodes().without({"n0"})
    assert (smaller.head.name, smaller.world_size) == ("n1", 2)


class FakeProcess:
    """What runs on the head: plays back batches of lines, then leaves with a status."""

    def __init__(self, batches: Iterator[list[str]], status: int | None) -> None:
        self.sent = b""
        self.input_closed = False
        self.received_bytes = 0
        self._batches = batches
        self._status = status

    def send(self, data: bytes) -> None:
        self.sent += data

    def read_lines(self, timeout_s: float) -> list[str] | None:
        batch = next(self._batches, None)
        self.received_bytes += sum(len(line) + 1 for line in batch or ())
        return batch

    def read(self, timeout_s: float) -> bytes | None:
        lines = self.read_lines(timeout_s)
        return None if lines is None else "\n".join(lines).encode()

    def exit_status(self) -> int | None:
        return self._status

    def close_stdin(self) -> None:
        self.input_closed = True

    def close(self) -> None:
        pass


Play = Callable[..., tuple[MpiResult, FakeProcess, str]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Runs mpirun over a head that prints `batches`; the result, the process, and the command it
    was started with.
    """

    def run(
        batches: Iterator[list[str]], status: int | None = 0, **options: Any
    ) -> tuple[MpiResult, FakeProcess, str]:
        process = FakeProcess(batches, status)
        commands: list[str] = []

        def start(head: object, command: str, kind: object) -> FakeProcess:
            commands.append(command)
            return process

        monkeypatch.setattr(mpi, "connected", lambda bed, node, timeout_s: nullcontext())
        monkeypatch.setattr(mpi, "run_command", lambda head, command, **more: CommandResult(0, ""))
        monkeypatch.setattr(mpi, "start_process", start)
        bed = options.pop("bed", two_nodes())
        return mpirun(bed, ["hostname"], timeout_s=60, **options), process, commands[0]

    return run


@pytest.mark.parametrize("status", [124, 125, 127])
def test_any_exit_status_of_a_rank_is_neither_a_timeout_nor_a_failed_start(
    play: Play, status: int
) -> None:
    result, *_ = play(iter([["n0: error while loading shared libraries: libnccl.so.2"]]), status)
    assert (result.exit_status, result.ok, result.timed_out, result.not_started) == (
        status,
        False,
        False,
        None,
    )


@pytest.mark.parametrize("half", ["", "half a li"])
def test_lines_of_the_supervisor_are_not_part_of_the_output(play: Play, half: str) -> None:
    result, *_ = play(iter([["n0"], [f"{half}seatrial-supervisor: time is up"]]), 1)
    assert (result.timed_out, result.exit_status) == (True, None)
    assert result.lines == (("n0", half) if half else ("n0",))


def test_launcher_warnings_and_complaints_of_ended_ranks_are_no_output(play: Play) -> None:
    race = (
        "[n0:00419] plm:rsh: Warning: setpgid(424,424) failed in parent with errno=Permission "
        "denied(13)"
    )
    result, *_ = play(iter([[race, "n0"]]))
    assert result.lines == ("n0",)
    collateral = (
        "[1,1]<stderr>:collective probe: n1 rank 1: no word from rank 0, which keeps the "
        "store of the ranks"
    )
    cut, *_ = play(iter([["n0", "seatrial-supervisor: time is up", collateral]]), 1)
    assert (cut.timed_out, cut.lines) == (True, ("n0",)), (
        "ranks that are ended complain of each other"
    )
    forged, *_ = play(iter([["[1,0]<stdout>:seatrial-supervisor: time is up"]]), 0)
    assert (forged.timed_out, forged.exit_status) == (False, 0)
    absent, *_ = play(
        iter([["seatrial-supervisor: cannot start mpirun: No such file or directory"]]), 1
    )
    assert (absent.not_started, absent.timed_out) == ("mpirun: No such file or directory", False)
    assert absent.cause == "the head node cannot start mpirun: No such file or directory"


def test_a_long_line_that_srun_prints_in_pieces_is_one(play: Play, tmp_path: Path) -> None:
    """Each of 1024 bytes behind a label; other ranks speak between them, and one is cut off by the
    end.
    """
    first, last = "a" * 1022 + "é", "é" * 511 + "b"
    pieces = [
        f"0: {first}",
        "1: short",
        f" 2: {first}",
        f"0: {first}",
        "1: ",
        f"0: {last}",
        "0: next",
    ]
    result, *_ = play(iter([pieces[:3], pieces[3:]]), log_file=tmp_path / "log")
    assert result.lines == ("short", "", first * 2 + last, "next", first)
    assert (tmp_path / "log").read_text().splitlines()[1:] == [
        *("1: short", "1: ", f"0: {first * 2 + last}", "0: next", f" 2: {first}"),
    ]


def test_a_cause_names_the_node_that_mpirun_calls_by_its_address(play: Play) -> None:
    address = two_nodes().nodes[1].address
    line = (
        f"mpirun noticed that process rank 1 with PID 124 on node {address} exited on signal "
        "9 (Killed)."
    )
    result, *_ = play(iter([[line]]), 137)
    assert [(finding.host, finding.rank) for finding in result.findings] == [
        (two_nodes().nodes[1].name, 1)
    ]
    assert str(result.cause).endswith(f" on {two_nodes().nodes[1].name}")


def test_a_connection_that_breaks_is_neither_a_timeout_nor_a_status(play: Play) -> None:
    result, *_ = play(iter([["n0"]]), None)
    assert (result.lost, result.timed_out, result.exit_status, result.ok) == (
        True,
        False,
        None,
        False,
    )
    ended, *_ = play(iter([["n0", "seatrial-supervisor: time is up"]]), None)
    assert (ended.lost, ended.timed_out) == (False, True)


@pytest.mark.parametrize(("cores", "waited_s"), [(2, 41.5), (None, 0.0)])
def test_ranks_are_starved_if_processor_wait_dominates_on_one_machine(
    play: Play, cores: int | None, waited_s: float
) -> None:
    line = "seatrial-supervisor: time is up; 41.5 s of it a process waited for a processor"
    result, *_ = play(iter([["n0", line]]), 1, bed=two_nodes(shared_cores=cores))
    assert (result.timed_out, result.waited_s) == (True, waited_s)
    assert [replace(result, seconds=seconds).starved for seconds in (82, 84)] == [
        cores is not None,
        False,
    ]


def test_cause_of_a_failed_mpirun_names_its_host() -> None:
    lines = ("ssh: connect to host node-731 port 222: Connection refused",)
    assert MpiResult(255, lines, 1.0).cause == "ssh connection refused on node-731"


def test_values_of_variables_are_sent_by_stdin_and_not_on_the_command_line(
    play: Play, tmp_path: Path
) -> None:
    _, process, command = play(iter([["n0"]]), env={"TOKEN": "s3cret"}, log_file=tmp_path / "x.log")
    assert json.loads(process.sent).items() >= {"NCCL_NET": "gIB", "TOKEN": "s3cret"}.items()
    assert "-x TOKEN" in command
    assert "s3cret" not in command + (tmp_path / "x.log").read_text()


def test_log_gets_every_line_at_once_and_memory_keeps_first_and_last_lines(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.remote.follower._MOST_LINES", 3)
    log_file, seen = tmp_path / "logs" / "x.log", []
    lines = [f"line {i}" for i in range(10)]
    result, *_ = play(
        ([line] for line in lines),
        on_line=lambda line: seen.append(log_file.read_text().splitlines()[-1]),
        log_file=log_file,
    )
    assert seen == lines
    assert log_file.read_text().splitlines()[1:] == lines
    assert result.lines == (
        *lines[:3],
        "[4 lines are left out here; the log has them]",
        *lines[-3:],
    )


def test_a_log_does_not_fill_the_disk(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.system.rawlog.MAX_CHARACTERS", 1000)
    play(iter([["x" * 30]] * 50), log_file=tmp_path / "x.log")
    text = (tmp_path / "x.log").read_text()
    assert text.endswith("\n[seatrial: the log ends here, at its bound of 1000 characters]\n")
    assert len(text.partition("\n[seatrial")[0]) == 1000


@pytest.mark.parametrize(("ranks", "slow"), [(4, 0), (4000, 39)])
def test_more_ranks_get_more_time_to_leave(
    play: Play, monkeypatch: pytest.MonkeyPatch, ranks: int, slow: float
) -> None:
    """All is said at once; the input is closed only after three seconds and what so many ranks
    need.
    """
    now = [0.0]
    monkeypatch.setattr("seatrial.remote.follower.time.monotonic", lambda: now[0])
    monkeypatch.setattr(Testbed, "world_size", property(lambda self: ranks))
    closed: list[float] = []
    monkeypatch.setattr(FakeProcess, "close_stdin", lambda self: closed.append(now[0]))

    def batches() -> Iterator[list[str]]:
        yield ["done"]
        while not closed:
            now[0] += 0.5
            yield []
        yield ["seatrial-supervisor: not wanted any more"]

    result, *_ = play(batches(), 1, is_done=lambda line: line == "done")
    assert result.reaped
    assert 3 + slow <= closed[0] <= 5 + slow


@pytest.mark.parametrize("batch", [["x" * 600_000], ["y"] * 2_000], ids=["bytes", "lines"])
def test_flooding_mpirun_is_ended_and_its_output_drained(
    play: Play, batch: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpi, "OUTPUT_BYTES", 2 * 1024**2)
    result, process, _ = play((batch for _ in range(20)), 0)
    ended = (result.ok, result.timed_out, result.lost, result.exit_status)
    assert (result.flooded, ended) == (True, (False, False, False, None))
    assert result.cause == FLOOD
    assert process.input_closed
    assert process.read_lines(0) is None  # so that the next mpirun does not start beside this one
    assert sum(map(len, result.lines)) < 2.5 * 1024**2


def test_output_limit_grows_with_the_number_of_ranks(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Testbed, "world_size", property(lambda self: 1000))
    monkeypatch.setattr(mpi, "OUTPUT_BYTES", 1024)
    # As NCCL_DEBUG=INFO prints
    result, *_ = play(["node INFO " + "x" * 120] * 1000 for _ in range(3))
    assert (result.flooded, result.ok) == (False, True)
    assert mpi.OUTPUT_BYTES_PER_RANK > 40 * 1024, "which it prints of each rank"


def test_output_that_continues_past_the_time_limit_is_a_flood(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("seatrial.remote.follower.time.monotonic", lambda: now[0])

    def batches() -> Iterator[list[str]]:
        for _ in range(100):
            now[0] += 1
            yield ["a row"]

    result, *_ = play(batches(), 0)
    assert result.flooded
    assert 60 < result.seconds < 80


def test_long_lines_are_cut_except_events_of_probes(play: Play) -> None:
    event = '{"event": "summary", "ranks": [' + "0, " * 100_000 + "0]}"
    result, *_ = play(iter([["x" * 100_000, event]]))
    assert [len(line) for line in result.lines] == [16 * 1024, len(event)]


def test_secrets_are_redacted_from_log_callback_and_result(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a line that came in pieces, where the part cut off for its length may hold half of a
    secret.
    """
    monkeypatch.setenv("MY_TOKEN", "s3cr3t-value")
    piece = "x" * (2 * 1024**2) + "y s3cr3t-v"
    heard: list[str] = []
    lines = ["first s3cr3t-value", piece, "alue and on", "last"]
    result, _, _ = play(iter([lines]), log_file=tmp_path / "x.log", on_line=heard.append)
    for text in ("\n".join(heard), "\n".join(result.lines), (tmp_path / "x.log").read_text()):
        assert "s3c" not in text
        assert "alue" not in text
        assert "first ***\n" in text
        assert text.rstrip().endswith("last")


# Who is blamed for output without end.


def flooded(testbed: Testbed, printed: dict[int, int]) -> MpiResult:
    owners = tuple(node.name for node in testbed.nodes for _ in range(node.slots))
    return MpiResult(None, (), 1.0, flooded=True, rank_nodes=owners, printed=printed)


def test_characters_of_a_flood_are_counted_by_rank(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpi, "OUTPUT_BYTES", 1024**2)
    batch = ["[1,0]<stdout>:fine", "[1,1]<stdout>:" + "x" * 60_000]
    result, *_ = play((batch for _ in range(40)), 0)
    assert result.flooded
    assert [(each.name, each.evidence.code) for each in result.flooders] == [
        (result.rank_nodes[1], "output-flood")
    ]


@pytest.mark.parametrize(
    ("printed", "named"),
    [
        ({0: 100, 1: 1_000_000, 2: 100}, ["node-1"]),
        ({2: 600_000, 3: 500_000}, ["node-2"]),
        ({0: 100, 1: 100, 2: 100, 3: 100}, []),
        ({7: 1_000_000}, []),
        ({}, []),
    ],
)
def test_only_a_node_that_prints_most_of_it_is_blamed(
    printed: dict[int, int], named: list[str]
) -> None:
    assert [suspect.name for suspect in flooded(make_testbed(nodes=4), printed).flooders] == named


def test_output_of_all_ranks_of_a_node_is_counted_together() -> None:
    (suspect,) = flooded(make_testbed(nodes=2, gpus=2), {0: 300, 2: 250, 3: 250}).flooders
    assert (suspect.name, suspect.evidence.sentence) == (
        "node-1",
        "output flood: its ranks printed 62 % of all output",
    )


def test_first_failed_daemon_is_the_cause() -> None:
    """mpirun ends the other daemons after it; a failed login is reported by ssh."""
    oldest_first = {
        "b": ["words"],
        "a.status": ["255"],
        "c.status": ["0"],
        "b.status": ["1"],
        "d.status": ["1"],
    }
    assert mpi._first_failed(oldest_first) == "b.status"
    assert mpi._first_failed({"a.status": ["0"]}) is None
