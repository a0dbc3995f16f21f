"""What mpirun is called with."""

import socket
from pathlib import Path

from seatrial.mpi import hostfile, mpirun_argv
from seatrial.testbed import Node, Testbed


def dial(node: Node, timeout_s: float) -> socket.socket:
    raise AssertionError("nothing is reached in these tests")


def testbed(**fields: object) -> Testbed:
    nodes = (Node("n0", "10.0.0.1", 222, 2, "ssh-ed25519 A"), Node("n1", "10.0.0.2", 222, 2, "ssh-ed25519 B"))
    given = {"user": "ubuntu", "network": "10.0.0.0/24", "env": (("NCCL_NET", "gIB"),), **fields}
    return Testbed("run", nodes, key_file=Path("/k"), dial=dial, workdir="/w", **given)  # type: ignore[arg-type]


def test_the_hostfile_says_slots_and_port_by_address() -> None:
    assert hostfile(testbed().nodes) == "10.0.0.1 slots=2 port=222\n10.0.0.2 slots=2 port=222\n"


def test_one_rank_per_slot_with_the_testbeds_environment() -> None:
    argv = mpirun_argv(testbed(), ["hostname"], {"A": "1"})
    assert argv[0] == "mpirun"
    assert argv[argv.index("-np") + 1] == "4"
    assert argv[argv.index("--hostfile") + 1] == "/w/hostfile"
    assert [argv[i + 1] for i, part in enumerate(argv) if part == "-x"] == ["NCCL_NET=gIB", "A=1"]
    assert argv[argv.index("btl_tcp_if_include") + 1] == "10.0.0.0/24"
    assert argv[-1] == "hostname"
    assert "--allow-run-as-root" not in argv


def test_root_says_that_it_is_meant() -> None:
    assert "--allow-run-as-root" in mpirun_argv(testbed(user="root"), ["hostname"], {})


def test_without_a_network_mpi_chooses() -> None:
    argv = mpirun_argv(testbed(network=None), ["hostname"], {})
    assert "btl_tcp_if_include" not in argv


def test_taking_nodes_out_moves_the_head() -> None:
    smaller = testbed().without({"n0"})
    assert (smaller.head.name, smaller.world_size) == ("n1", 2)
