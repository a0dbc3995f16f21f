"""`seatrial localize`: tests that runs have stored, the page, the panels, and logs of other
forms.
"""

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from seatrial.history import open_store
from seatrial.model.result import RunResult
from tests.command_line import command
from tests.samples import faulty_h100
from tests.unit.localize.written_logs import ADDRESSES, log_text

HOSTS = [f"cnode{i:03d}" for i in range(8)]
PAIRS = list(combinations(HOSTS, 2))
NOW = datetime.now(UTC)


def night(days_ago: int, slow: str = "", out: Path = Path("gone")) -> RunResult:
    """A run with rounds of all pairs, of which `slow` is at 60 %; with its run.json."""
    tests = [
        {
            "name": f"{a}--{b}",
            "nodes": [a, b],
            "gpus": [],
            "busbw_gb_s": (60 if slow in (a, b) else 100) + i % 3 / 10,
        }
        for i, (a, b) in enumerate(PAIRS)
    ]
    started = NOW - timedelta(days=days_ago, hours=1)
    run = replace(
        faulty_h100(),
        run_id=f"run-{days_ago}",
        started=started,
        finished=started + timedelta(minutes=9),
        checks=[],
        localization={"collective": "all_reduce", "reason": "", "findings": [], "tests": tests},
    )
    folder = out / run.run_id
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(run.to_dict()))
    with open_store() as store:
        store.save(run, folder)
    return run


def test_localize_history_names_the_slow_node_and_since_when(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for days_ago in (20, 4, 2, 1):
        run = night(days_ago, HOSTS[3] if days_ago in (1, 2, 20) else "", tmp_path)
    assert command("localize", "--history", run.cluster, "--days", "14", "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert [(s["kind"], s["name"]) for s in answer["suspects"]] == [("node", HOSTS[3])]
    since = (NOW - timedelta(days=2, hours=1)).date().isoformat()
    assert (
        "slow in 14 of 21 tests with it, at 60 % of like tests and 7 other nodes"
        in answer["reason"]
    )
    assert answer["reason"].endswith(f"since {since}")
    assert command("localize", "--history", run.cluster, "--days", "30", "--json") == 1
    assert "slow in 21 of 28 tests" in json.loads(capsys.readouterr().out)["reason"]


def test_a_history_without_tests_of_pairs_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = night(9, out=tmp_path)
    assert command("localize", "--history", run.cluster, "--days", "5") == 2
    assert (
        f"the 0 runs of {run.cluster} in the last 5 days have no tests of pairs"
        in capsys.readouterr().err
    )
    assert command("localize", "--history", "nowhere") == 2
    assert (
        "no runs of cluster 'nowhere'; `seatrial history` lists clusters" in capsys.readouterr().err
    )
    assert command("localize") == 2
    assert "needs LOGS, or --history CLUSTER" in capsys.readouterr().err


def rows(operations: Sequence[str], speed: Callable[[str, str, str], float]) -> str:
    lines = [
        f"{a},{b},{100 * speed(op, a, b) + i % 3 / 10},{op}"
        for op in operations
        for i, (a, b) in enumerate(PAIRS)
    ]
    return "\n".join(["node_a,node_b,gb_s,operation", *lines]) + "\n"


@pytest.fixture
def halves(tmp_path: Path) -> Path:
    """A table of two operations, of which one is slow between the first four nodes and the
    others.
    """
    file = tmp_path / "pairs.csv"
    first = set(HOSTS[:4])
    file.write_text(
        rows(
            ["alltoall", "sendrecv"],
            lambda op, a, b: 0.4 if op == "alltoall" and len(first & {a, b}) == 1 else 1,
        )
    )
    return file


def test_html_page_has_a_table_per_operation_and_loads_nothing(
    halves: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "pairs.html"
    assert command("localize", str(halves), "--html", str(page)) == 1
    text = page.read_text()
    assert text.count("<table") == 2
    for operation in ("alltoall", "sendrecv"):
        assert operation in text
    assert "slow between two groups of nodes: 16 of 32 tests across" in text
    for outside in ("http:", "https:", "<script src", "<link", "@import"):
        assert outside not in text
    printed = capsys.readouterr().out
    assert printed.count(HOSTS[0]) >= 2  # a matrix for each operation
    assert command("localize", str(halves), "--html", str(tmp_path / "none" / "pairs.html")) == 2


def test_the_panels_put_the_sides_of_a_cut_side_by_side(
    halves: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("localize", str(halves)) == 1
    printed = capsys.readouterr().out.splitlines()
    shown = [line.split()[0] for line in printed if line.strip().startswith("cnode")]
    assert {frozenset(shown[:4]), frozenset(shown[4:8])} == {
        frozenset(HOSTS[:4]),
        frozenset(HOSTS[4:]),
    }
    assert shown[:8] == shown[8:16]


def json_log(pair: Sequence[str], busbw: float) -> dict[str, Any]:
    """What nccl-tests writes with -J for two nodes of two GPUs."""
    places = [(host, gpu) for host in pair for gpu in ADDRESSES[:2]]
    devices = [
        {"rank": rank, "group": 0, "pid": 7, "hostname": host, "device": rank % 2, "device_hex": gpu,
         "device_info": "NVIDIA H200"}
        for rank, (host, gpu) in enumerate(places)
    ]  # fmt: skip
    side = {"time": 1000.0, "alg_bw": busbw / 1.5, "bus_bw": busbw, "nwrong": 0}
    result = {"size": 1 << 30, "count": 1 << 28, "type": "float", "redop": "sum", "root": "-1", "out_of_place": side,
              "in_place": side, "actual_iterations": 20, "experiment_name": ""}  # fmt: skip
    return {
        "version": 1, "start_time": "2026-01-02 03:04:05", "args": ["all_reduce_perf"], "env": [],
        "nccl_version": 22902, "config": {"nthreads": 1, "ngpus": 1, "devices": devices}, "results": [result],
        "out_of_bounds": {"count": 0, "okay": "true"}, "average_bus_bandwidth": {"bandwidth": busbw, "okay": "true"},
        "errors": [""], "end_time": "2026-01-02 03:04:06",
    }  # fmt: skip


def test_a_folder_of_json_logs_names_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, pair in enumerate(PAIRS):
        document = json_log(pair, (60 if HOSTS[5] in pair else 100) + number % 3 / 10)
        (tmp_path / f"{number}.json").write_text(json.dumps(document, indent=1))
    assert command("localize", str(tmp_path), "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert [(s["kind"], s["name"]) for s in answer["suspects"]] == [("node", HOSTS[5])]


def test_one_file_with_many_tests_names_the_slow_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = itertools.cycle((1.0, 1.01, 1.02))
    texts = [
        log_text(
            tuple((host, ADDRESSES) for host in pair),
            0.6 if HOSTS[2] in pair else 1.0,
            lambda: next(noise),
        )
        for pair in PAIRS
    ]
    whole = tmp_path / "night.log"
    whole.write_text("".join(texts))
    assert command("localize", str(whole), "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert [(s["kind"], s["name"]) for s in answer["suspects"]] == [("node", HOSTS[2])]
    assert "7 of 7 tests" in answer["reason"]


def test_latencies_of_perftest_are_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "n1--n2.log"
    log.write_text(
        " Send Latency Test\n #bytes #iterations t_min[usec] t_max[usec] t_typical[usec]\n"
        " 2 1000 1.02 4.81 1.05\n"
    )
    assert command("localize", str(log)) == 2
    assert "bandwidths of perftest (latencies depend on the path" in capsys.readouterr().err
