"""The check `storage` on real nodes, which share a real folder: what it measures, whom it names,
what it leaves.
"""

import shutil
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.checks.contract import CheckContext
from seatrial.checks.storage.check import Storage, storage
from seatrial.model.errors import MissingError
from seatrial.model.result import Check
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.command import run_command
from seatrial.remote.ssh import connected
from tests.integration.conftest import Up
from tests.suspects import suspect_names

pytestmark = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")

SHARED = ["node-0", "node-1", "node-2"]
Liar = Callable[[Testbed, str], Testbed]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that all nodes share; nothing may be left in it."""
    folder = tmp_path / "shared"
    folder.mkdir()
    yield folder
    deadline = time.monotonic() + 60
    # A node that was given up removes its own by itself
    while any(folder.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(folder.iterdir()) == []


@pytest.fixture
def liar(tmp_path: Path) -> Liar:
    """A testbed whose node-1 pipes what storage.py prints through a command, or prints something
    else.
    """

    def build(testbed: Testbed, instead: str) -> Testbed:
        python = tmp_path / "python"
        case = f'case "$2" in *storage.py) {sys.executable} "$@" | {instead}; exit;; esac'
        python.write_text(
            f'#!/bin/sh\n[ "$(uname -n)" = node-1 ] && {case}\nexec {sys.executable} "$@"\n'
        )
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        return replace(testbed, python=str(python))

    return build


def checked(up: Up, path: Path | str) -> Check:
    run, testbed = up
    section = Storage(paths=(str(path),), bytes=16 << 20, seconds=1, files=50, timeout_s=10)
    suite = run.suite.model_copy(update={"storage": section})
    return storage(CheckContext(replace(run, suite=suite), testbed)).check


def test_nodes_that_share_a_folder_agree(shared: Up, folder: Path) -> None:
    check = checked(shared, folder)
    assert (check.verdict, check.reason.sentence) == (
        Verdict.PASS,
        f"3 nodes agree on what they read from {folder}",
    )
    of_nodes = Counter(m.metric for m in check.measurements if m.subject.kind == "node")
    assert set(of_nodes) == {"storage_visible", "storage_files", "storage_write", "storage_read"}
    assert set(of_nodes.values()) == {3}
    curve = [
        m.conditions["nodes"]
        for m in check.measurements
        if m.metric == "storage_write" and m.subject.nodes == ()
    ]
    assert curve == [1, 2, 3]
    alone = next(m for m in check.measurements if m.metric == "storage_save")
    assert (alone.unit, alone.conditions["path"]) == ("GB/s", str(folder))
    assert all(m.value > 0 for m in check.measurements)


def test_nodes_that_share_an_object_store_agree(shared: Up, folder: Path) -> None:
    check = checked(shared, f"file://{folder}")
    assert check.verdict is Verdict.PASS, check.reason
    assert {m.metric for m in check.measurements} == {
        "storage_visible", "storage_files", "storage_save", "storage_load"
    }  # fmt: skip
    assert {m.conditions["filesystem"] for m in check.measurements} == {"file"}


def test_a_node_that_reads_another_object_store_is_named(shared: Up, folder: Path) -> None:
    with mounted_otherwise(shared[1], 1, folder):
        check = checked(shared, f"file://{folder}")
    assert {(each.evidence.code, each.name) for each in check.suspects} == {
        ("storage-not-seen", "node-1")
    }


def test_missing_object_store_package_is_named_with_what_to_install(shared: Up) -> None:
    with pytest.raises(
        MissingError, match=r"adlfs is missing on node-0, node-1.*install package adlfs"
    ):
        checked(shared, "abfs://container/folder")


@contextmanager
def mounted_otherwise(testbed: Testbed, node: int, folder: Path) -> Iterator[None]:
    """Something else is mounted on one node."""

    def run(command: str) -> None:
        with connected(testbed, testbed.nodes[node], 30) as transport:
            done = run_command(transport, command, timeout_s=30)
        assert done.exit_status == 0, done.output

    run(f"mount -t tmpfs tmpfs {folder}")
    try:
        yield
    finally:
        run(f"umount -l {folder}")


def test_a_node_that_has_something_else_mounted_is_named(shared: Up, folder: Path) -> None:
    with mounted_otherwise(shared[1], 1, folder):
        check = checked(shared, folder)
    assert check.verdict is Verdict.FAIL
    assert {(each.evidence.code, each.name) for each in check.suspects} == {
        ("storage-not-seen", "node-1")
    }
    assert "node-1 did not see within 1 s what node-0 wrote: no such file" in check.reason.sentence


@pytest.mark.parametrize(
    ("instead", "code", "verdict", "suspects"),
    [
        (
            """sed -u 's/"locked": true/"locked": false/'""",
            "storage-lock-ignored",
            Verdict.FAIL,
            [],  # it may be the node that holds the lock, or the one that got it
        ),
        (
            """sed -u 's/"wrong": ""/"wrong": "block 7 is not what was written"/'""",
            "storage-wrong",
            Verdict.CORRUPT,
            ["node-1"],
        ),
        ("""sed -u 's/"bytes": [0-9]*/"error": "[Errno 28] No space left on device"/'""",
         "storage-full", Verdict.INCONCLUSIVE, []),
        ("""sed -u 's/"seconds": [0-9.]*/"seconds": 1e999/'""", "storage-failed", Verdict.FAIL, ["node-1"]),
        ("cat /dev/zero", "storage-failed", Verdict.FAIL, ["node-1"]),
    ],
)  # fmt: skip
def test_verdict_and_suspects_of_a_node_whose_probe_answers_wrongly(
    shared: Up,
    folder: Path,
    liar: Liar,
    instead: str,
    code: str,
    verdict: Verdict,
    suspects: list[str],
) -> None:
    run, testbed = shared
    check = checked((run, liar(testbed, instead)), folder)
    assert (check.verdict, check.reason.code) == (verdict, code), check.reason
    assert sorted(set(suspect_names(check))) == suspects
    assert check.reason.sentence.isprintable() and len(check.reason.sentence) < 2000


def test_a_node_without_fio_is_named_and_nothing_is_run(
    shared: Up, folder: Path, liar: Liar
) -> None:
    run, testbed = shared
    with pytest.raises(MissingError, match="fio is missing on node-1: install package fio"):
        checked((run, liar(testbed, """sed -u 's/"lacks": ""/"lacks": "fio"/'""")), folder)


def test_a_folder_that_no_node_has_names_no_node(shared: Up, folder: Path) -> None:
    check = checked(shared, folder / "missing")
    assert (check.verdict, check.suspects, check.measurements) == (Verdict.FAIL, (), ())
    assert "No such file or directory" in check.reason.sentence
