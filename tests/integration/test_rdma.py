"""The check `rdma` on real nodes: perftest's own programs, and a stand-in that sends over TCP where
RDMA is missing.
"""

import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.contract import CheckContext
from seatrial.checks.rdma.check import rdma
from seatrial.checks.rdma.section import Rdma
from seatrial.localize.localization import localize
from seatrial.model.errors import MissingError
from seatrial.model.result import Check
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.command import run_command
from seatrial.remote.ssh import connected
from seatrial.runs.past_pairs import link_test
from tests.integration.conftest import Up

STAND_IN = Path(__file__).parents[1] / "perftest_stand_in.py"
PORTS = (18_515, 18_516)  # of the rails
NAMES = ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the stand-in under the names of perftest's programs."""
    folder = tmp_path / "perftest"
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_text(f"#!{sys.executable} -S\n{STAND_IN.read_text()}")
        (folder / name).chmod(0o700)
    return folder


def checked(up: Up, folder: Path | str, **fields: Any) -> Check:
    run, testbed = up
    usual: dict[str, Any] = {
        "devices": ("mlx5_0", "mlx5_1"),
        "seconds": 1,
        "timeout_s": 30,
        "message_bytes": 1 << 16,
    }
    section = Rdma.model_validate({**usual, "folder": str(folder), **fields})
    suite = run.suite.model_copy(update={"rdma": section})
    return rdma(CheckContext(replace(run, suite=suite), testbed)).check


def on(testbed: Testbed, node: int, *commands: str) -> None:
    with connected(testbed, testbed.nodes[node], 30) as transport:
        for command in commands:
            done = run_command(transport, command, timeout_s=30)
            assert done.exit_status == 0, f"{command}: {done.output}"


@contextmanager
def shaped(testbed: Testbed, rates: Mapping[tuple[int, int], str]) -> Iterator[None]:
    """Rails of a steady rate: what each node sends from or to their TCP ports; `rates` are others
    by node and port.
    """
    device = "$(ip -o link | sed -n 's/^[0-9]*: \\([^@:]*\\).*/\\1/p' | grep -v '^lo$' | head -n 1)"
    match = "tc filter add dev {0} parent 1: protocol ip u32 match ip {1} {2} 0xffff flowid 1:{3}"
    for node in range(len(testbed.nodes)):
        commands = [f"tc qdisc replace dev {device} root handle 1: htb"]
        for number, port in enumerate(PORTS, start=1):
            rate = rates.get((node, port), "200mbit")
            commands.append(
                f"tc class add dev {device} parent 1: classid 1:{number} htb rate {rate}"
            )
            commands += [match.format(device, side, port, number) for side in ("dport", "sport")]
        on(testbed, node, *commands)
    try:
        yield
    finally:
        for node in range(len(testbed.nodes)):
            on(testbed, node, f"tc qdisc del dev {device} root")


def test_every_rail_is_measured_alone_and_beside_the_others(shared: Up, folder: Path) -> None:
    check = checked(shared, folder, programs=("ib_write_bw", "ib_write_lat"))
    assert (check.verdict, check.reason.sentence) == (Verdict.PASS, "1 pair of nodes on 2 rails")
    bandwidth = [m for m in check.measurements if m.metric == "rdma_bandwidth"]
    seen = {
        (m.conditions["rail"], m.conditions["rails_at_once"], m.conditions["way"])
        for m in bandwidth
    }
    assert seen == set(product(("mlx5_0", "mlx5_1"), (1, 2), ("out", "in", "both")))
    assert {m.metric for m in check.measurements} == {"rdma_bandwidth", "rdma_latency"}
    assert {m.conditions["memory"] for m in check.measurements} == {"host"}


@pytest.mark.slow
def test_a_slow_rail_is_located(shared: Up, folder: Path) -> None:
    with shaped(shared[1], {(1, PORTS[1]): "20mbit"}):
        check = checked(shared, folder, rounds=3, programs=("ib_write_bw",))
    tests = [test for m in check.measurements if (test := link_test("run-1", m, (), 1.0, ""))]
    both_ways = [test for test in tests if "way=both" in test.conditions]
    assert len({test.nodes for test in both_ways}) == 3
    (suspect,) = localize(both_ways).suspects
    assert (suspect.kind, suspect.name) == ("gpu", "node-1/mlx5_1"), suspect


@pytest.mark.parametrize(
    ("instead", "code", "verdict"),
    [
        ('echo "Couldn\'t connect to 10.0.0.1:18515"; exit 1', "rdma-failed", Verdict.FAIL),
        ("printf '\\033[2J oops\\n'; exit 3", "rdma-failed", Verdict.FAIL),
        ("exec yes", "rdma-failed", Verdict.FAIL),
        (
            '"$0.real" "$@"; echo \'VALIDATION: FAILED - 3 error(s), first at QP 1\'',
            "rdma-wrong",
            Verdict.CORRUPT,
        ),
    ],
)
def test_an_error_names_the_pair_and_the_rail(
    shared: Up, folder: Path, instead: str, code: str, verdict: Verdict
) -> None:
    program = folder / "ib_write_bw"
    program.rename(folder / "ib_write_bw.real")
    (folder / "ib_write_bw").write_text(f'#!/bin/sh\ncase "$*" in *--help*|*-d*mlx5_0*) ;; *) {instead};\nexit;; esac\n'
                                        'exec "$0.real" "$@"\n')  # fmt: skip
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (folder / "ib_write_bw.real").write_text((folder / "ib_write_bw.real").read_text().replace(
        "os.path.basename(sys.argv[0])", '"ib_write_bw"'))  # fmt: skip
    check = checked(shared, folder, programs=("ib_write_bw",), timeout_s=10)
    assert (check.verdict, check.reason.code) == (verdict, code), check.reason
    assert [suspect.kind for suspect in check.suspects] == ["link"]
    assert "mlx5_1" in check.reason.sentence and check.reason.sentence.isprintable()
    assert {m.conditions["rail"] for m in check.measurements} >= {"mlx5_0"}


def test_perftest_itself_says_that_there_is_no_device(shared: Up) -> None:
    if shutil.which("ib_write_bw") is None:
        pytest.skip("perftest is not installed")
    check = checked(shared, "", programs=("ib_write_bw",))
    assert (check.verdict, check.reason.code, check.measurements) == (
        Verdict.FAIL,
        "rdma-failed",
        (),
    )


def test_without_perftest_or_devices_nothing_is_run(
    shared: Up, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        MissingError,
        match="ib_write_bw is missing on node-0, node-1, node-2: install package perftest",
    ):
        checked(shared, tmp_path / "missing")
    with pytest.raises(MissingError, match="no RDMA device is up on most nodes"):
        checked(shared, folder, devices=())
