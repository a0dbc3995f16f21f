"""The file that nccl-tests writes with -J, versions 1 to 3, whole and cut; its environment is never
kept.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.model.errors import InputError, NothingFoundError
from seatrial.nccl import Sweep, Timing, parse_file, parse_text, render
from seatrial.readers.parts import read_text

SECRET = "hunter2-token"


def _side(
    time: float, algbw: float, busbw: float, wrong: float | None = 0.0, key: str = "time"
) -> dict[str, Any]:
    return {key: time, "alg_bw": algbw, "bus_bw": busbw, "nwrong": wrong}


def _result(**changes: Any) -> dict[str, Any]:
    result = {
        "size": 1048576, "count": 262144, "type": "float", "redop": "sum", "root": "    -1",
        "out_of_place": _side(50.0, 20.97152, 36.70016), "in_place": _side(51.0, 20.560314, 35.980549),
        "actual_iterations": 20, "experiment_name": "",
    }  # fmt: skip
    return result | changes


def _device(rank: int, host: str) -> dict[str, Any]:
    return {
        "rank": rank, "group": 0, "pid": 7, "hostname": host, "device": 0, "device_hex": "0000:1b:00",
        "device_info": "NVIDIA H200",
    }  # fmt: skip


def _document(**changes: Any) -> dict[str, Any]:
    document = {
        "version": 1,
        "start_time": "2025-01-02 03:04:05",
        "args": ["/opt/nccl-tests/build/all_reduce_perf", "-b", "1M", "-J", "out.json"],
        "env": ["PATH=/usr/bin", f"HF_TOKEN={SECRET}", 'TRAP="results":[{"size":1}]'],
        "nccl_version": 22902,
        "config": {"nthreads": 1, "ngpus": 4, "devices": [_device(0, "a"), _device(4, "b")]},
        "results": [_result()],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 36.340354, "okay": "unchecked"},
        "errors": [""],
        "end_time": "2025-01-02 03:04:06",
    }
    return document | changes


def _single_sweep(text: str) -> Sweep:
    (sweep,) = parse_text(text, source="out.json")
    return sweep


def test_json_of_version_1_is_read() -> None:
    sweep = _single_sweep(json.dumps(_document(), indent=2))
    assert (sweep.collective, sweep.ranks, sweep.outcome, sweep.out_of_bounds) == (
        "all_reduce",
        8,
        "ok",
        0,
    )
    assert (sweep.avg_busbw_gb_s, [d.host for d in sweep.devices], sweep.errors) == (
        36.340354,
        ["a", "b"],
        (),
    )
    (row,) = sweep.rows
    assert (row.size, row.count, row.type, row.redop, row.root) == (
        1048576,
        262144,
        "float",
        "sum",
        -1,
    )
    assert row.out_of_place == Timing(50.0, 20.97152, 36.70016, 0)


def test_json_of_version_2_with_times_of_iterations_is_read() -> None:
    per_iteration = {
        "min_us": 49.0,
        "times_us": [49.0, 51.0],
        "per_process_max_times_us": [[49.0, 51.0], [48.0, 50.0]],
    }
    result = _result(out_of_place_per_iter=per_iteration, in_place_per_iter=per_iteration)
    sweep = _single_sweep(json.dumps(_document(version=2, results=[result])))
    assert sweep.rows == _single_sweep(json.dumps(_document())).rows


def test_json_of_version_3_with_cpu_time_and_one_side_is_read() -> None:
    result = _result(
        out_of_place=None, in_place=_side(51.0, 20.56, 35.98, None, key="cpu_time"), root="     0"
    )
    sweep = _single_sweep(json.dumps(_document(version=3, results=[result])))
    (row,) = sweep.rows
    assert row.out_of_place is None and row.in_place == Timing(51.0, 20.56, 35.98, None)
    assert (row.root, sweep.peak_busbw_gb_s, sweep.wrong_total, sweep.outcome) == (
        0,
        35.98,
        None,
        "ok",
    )


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"out_of_bounds": {"count": 2, "okay": "false"}}, "failed"),
        ({"average_bus_bandwidth": {"bandwidth": 36.3, "okay": "false"}}, "failed"),
        ({"average_bus_bandwidth": {"bandwidth": "nan", "okay": "unchecked"}}, "ok"),
        ({"results": [_result(in_place=_side(51.0, 20.56, 35.98, 3.0))]}, "failed"),
        ({"results": []}, "error"),
        ({"results": [], "errors": ["unhandled system error"]}, "error"),
        ({"out_of_bounds": None}, "truncated"),
    ],
)
def test_the_outcome_follows_from_errors_and_wrong_values(
    changes: dict[str, Any], outcome: str
) -> None:
    sweep = _single_sweep(json.dumps(_document(**changes)))
    assert sweep.outcome == outcome
    json.dumps(sweep.to_dict(), allow_nan=False)


def test_ranks_are_inferred_when_json_lists_too_few_devices() -> None:
    """A build with -t lists only the first device of each process; busbw/algbw gives the ranks."""
    config = {"nthreads": 1, "ngpus": 1, "devices": [_device(0, "a")]}
    assert _single_sweep(json.dumps(_document(config=config))).ranks == 8


def test_an_indented_file_that_was_cut_gives_its_rows_too() -> None:
    document = _document(results=[_result(size=1 << shift) for shift in (20, 21, 22)])
    whole = json.dumps(document, indent=2)
    sweep = _single_sweep(whole[: whole.index(str(1 << 22))])
    assert [row.size for row in sweep.rows] == [1 << 20, 1 << 21]
    assert sweep.outcome == "truncated"


def test_a_file_that_was_cut_gives_the_whole_rows_before_the_cut() -> None:
    whole = json.dumps(
        _document(results=[_result(), _result(size=2097152, count=524288), _result(size=4194304)])
    )
    rows = _single_sweep(whole).rows
    for cut in range(whole.index('"results"') + 12, len(whole) - 2, 7):
        sweep = _single_sweep(whole[:cut])
        assert sweep.rows == rows[: len(sweep.rows)]
        assert (sweep.outcome, sweep.collective, sweep.ranks) == ("truncated", "all_reduce", 8)


def test_a_bare_inf_is_no_json_and_is_read_all_the_same() -> None:
    sweep = _single_sweep(json.dumps(_document()).replace("36.70016", "inf"))
    assert sweep.rows[0].out_of_place == Timing(50.0, 20.97152, None, 0)
    assert sweep.outcome == "ok"


@pytest.mark.parametrize("indent", [None, 2])
def test_json_files_joined_into_one_are_a_sweep_each(indent: int | None) -> None:
    """What `cat *.json` writes, the last one of a killed test."""
    slow = _document(args=["all_gather_perf"], results=[_result(size=2 << 20)])
    whole = [json.dumps(document, indent=indent) for document in (_document(), slow, _document())]
    first, second, cut = parse_text("\n".join(whole)[:-100], source="all.json")
    assert (first.collective, second.collective) == ("all_reduce", "all_gather")
    assert second.rows[0].size == 2 << 20
    assert [sweep.outcome for sweep in (first, second, cut)] == ["ok", "ok", "truncated"]
    assert len(cut.rows) == 1


@pytest.mark.parametrize("cut", [None, 300, 420, 700])
def test_environment_in_json_is_never_kept_or_shown(cut: int | None) -> None:
    text = json.dumps(_document())[:cut]
    assert SECRET in text
    try:
        sweeps = parse_text(text, source="out.json")
    except InputError as error:
        assert SECRET not in str(error)
    else:
        assert SECRET not in repr(sweeps) + render(sweeps)


def test_nccl_errors_in_json_are_kept_as_one_line() -> None:
    sweep = _single_sweep(json.dumps(_document(errors=["NET/IB : something\n  happened"])))
    assert sweep.errors == ("NET/IB : something happened",) and sweep.outcome == "ok"


@pytest.mark.parametrize(
    "text",
    ['{"results": 3, "args": 4}', '{"config": [], "args": [3]}', '{"args": {"a": []}, "env":'],
)
def test_json_of_another_format_is_bad_input_or_has_no_rows(text: str) -> None:
    try:
        assert all(not sweep.rows for sweep in parse_text(text))
    except InputError as error:
        assert "no nccl-tests output" in str(error)


def test_a_json_file_is_recognised_by_its_first_character(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("\n  " + json.dumps(_document()))
    assert parse_file(path)[0].outcome == "ok"


@pytest.mark.parametrize("around", ["srun: job 123 queued\n{}", "[{}]"])
def test_json_behind_other_text_is_refused_with_how_the_file_must_begin(around: str) -> None:
    text = around.format(json.dumps(_document(), indent=2))
    with pytest.raises(NothingFoundError, match="before the JSON of nccl-tests -J; the file must"):
        read_text(text, "out.json", "out")
