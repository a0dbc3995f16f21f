"""What the command line says of what it cannot take: one line, exit status 2."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from seatrial.flows.serving.by_hand import Unfinished
from seatrial.flows.serving.serve import ServeConfig
from seatrial.history import open_store
from seatrial.model.reason import uncoded
from tests.command_line import command
from tests.unit.history.stored import a_run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("serve", "--port", "99999"),
            "Invalid value for '--port': 99999 is not in the range 1<=x<=65535; see seatrial",
        ),
        (
            ("history", "--limit", "9" * 20),
            f"Invalid value for '--limit': {'9' * 20} is not in the range 1<=x<=1000000",
        ),
        (
            ("report", "r" * 300),
            f"RUN {'r' * 80}: File name too long; give a run's folder, its run.json or its id",
        ),
        (
            ("ssh", "r" * 300, "head"),
            f"run {'r' * 300}: is over, or not from this machine and user; ",
        ),
        (
            ("report", "r1", "--format", "docx"),
            "Invalid value for '--format': 'docx' is not one of 'html', 'pdf', ",
        ),
        (("run",), "Missing argument 'CLUSTER'; see seatrial run --help"),
        (("run", "--suite", "quick"), "Missing argument 'CLUSTER'; see seatrial run --help"),
        (("baseline", "expire"), "Missing argument 'CLUSTER'; see seatrial baseline expire --help"),
        (("run", "a.yaml", "--fast"), "No such option"),
        (("sail",), "No such command 'sail'; see seatrial --help"),
        (
            ("explain", "ssh-refusd"),
            (
                "NAME: 'ssh-refusd' is neither a code nor a verdict, check, metric, unit or "
                "field; nearest: ssh-refused"
            ),
        ),
        (
            ("explain", "platfrom.queue"),
            (
                "NAME: 'platfrom.queue' is neither a code nor a verdict, check, metric, unit "
                "or field; nearest: pl"
            ),
        ),
        (("explain", "\x1b[31m" + "x" * 10_000), "NAME: "),
        *(
            ((*words, "no-such-run"), "RUN no-such-run: neither a folder nor a run of the history")
            for words in (
                ["compare", "no-such-run"],
                ["report"],
                ["bundle"],
                ["rejudge"],
                ["watch"],
            )
        ),
        (("compare", "no-such-run"), "compare: needs two RUNs or more"),
        (
            ("history", "no-such-cluster"),
            "history: no runs of cluster 'no-such-cluster'; clusters with runs: none",
        ),
        (
            ("baseline", "list", "--hardware", "X999"),
            "--hardware X999: unknown; known: cpu, A100-SXM",
        ),
        (("prune",), "prune: needs --older-than AGE (such as 30d), --keep N, or both"),
        (
            ("prune", "--older-than", "30"),
            "--older-than '30': must be a whole number of 1 or more and h, d or w, such as",
        ),
        (("prune", "--older-than", "0d"), "--older-than '0d': must be"),
        (
            ("prune", "--keep", "1", "--runs", "nowhere"),
            "--runs nowhere: No such file or directory; give the folder",
        ),
        (
            ("prune", "--keep", "1", "--slurm-output", "/nowhere"),
            "--slurm-output /nowhere: No such file or directory; give",
        ),
        (
            ("prune", "lab", "--keep", "1", "--slurm-output", "/tmp"),
            "--slurm-output: takes no CLUSTER",
        ),
    ],
)
def test_wrong_arguments_are_one_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), "\x1b" in err) == ("", 1, False)
    assert err.startswith(f"seatrial: {message}")
    assert len(err) < 500


def test_release_refuses_node_before_cluster_and_shows_the_right_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("nodes: 4\nplatform: {kind: slurm}\nisolate: {}\n")
    assert command("release", "n2", str(file)) == 2
    assert (
        capsys.readouterr().err
        == f"seatrial: release: CLUSTER comes before NODE: seatrial release {file} n2\n"
    )


def test_file_name_in_an_archive_cannot_forge_a_line_of_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../x\r\x1b[2Kfake"))
    assert command("verify", str(tmp_path / "b.tar.gz")) == 2
    assert capsys.readouterr().err.endswith(
        "no bundle of `seatrial bundle` (../x [2Kfake: leads out of the bundle)\n"
    )


def test_without_arguments_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command() == 2
    assert "  reap " in capsys.readouterr().err


def test_doctor_json_lists_each_item_and_exits_1_if_one_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = command("doctor", "--json")
    document = json.loads(capsys.readouterr().out)
    assert status == any(row["missing"] for row in document)
    assert {"platform local", "open files", "history"} <= {row["what"] for row in document}


def test_a_cluster_file_names_its_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store() as store:
        store.save(a_run(1), tmp_path)
    file = tmp_path / "mine.yaml"
    file.write_text(f"name: {a_run(1).cluster}\nnodes: 2\nplatform: {{kind: local}}\n")
    assert command("history", str(file)) == 0
    assert a_run(1).run_id in capsys.readouterr().out
    file.write_text("nodes: many\n")
    assert command("history", str(file)) == 2
    assert str(file) in capsys.readouterr().err
    assert command("history", "gone.yaml") == 2
    assert (
        f"no runs of cluster 'gone.yaml'; clusters with runs: {a_run(1).cluster}"
        in capsys.readouterr().err
    )
    assert command("history", f"{'r' * 300}.yaml") == 2  # too long for a file, so it is a name


def test_invalid_history_url_is_refused_before_the_run_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("nodes: 2\nplatform: {kind: local}\n")
    monkeypatch.setattr("seatrial.flows.serving.server.provide_prefect_server", lambda: None)
    monkeypatch.setattr(
        "seatrial.cli.run_by_hand.flow_by_hand", lambda *_, **__: pytest.fail("it was started")
    )
    monkeypatch.setenv("SEATRIAL_HISTORY", "a..b")
    assert command("run", str(file), "--out", str(tmp_path / "out")) == 2
    err = capsys.readouterr().err
    assert err.startswith("seatrial: SEATRIAL_HISTORY is not a database URL; legal: sqlite:")
    assert err.count("\n") == 1


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_run_prints_its_cluster_and_suite_once(
    is_terminal: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("nodes: 2\nplatform: {kind: local}\n")
    monkeypatch.setattr("seatrial.flows.serving.server.provide_prefect_server", lambda: None)
    monkeypatch.setattr(
        "seatrial.cli.run_by_hand.flow_by_hand",
        lambda *_, **__: Unfinished(3, uncoded("the server is gone")),
    )
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    assert command("run", str(file)) == 3
    assert capsys.readouterr().err.count("mine.yaml · quick\n") == 1


@pytest.mark.parametrize(
    ("budget", "seconds"), [("10m", 600.0), ("90", 90.0), ("0", 0.0), ("25h", None), ("-1", None)]
)
def test_budget_option_takes_a_duration_of_24_hours_at_most(
    budget: str,
    seconds: float | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("seatrial.flows.serving.server.provide_prefect_server", lambda: None)
    monkeypatch.setattr(
        "seatrial.cli.run_by_hand.run_by_hand", lambda *_, budget_s, **__: asked.append(budget_s)
    )
    assert command("run", "a.yaml", f"--budget={budget}") == (2 if seconds is None else 0)
    assert asked == ([] if seconds is None else [seconds])
    assert ("a time of 24h at most" in capsys.readouterr().err) == (seconds is None)


def test_a_cluster_file_that_is_given_twice_is_served_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[ServeConfig] = []
    monkeypatch.setattr(
        "seatrial.flows.serving.serve.serve", lambda site, host, port: served.append(site)
    )
    monkeypatch.chdir(tmp_path)
    assert command("serve", "b.yaml", "a.yaml", "./b.yaml", str(tmp_path / "a.yaml")) == 0
    assert [site.clusters for site in served] == [(f"{tmp_path}/b.yaml", f"{tmp_path}/a.yaml")]


@pytest.mark.parametrize("closed", ["", ">&-", "<&- >&- 2>&-"])
def test_exit_status_stays_the_verdict_if_nobody_reads_the_output(closed: str) -> None:
    logs = Path(__file__).parents[1] / "golden" / "nccl-logs"
    log = logs / "wh8_h100_g4_allgather_new.log"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m seatrial judge "$1" {closed}', sys.executable, str(log)],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
