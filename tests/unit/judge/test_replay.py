"""`seatrial replay`: which readings it takes, in which order runs are judged, and what it says of a
bad file.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from seatrial.model.errors import InputError
from seatrial.model.verdict import Verdict
from seatrial.runs.replay import ReplayedRun, replay
from seatrial.runs.replay_rows import read_rows
from seatrial.tasks.record import measurements_csv
from tests import samples
from tests.command_line import command
from tests.unit.judge.readings import Fleet, Series, names, of_nodes, slow

LAB = Series("busbw_plateau", "cluster", ["lab"], 380.0, "GB/s", 0.01)
HEAD = "run_id,metric,subject_kind,subject,value,unit"


def replayed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The exit status of `seatrial replay`, and what it prints on standard output and standard
    error.
    """
    return command("replay", *arguments), *capsys.readouterr()


def after_healthy_runs(*values: float) -> ReplayedRun:
    """One series, twelve runs around 380, and then these readings."""
    fleet = Fleet(1)
    fleet.run(LAB, readings=4, times=12)
    fleet.run(LAB, readings=0)
    fleet.read(LAB, "lab", *values)
    return fleet.tonight()


# Readings


def test_replay_takes_a_second_reading_only_if_the_first_is_doubtful() -> None:
    run = after_healthy_runs(380.0, 1.0, 1.0, 1.0)
    assert (run.verdict, run.readings) == (Verdict.PASS, 1)


def test_single_low_reading_is_cleared_by_the_next_readings() -> None:
    run = after_healthy_runs(190.0, 381.0, 379.0, 1.0)
    assert (run.verdict, run.readings) == (Verdict.PASS, 3)


def test_low_readings_are_repeated_until_the_loss_is_certain() -> None:
    run = after_healthy_runs(*[190.0] * 30)
    assert run.verdict in (Verdict.DEGRADED, Verdict.FAIL)
    assert 3 <= run.readings < 10
    assert f"in {run.readings} of {run.readings} measurements" in run.reason.sentence


def test_replay_takes_no_more_readings_than_the_file_has() -> None:
    assert after_healthy_runs(190.0).readings == 1


def test_a_node_in_doubt_is_read_again_and_the_others_are_not() -> None:
    fleet = Fleet(2)
    fleet.run(of_nodes(128, noise=0.005), times=12)
    fleet.run(of_nodes(128, noise=0.005), factor=slow("node-4", by=0.3))
    run = fleet.tonight()
    assert names(run) == {("node", "node-4")}
    assert 128 + 2 <= run.readings < 2 * 128


# Runs


def nightly(count: int = 6, **columns: str) -> pd.DataFrame:
    """One series of a cluster, slow by a half in the last two runs."""
    rng = np.random.default_rng(3)
    rows = []
    for run in range(count):
        usual = 380.0 if run < count - 2 else 190.0
        at = {"run_id": f"run-{run}", "started": f"2026-11-{run + 1:02}T01:00:00+00:00", **columns}
        head = {
            **at,
            "metric": "busbw_plateau",
            "subject_kind": "cluster",
            "subject": "lab",
            "unit": "GB/s",
        }
        rows += [{**head, "value": usual * np.exp(0.01 * rng.standard_normal())} for _ in range(12)]
    return pd.DataFrame(rows)


def verdicts(runs: Sequence[ReplayedRun]) -> dict[str, Verdict]:
    return {run.run_id: run.verdict for run in runs}


def test_runs_are_judged_in_order_of_their_start_whatever_the_order_of_rows() -> None:
    rows = nightly(10)
    turned = pd.concat([part for _, part in reversed(list(rows.groupby("run_id", sort=False)))])
    assert verdicts(replay(turned)) == verdicts(replay(rows))
    assert [run.run_id for run in replay(turned)] == [f"run-{number}" for number in range(10)]
    assert list(verdicts(replay(rows)).values())[-3:] == [
        Verdict.PASS,
        Verdict.DEGRADED,
        Verdict.DEGRADED,
    ]


def test_runs_without_a_start_time_are_judged_in_file_order() -> None:
    rows = nightly(10).drop(columns="started")
    assert list(verdicts(replay(rows)).values())[-3:] == [
        Verdict.PASS,
        Verdict.DEGRADED,
        Verdict.DEGRADED,
    ]


@pytest.mark.parametrize("column", ["cluster", "suite"])
def test_clusters_and_suites_are_judged_separately(column: str) -> None:
    """A tenth of the rate of another cluster is no loss."""
    one, other = nightly(10, **{column: "a"}), nightly(10, **{column: "b"})
    other["run_id"] += "-other"
    other["value"] /= 10
    both = replay(pd.concat([one, other]))
    alone = [*replay(one), *replay(other)]
    assert {run.run_id: run.to_dict() for run in both} == {
        run.run_id: run.to_dict() for run in alone
    }


def test_different_conditions_make_different_series() -> None:
    small, large = nightly(10, message_bytes="4096"), nightly(10, message_bytes="1048576")
    small["value"] /= 100
    assert verdicts(replay(pd.concat([small, large]))) == verdicts(replay(large))


def test_nodes_of_another_model_are_not_peers() -> None:
    nodes = of_nodes(24)
    fleet = Fleet(4)
    old = {f"node-{n}" for n in range(16, 24)}
    fleet.run(nodes, factor=lambda name: 0.6 if name in old else 1.0)
    frame = pd.DataFrame(fleet.rows)
    frame["model"] = ["A100" if name in old else "H100" for name in frame["subject"]]
    assert replay(frame)[0].verdict is Verdict.PASS


def test_first_run_passes_and_says_that_it_has_no_baseline() -> None:
    first, *_ = replay(nightly())
    assert (first.verdict, first.suspects) == (Verdict.PASS, ())
    assert "no baseline yet" in first.reason.sentence


def test_measurements_without_a_better_direction_are_not_judged() -> None:
    rows = nightly()
    rows["better"] = ""
    assert replay(rows) == []


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (float("nan"), Verdict.INCONCLUSIVE),
        (-1.0, Verdict.INCONCLUSIVE),
        (0.0, Verdict.FAIL),
        (np.inf, Verdict.INCONCLUSIVE),
    ],
)
def test_invalid_number_does_not_pass(value: float, verdict: Verdict) -> None:
    rows = nightly(3)
    last = rows["run_id"] == "run-2"
    rows.loc[last, "value"] = value
    assert replay(rows)[-1].verdict is verdict


def test_measurements_of_real_runs_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Several files of that form, one after the other."""
    base = replace(samples.healthy_local(), verdict=Verdict.PASS)
    texts = [measurements_csv(samples.night(base, number, 1.0)) for number in range(4)]
    frames = [pd.read_csv(StringIO(text), dtype=str, keep_default_na=False) for text in texts]
    file = tmp_path / "measurements.csv"
    pd.concat(frames).fillna("").to_csv(file, index=False)
    runs = replay(read_rows(file))
    assert [run.run_id for run in runs] == [f"night-{number}" for number in range(4)]
    assert {run.verdict for run in runs} == {Verdict.PASS}
    assert runs[-1].reason.sentence.startswith("as expected")


# The command


def test_the_command_prints_a_line_or_an_object_for_each_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = Fleet(5)
    fleet.run(of_nodes(16), times=8)
    fleet.run(of_nodes(16), factor=slow("node-5", by=0.3))
    file = tmp_path / "nights.csv"
    pd.DataFrame(fleet.rows).to_csv(file, index=False)
    status, out, _ = replayed(capsys, str(file))
    assert status == 0
    assert out.splitlines()[-1].startswith("run-08: degraded: matmul ")
    status, out, _ = replayed(capsys, str(file), "--json")
    *_, last = json.loads(out)
    assert set(last) == {"run_id", "verdict", "reason", "suspects", "readings"}
    (suspect,) = last["suspects"]
    assert (suspect["kind"], suspect["name"], set(suspect)) == (
        "node",
        "node-5",
        {"kind", "name", "confidence"},
    )
    assert (last["verdict"], 0.5 < suspect["confidence"] < 1, status) == ("degraded", True, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["cannot be read as CSV"]),
        (
            "run_id,metric\na,b\n",
            ["column subject_kind is missing", "column value is missing", "column unit is missing"],
        ),
        (
            HEAD.replace("subject_kind", "subjectkind") + "\na,b,node,n,1,x\n",
            ["column subject_kind is missing", "subjectkind"],
        ),
        (
            HEAD + "\nr,m,node,n,1,x\nr,m,node,n,fast,x\n",
            ["line 3", "value", "'fast'", "not a number"],
        ),
        (HEAD + "\nr,m,node,n,,x\n", ["line 2", "value", "not a number"]),
        (HEAD + "\nr,m,rack,n,1,x\n", ["line 2", "subject_kind", "'rack'", "node", "gpu", "link"]),
        (
            HEAD + ",better\nr,m,node,n,1,x,more\n",
            ["line 2", "better", "'more'", "higher", "lower"],
        ),
        (HEAD + "\nr,m,rack,n,fast,x\n", ["line 2: value", "line 2: subject_kind"]),
        (HEAD + "\nr,m,node,n,1,x,y,z\n", ["line 2", "8 cells", "6 columns"]),
    ],
)
def test_a_bad_file_is_refused_with_file_line_field_and_what_is_legal(
    text: str, expected: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nights.csv"
    file.write_text(text)
    with pytest.raises(InputError) as raised:
        read_rows(file)
    assert all(part in str(raised.value) for part in (str(file), *expected)), str(raised.value)
    status, out, err = replayed(capsys, str(file))
    assert (status, out) == (2, "")
    assert str(file) in err
    assert "Traceback" not in err


def test_text_of_a_file_cannot_forge_a_line_of_output(tmp_path: Path) -> None:
    file = tmp_path / "nights.csv"
    file.write_text(HEAD + '\nr,m,node,n,"\x1b[2Kpass\nall is well",x\n')
    with pytest.raises(InputError) as raised:
        read_rows(file)
    assert not {"\x1b", "\n"} & set(str(raised.value))


def test_bytes_that_are_no_text_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nights.csv"
    file.write_bytes(b"\xff\xfe\x00run_id")
    assert replayed(capsys, str(file))[0] == 2
    assert replayed(capsys, str(tmp_path / "nowhere.csv"))[0] == 2


def test_a_file_without_rows_has_no_runs(tmp_path: Path) -> None:
    file = tmp_path / "nights.csv"
    file.write_text(HEAD + "\n")
    assert replay(read_rows(file)) == []


@pytest.mark.parametrize("column", ["run_id", "metric", "subject", "unit"])
def test_a_blank_name_is_refused(column: str, tmp_path: Path) -> None:
    """A run without an id or a number without a unit is a damaged file."""
    cells = dict(zip(HEAD.split(","), ("r", "m", "node", "n", "1", "x"), strict=True)) | {
        column: ""
    }
    file = tmp_path / "nights.csv"
    file.write_text(HEAD + "\n" + ",".join(cells.values()) + "\n")
    if column == "unit":  # a ratio has none
        assert len(read_rows(file)) == 1
        return
    with pytest.raises(InputError, match=f"line 2: {column}"):
        read_rows(file)
