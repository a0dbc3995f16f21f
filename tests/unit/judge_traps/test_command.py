"""The command `seatrial judge`: its exit status and what it prints."""

import json
from pathlib import Path

import pytest

from tests.command_line import command
from tests.unit.judge_traps.sweeplogs import HEALTHY, log_text


def run(*arguments: str) -> int:
    """The exit status of `seatrial judge` with these arguments."""
    return command("judge", *arguments)


@pytest.mark.parametrize(
    ("text", "status", "verdict"),
    [
        (log_text(HEALTHY), 0, "pass"),
        (log_text([value / 4 for value in HEALTHY]), 1, "fail"),
        (log_text([value * 0.8 for value in HEALTHY]), 1, "degraded"),
        (log_text(HEALTHY, wrong=1), 1, "corrupt"),
        (log_text(HEALTHY)[:-120], 3, "inconclusive"),
        ("bash: line 1: all_reduce_perf: command not found\n", 3, "not_run"),
    ],
)
def test_the_exit_status_is_the_verdicts(
    text: str, status: int, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sweep.log").write_text(text)
    flags = ("--hardware", "H100-SXM", "--nodes", "1", "--gpus-per-node", "8")
    assert run(str(tmp_path / "sweep.log"), *flags, "--json") == status
    document = json.loads(capsys.readouterr().out)
    outcome = {"verdict", "reason", "code", "next_step", "findings"}
    assert set(document) == {*outcome, "judged", "numbers", "judgements", "measurements"}
    assert document["verdict"] == verdict
    assert run(str(tmp_path / "sweep.log"), *flags) == status
    assert capsys.readouterr().out.splitlines()[-1] == f"{verdict}: {document['reason']}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such.log", "--hardware", "H100-SXM", "--nodes", "1"], "cannot read 'no-such.log'"),
        (["{empty}", "--hardware", "H100-SXM", "--nodes", "1"], "no nccl-tests output found"),
        (["{empty}", "--hardware", "H100-SXM"], "--nodes"),
        (["{empty}", "--nodes", "1"], "--hardware"),
        (["{empty}", "--hardware", "H100-SXM", "--nodes", "0"], "--nodes"),
        (["--hardware", "H100-SXM", "--nodes", "1"], "LOGS"),
    ],
)
def test_bad_input_is_status_2(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").write_text("")
    assert run(*(argument.format(empty=tmp_path / "empty") for argument in arguments)) == 2
    assert message in capsys.readouterr().err


def test_a_typo_in_the_hardware_is_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text(log_text(HEALTHY))
    assert run(str(tmp_path / "log"), "--hardware", "h10-sxm", "--nodes", "1") == 2
    error = capsys.readouterr().err
    assert "--hardware: 'h10-sxm' is not in the catalog; nearest: H100-SXM" in error
    assert run(str(tmp_path / "log"), "--hardware", "\x1b[2J", "--nodes", "1") == 2
    assert "known: cpu, A100-SXM" in capsys.readouterr().err


def test_hardware_without_reference_values_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text(log_text(HEALTHY))
    assert run(str(tmp_path / "log"), "--hardware", "other", "--nodes", "1") == 0
    assert "no comparable reference: hardware other is not in the catalog" in capsys.readouterr().out
