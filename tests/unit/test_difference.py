"""What changed between two runs: what is said first, and what counts as a move."""

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.history import open_store
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Check, Expected, Judgement, RunResult
from seatrial.model.verdict import Verdict
from seatrial.runs.difference import INTERVAL_WIDTH, difference
from tests import samples
from tests.command_line import command

CLUSTER = Subject("cluster", "lab")


def plateau(value: float, operation: str = "all_reduce") -> Measurement:
    return Measurement("busbw_plateau", value, "GB/s", CLUSTER, {"operation": operation})


def step_time(value: float) -> Measurement:
    return Measurement("step_time", value, "ms", CLUSTER, better="lower")


def run(
    *measurements: Measurement, judgements: Sequence[Judgement] = (), **changes: Any
) -> RunResult:
    check = Check(
        "collectives", Verdict.PASS, uncoded("well"), 1.0, measurements, tuple(judgements)
    )
    return replace(samples.healthy_local(), checks=[check], **changes)


def by_history(m: Measurement, centre: float, low: float) -> Judgement:
    return Judgement(
        m, Verdict.PASS, Reason(), "history", Expected(low, None), m.value / centre - 1
    )


def test_nothing_changed_between_a_run_and_itself() -> None:
    one = samples.faulty_h100()
    delta = difference(one, one)
    assert (delta.verdicts, delta.software, delta.only_before, delta.only_after) == ((), (), 0, 0)
    assert set(delta.measurements["sigmas"]) == {0.0}
    assert set(delta.measurements["direction"]) <= {"same", ""}


def test_changed_verdicts_of_run_and_checks_are_listed() -> None:
    delta = difference(samples.healthy_local(), samples.faulty_h100())
    assert [(t.what, t.before, t.after) for t in delta.verdicts] == [
        ("run", Verdict.PASS, Verdict.FAIL),
        ("collectives", Verdict.PASS, Verdict.FAIL),
        ("devices", None, Verdict.INCONCLUSIVE),
    ]


def test_added_removed_and_changed_software_is_listed() -> None:
    old = run(fingerprint={"nccl": "2.27", "driver": "570", "cuda": "12.8"})
    new = run(fingerprint={"nccl": "2.28", "driver": "570", "image": "a@sha256:1"})
    assert [(r.what, r.before, r.after) for r in difference(old, new).software] == [
        ("nccl", "2.27", "2.28"),
        ("cuda", "12.8", None),
        ("image", None, "a@sha256:1"),
    ]


def test_changes_are_sorted_by_their_size_relative_to_noise() -> None:
    """5 % of a series with a known noise of 1 % is more than 20 % of one with unknown noise."""
    quiet = (plateau(100.0, "broadcast"), plateau(95.0, "broadcast"))
    judged = [by_history(m, 100.0, 100.0 * math.exp(-0.01 * INTERVAL_WIDTH)) for m in quiet]
    before = run(plateau(100.0), quiet[0], judgements=judged[:1])
    after = run(plateau(80.0), quiet[1], judgements=judged[1:])
    moved = difference(before, after).measurements
    assert [conditions["operation"] for conditions in moved["conditions"]] == [
        "broadcast",
        "all_reduce",
    ]
    expected = [-math.log(0.95) / (0.01 * math.sqrt(2)), -math.log(0.8) / (0.25 * math.sqrt(2))]
    assert moved["sigmas"].tolist() == pytest.approx(expected)


def of_cluster(name: str, busbw: float) -> RunResult:
    measured = replace(plateau(busbw), subject=Subject("cluster", name))
    node = Measurement("tcp_egress", 9.0, "MB/s", Subject("node", f"{name}-0"))
    return run(measured, node, cluster=name)


def test_runs_of_two_clusters_are_compared_by_cluster_numbers_only() -> None:
    delta = difference(of_cluster("east", 100.0), of_cluster("west", 50.0))
    (moved,) = delta.measurements.itertuples()
    assert (moved.subject, moved.ratio, moved.direction) == ("west", 0.5, "worse")
    assert (delta.only_before, delta.only_after) == (1, 1)  # each one's own node


def test_direction_of_a_change_follows_the_metric() -> None:
    delta = difference(run(plateau(100), step_time(10)), run(plateau(110), step_time(11)))
    assert dict(
        zip(delta.measurements["metric"], delta.measurements["direction"], strict=True)
    ) == {
        "busbw_plateau": "better",
        "step_time": "worse",
    }


def test_what_only_one_run_has_and_what_has_no_ratio_is_not_compared() -> None:
    delta = difference(
        run(plateau(0.0), step_time(math.nan)),
        run(plateau(1.0), step_time(2), plateau(3, "alltoall")),
    )
    assert (len(delta.measurements), delta.only_before, delta.only_after) == (0, 0, 1)
    assert delta.to_dict()["measurements"] == []


# The command


def written(folder: Path, result: RunResult) -> str:
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(result.to_dict()))
    return str(folder)


def test_compare_prints_two_folders_as_a_table_and_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = (by_history(plateau(value), 100.0, 90.0) for value in (100.0, 30.0))
    before = run(judgements=[old])
    after = run(judgements=[new], verdict=Verdict.FAIL, fingerprint={"nccl": "2.28"})
    paths = (written(tmp_path / "a", before), written(tmp_path / "b", after))
    assert command("compare", *paths) == 0, "two runs that differ are no error"
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["run", "pass", "fail"] in lines
    assert ["nccl", "-", "2.28"] in lines
    assert [
        "busbw",
        "plateau",
        "of",
        "all_reduce",
        "100",
        "GB/s",
        "30",
        "GB/s",
        "-70.0",
        "%",
        "35.6",
        "worse",
    ] in lines
    assert command("compare", *paths, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["before"]["verdict"], document["after"]["verdict"]) == ("pass", "fail")
    assert [(m["before"], m["after"], m["direction"]) for m in document["measurements"]] == [
        (100, 30, "worse")
    ]
    assert command("compare", *paths, "--csv") == 0
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert (row["what"], row["before"], row["after"]) == (
        "busbw plateau of all_reduce",
        "100.0",
        "30.0",
    )


def test_each_of_several_runs_is_compared_with_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"a": 100.0, "b": 99.9, "c": 30.0}
    paths = [
        written(
            tmp_path / name, run(judgements=[by_history(plateau(value), 100.0, 90.0)], run_id=name)
        )
        for name, value in values.items()
    ]
    assert command("compare", *paths, "--json") == 0
    documents = json.loads(capsys.readouterr().out)
    assert [(d["before"]["run_id"], d["after"]["run_id"]) for d in documents] == [
        ("a", "b"),
        ("a", "c"),
    ]
    assert command("compare", *paths, "--csv") == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(row["run_after"], row["after"]) for row in rows] == [("b", "99.9"), ("c", "30.0")]
    assert command("compare", *paths) == 0
    assert [
        line[:8] for line in capsys.readouterr().out.splitlines() if line.startswith("after")
    ] == [
        "after: b",
        "after: c",
    ]


def test_only_a_verdict_or_a_move_beyond_the_noise_of_many_numbers_fails_a_comparison(
    tmp_path: Path,
) -> None:
    first, near, far = (
        written(tmp_path / name, run(judgements=[by_history(plateau(value), 100.0, 90.0)]))
        for name, value in (("a", 100.0), ("b", 95.0), ("c", 30.0))
    )
    failed = written(tmp_path / "d", run(plateau(100.0), verdict=Verdict.FAIL))
    assert command("compare", first, near, "--fail-on-change") == 0
    assert command("compare", first, near, far, "--fail-on-change") == 1
    assert command("compare", first, failed, "--fail-on-change") == 1
    assert command("compare", first, far) == 0


def test_compare_states_that_nothing_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "a", run(judgements=[by_history(plateau(100.0), 100.0, 90.0)]))
    assert command("compare", path, path) == 0
    out = capsys.readouterr().out
    assert "verdicts: nothing changed" in out
    assert "1 moved no further than their noise" in out


def test_compare_of_two_clusters_says_so_before_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [written(tmp_path / name, of_cluster(name, 9.0)) for name in ("east", "west")]
    assert command("compare", *paths) == 0
    before, after, message, *_ = capsys.readouterr().out.splitlines()
    assert (before[:7], after[:6]) == ("before:", "after:")
    assert (
        message
        == "two clusters, east and west: what is of a whole cluster is held against the other's"
    )
    assert command("compare", paths[0], paths[0]) == 0
    assert "two clusters" not in capsys.readouterr().out


def test_compare_takes_run_ids_of_the_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = samples.healthy_local()
    folder = Path(written(tmp_path / "a", result))
    with open_store() as store:
        store.save(result, folder)
    assert command("compare", result.run_id, str(folder), "--json") == 0
    assert json.loads(capsys.readouterr().out)["verdicts"] == []
    (folder / "run.json").unlink()
    assert command("compare", result.run_id, result.run_id) == 0  # what the history holds is enough
    assert "nothing changed" in capsys.readouterr().out
