"""The folder that the script for Slurm leaves, judged in one call."""

import json
from pathlib import Path

import pytest

from tests.command_line import command
from tests.unit.judge_traps.sweeplogs import HEALTHY, log_text

PAIR_OF_8 = ("--hardware", "H100-SXM", "--nodes", "2", "--gpus-per-node", "8", "--json")
INSIDE = ("NCCL_P2P_LEVEL=NVL", "NCCL_SHM_DISABLE=1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "all_reduce.log").write_text(log_text((330.0, 350.0, 360.0, 370.0, 375.0), 16, 2))
    for node in ("node-0", "node-1"):
        (tmp_path / f"intra-{node}.log").write_text(
            log_text(HEALTHY, 8, before=INSIDE).replace("on node-0", f"on {node}")
        )
    (tmp_path / "hostnames.log").write_text("node-0\nnode-1\n")
    (tmp_path / "training.log").write_text('{"event": "step"}\n')
    return tmp_path


def test_a_log_of_each_node_by_itself_is_judged_as_one_of_a_node(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("judge", str(folder), *PAIR_OF_8) == 0, capsys.readouterr().out
    measured = json.loads(capsys.readouterr().out)["judgements"]
    assert {each["conditions"]["log"] for each in measured} == {"all_reduce", "intra-node-0", "intra-node-1"}
    slow = log_text([value / 3 for value in HEALTHY], 8, before=INSIDE)
    (folder / "intra-node-0.log").write_text(slow)
    assert command("judge", str(folder), *PAIR_OF_8) == 1


def test_a_log_that_holds_nothing_and_logs_of_single_nodes_alone_are_no_pass(folder: Path) -> None:
    (folder / "network.log").write_text("")
    assert command("judge", str(folder), *PAIR_OF_8) == 3
    for name in ("network.log", "all_reduce.log"):
        (folder / name).unlink()
    assert command("judge", str(folder), *PAIR_OF_8) in (1, 3)


def test_a_folder_without_logs_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("judge", str(tmp_path), *PAIR_OF_8) == 2
    assert "a folder needs 1 to 10,000 files NAME.log" in capsys.readouterr().err
