"""The command `seatrial judge` on logs and folders: its exit status and what it prints."""

import gzip
import json
from pathlib import Path

import pytest

from seatrial.logs.cluster import LogsConfig
from seatrial.logs.judge import Log, judge_logs
from seatrial.model.verdict import Verdict
from tests.command_line import command
from tests.unit.judge_traps.sweeplogs import H100, HEALTHY, log, log_text


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
def test_exit_status_and_last_line_follow_the_verdict(
    text: str, status: int, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sweep.log").write_text(text)
    flags = ("--hardware", "H100-SXM", "--nodes", "1", "--gpus-per-node", "8")
    assert run(str(tmp_path / "sweep.log"), *flags, "--json") == status
    document = json.loads(capsys.readouterr().out)
    outcome = {"verdict", "reason", "code", "next_step", "findings"}
    assert set(document) == {
        *outcome,
        "judged",
        "numbers",
        "judgements",
        "measurements",
        "not_judged",
    }
    assert document["verdict"] == verdict
    assert run(str(tmp_path / "sweep.log"), *flags) == status
    assert capsys.readouterr().out.splitlines()[-1] == f"{verdict}: {document['reason']}"


def test_logs_of_single_nodes_are_for_localize(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of four nodes is 13 % slower than the others, which the catalog's tolerance lets pass."""
    for node, factor in enumerate((1.0, 1.0, 0.87, 1.0)):
        text = log_text([factor * value for value in HEALTHY]).replace("node-0", f"node-{node}")
        (tmp_path / f"node-{node}.log").write_text(text)
    flags = ("--hardware", "H100-SXM", "--nodes", "1")
    assert run(str(tmp_path / "node-0.log"), *flags) == 0
    assert "seatrial localize" not in capsys.readouterr().out
    assert run(str(tmp_path), *flags) == 0
    assert "`seatrial localize LOGS` names the part that is slow" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such.log", "--hardware", "H100-SXM", "--nodes", "1"], "cannot read 'no-such.log'"),
        (["{empty}", "--hardware", "H100-SXM", "--nodes", "1"], "no nccl-tests output found"),
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


ASSERTIONS = "NVRM: nvAssertFailedNoLog: Assertion failed: 0 @ osapi.c:1688"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (f"Nov 24 22:57:55 node-0 kernel: [142500.501070] {ASSERTIONS}\n", "kernel"),
        (f"[142500.501070] {ASSERTIONS}\n", "kernel"),
        ("[    2.1] mlx5_core 0000:17:00.0: firmware version: 28.39.1002\n", "kernel"),
        (
            "INFO found nccl\nnode-0:561:561 [0] NCCL INFO comm 0x14 rank 0 nranks 2 - Init START\n",
            "NCCL",
        ),
        ("[2020-12-14T08:59:01.890] launch task 63532.0 request from UID:1\n", "Slurm"),
        ("Jan 05 14:44:41 node-0 systemd[1]: Started nvidia-persistenced.service\n", "system"),
    ],
)
def test_a_log_that_is_known_and_names_no_failure_is_inconclusive(
    text: str, program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node").write_text(text)
    assert run(str(tmp_path / "node")) == 3
    assert (
        f"inconclusive: {program} log without a line that names a failure"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    "text", ["rack 7\n", "[1745499308.85] [node-0:760:0] ucp.c:1 UCX INFO\n", "a kernel: of corn\n"]
)
def test_text_without_known_lines_is_bad_input(text: str, tmp_path: Path) -> None:
    (tmp_path / "node").write_text(text)
    assert run(str(tmp_path / "node")) == 2


def test_misspelt_hardware_is_bad_input_with_the_nearest_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text(log_text(HEALTHY))
    assert run(str(tmp_path / "log"), "--hardware", "h10-sxm", "--nodes", "1") == 2
    error = capsys.readouterr().err
    assert "--hardware: 'h10-sxm' is not in the catalog; nearest: H100-SXM" in error
    assert run(str(tmp_path / "log"), "--hardware", "\x1b[2J", "--nodes", "1") == 2
    assert "known: cpu, A100-SXM" in capsys.readouterr().err


def test_hardware_without_reference_values_passes_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text(log_text(HEALTHY))
    assert run(str(tmp_path / "log"), "--hardware", "other", "--nodes", "1") == 0
    assert (
        "no comparable reference: hardware other is not in the catalog" in capsys.readouterr().out
    )


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
    return tmp_path


def test_a_log_of_each_node_by_itself_is_judged_as_one_of_a_node(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("judge", str(folder), *PAIR_OF_8) == 0, capsys.readouterr().out
    measured = json.loads(capsys.readouterr().out)["judgements"]
    assert {each["conditions"]["log"] for each in measured} == {
        "all_reduce",
        "intra-node-0",
        "intra-node-1",
    }
    slow = log_text([value / 3 for value in HEALTHY], 8, before=INSIDE)
    (folder / "intra-node-0.log").write_text(slow)
    assert command("judge", str(folder), *PAIR_OF_8) == 1


def test_empty_log_or_only_logs_of_single_nodes_do_not_pass(folder: Path) -> None:
    (folder / "network.log").write_text("")
    assert command("judge", str(folder), *PAIR_OF_8) == 3
    for name in ("network.log", "all_reduce.log"):
        (folder / name).unlink()
    assert command("judge", str(folder), *PAIR_OF_8) in (1, 3)


def test_a_folder_without_logs_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("judge", str(tmp_path), *PAIR_OF_8) == 2
    assert "a folder needs 1 to 10,000 files" in capsys.readouterr().err


GB200 = LogsConfig("GB200-NVL72", 2, 4, "MNNVL")


@pytest.mark.parametrize(
    ("switch", "asked"),
    [
        ("NCCL_MNNVL_ENABLE=0", GB200),
        ("node-0:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.", H100),
        (
            "mpirun -x NCCL_IB_DISABLE=1 all_reduce_perf -b 8",
            LogsConfig("H100-SXM", 2, 4, "IB-8x400G"),
        ),
        ("NCCL_NET=Socket", LogsConfig("H100-SXM", 2, 4, "IB-8x400G")),
    ],
)
def test_control_as_fast_as_the_normal_run_is_inconclusive(switch: str, asked: LogsConfig) -> None:
    """A published validation passed with 837.76 GB/s without NVLink and 838.07 GB/s with it."""
    on = log("on", log_text([837.76] * 5 if asked is GB200 else HEALTHY, 8, asked.nodes or 1))
    off = log(
        "off", log_text([838.07] * 5 if asked is GB200 else HEALTHY, 8, asked.nodes or 1, [switch])
    )
    judgement = judge_logs([on, off], asked)
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert "off is no control" in judgement.reason.sentence
    assert "so the switch did nothing or the link is not used" in judgement.reason.sentence


def test_a_control_that_is_slower_is_neither_flagged_nor_blamed() -> None:
    on = log("on", log_text(HEALTHY))
    off = log("off", log_text([value / 20 for value in HEALTHY], before=["NCCL_P2P_DISABLE=1"]))
    judgement = judge_logs([on, off], H100)
    assert judgement.verdict is Verdict.PASS
    assert "with NCCL_P2P_DISABLE=1" in judgement.reason.sentence
    assert "a control arm, held against nothing" in judgement.reason.sentence


@pytest.mark.parametrize(
    ("switch", "asked", "ranks"),
    [
        ("NCCL_IB_DISABLE=1", H100, 8),  # one node has no network to miss
        # A GPU alone has no neighbour
        ("NCCL_P2P_DISABLE=1", LogsConfig("H100-SXM", 2, 1, "IB-1x400G"), 2),
        ("NCCL_IB_DISABLE=0", LogsConfig("H100-SXM", 2, 4, "IB-8x400G"), 8),
    ],
)
def test_log_with_a_switch_that_need_not_slow_it_is_judged_normally(
    switch: str, asked: LogsConfig, ranks: int
) -> None:
    values = HEALTHY if ranks == 8 else [value / 10 for value in HEALTHY]
    pair = [
        log("a", log_text(values, ranks, asked.nodes or 1)),
        log("b", log_text(values, ranks, asked.nodes or 1, [switch])),
    ]
    assert judge_logs(pair, asked).verdict is Verdict.PASS


def test_empty_log_beside_a_healthy_one_is_inconclusive() -> None:
    judgement = judge_logs([log("a", log_text(HEALTHY)), Log("b", ())], H100)
    assert (judgement.verdict, judgement.reason.sentence) == (
        Verdict.INCONCLUSIVE,
        "b: no nccl-tests output in it",
    )


def test_the_worst_log_decides_and_every_judgement_names_its_log() -> None:
    slow = log_text([value / 4 for value in HEALTHY])
    judgement = judge_logs([log("a", log_text(HEALTHY)), log("b", slow)], H100)
    assert judgement.verdict is Verdict.FAIL
    assert judgement.reason.sentence.startswith(
        "b: all_reduce busbw_plateau 119 GB/s, catalog 480 GB/s (75 % less)"
    )
    assert {j.measurement.conditions["log"] for c in judgement.checks for j in c.judgements} == {
        "a",
        "b",
    }


def test_programs_that_each_ran_on_one_node_are_named_by_their_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = {"node-a": HEALTHY, "node-b": [value / 2.5 for value in HEALTHY]}
    lines = [
        f"{label}: {line.replace('node-0', node)}"
        for label, (node, busbw) in enumerate(rates.items())
        for line in log_text(busbw).splitlines()
    ]
    file = tmp_path / "each.log"
    file.write_text("\n".join(lines) + "\n")
    assert command("judge", str(file), "--hardware", "H100", "--nodes", "1") == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("fail: each#2 on node-b: ")


def test_a_compressed_log_is_said_to_be_compressed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = tmp_path / "all_reduce.log.gz"
    packed.write_bytes(gzip.compress(log_text(HEALTHY).encode()))
    for name in ("judge", "parse"):
        assert command(name, str(packed)) == 2
        assert f"{packed} is compressed; decompress it first" in capsys.readouterr().err
    (tmp_path / "other.log").write_text(log_text(HEALTHY))
    command("judge", str(tmp_path))
    assert "all_reduce.log.gz" in capsys.readouterr().out
    assert command("judge", str(packed), str(tmp_path / "other.log")) == 3
    out = capsys.readouterr().out
    assert f"inconclusive: all_reduce.log: {packed} is compressed; decompress it first" in out
    assert "seatrial explain log-compressed" in out


def test_what_is_legal_names_no_format_of_rccl_tests_that_is_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """rccl-tests -Z csv and -Z json."""
    (tmp_path / "rccl.csv").write_text("size,type,busBw\n8,float,0.1\n")
    assert command("judge", str(tmp_path / "rccl.csv")) == 2
    legal = "the text that an nccl-tests or rccl-tests program prints, a file of nccl-tests -J,"
    assert legal in capsys.readouterr().err
