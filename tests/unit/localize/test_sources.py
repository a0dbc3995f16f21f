"""Tests of pairs in other formats: folders, tables, perftest."""

import json
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from itertools import combinations
from pathlib import Path

import pytest

from seatrial.checks.localize import tables
from seatrial.checks.localize.sources import files_of, pair_in, tests_of_file
from seatrial.cli.app import main
from seatrial.localize import localize
from seatrial.model.errors import InputError
from tests.unit.localize.given_speeds import named

ROWS = [("a", "b", 40), ("a", "c", 20), ("b", "c", "")]


def csv_of(rows: list[tuple[object, ...]], header: str = "node_a,node_b,gb_s") -> str:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


def test_a_table_in_csv_and_one_in_json_are_the_same_tests(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(csv_of(list(ROWS)))
    rows = [dict(zip(("node_a", "node_b", "gb_s"), row, strict=True)) for row in ROWS]
    (tmp_path / "pairs.json").write_text(json.dumps({"pairs": rows}))
    of_csv, of_json = (tests_of_file(str(tmp_path / name)) for name in ("pairs.csv", "pairs.json"))
    assert [(test.nodes, dict(test.busbw_gb_s)) for test in of_csv] == [
        (test.nodes, dict(test.busbw_gb_s)) for test in of_json
    ]
    assert [test.failed for test in of_csv] == [False, False, True]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_columns_may_be_separated_by_semicolons_or_tabs(tmp_path: Path, separator: str) -> None:
    (tmp_path / "comma.csv").write_text(csv_of(list(ROWS)))
    (tmp_path / "other.csv").write_text(csv_of(list(ROWS)).replace(",", separator))
    expected, found = (tests_of_file(str(tmp_path / name)) for name in ("comma.csv", "other.csv"))
    assert [(test.nodes, test.busbw_gb_s) for test in found] == [
        (test.nodes, test.busbw_gb_s) for test in expected
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
def test_json_lines_with_one_pair_each_are_read(tmp_path: Path, end: str) -> None:
    file = tmp_path / "pairs.jsonl"
    rows = [json.dumps({"node_a": a, "node_b": b, "gb_s": rate}) for a, b, rate in ROWS]
    file.write_text(end.join(rows) + end, newline="")
    assert [test.nodes for test in tests_of_file(str(file))] == [(a, b) for a, b, _ in ROWS]


@pytest.mark.parametrize(
    ("command", "status", "printed"),
    [
        ("localize", 3, "0 comparable tests are too few"),
        ("judge", 2, "is a table of pairs of nodes; the command for it is `seatrial localize`"),
    ],
)
def test_table_is_read_from_stdin_and_judge_points_to_localize(
    command: str,
    status: int,
    printed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = BytesIO(csv_of([("a", "b", 40)]).encode())
    monkeypatch.setattr("sys.stdin", TextIOWrapper(table))
    monkeypatch.setattr("sys.argv", ["seatrial", command, "-"])
    with pytest.raises(SystemExit, match=str(status)):
        main()
    assert printed in "".join(capsys.readouterr())


def test_sizes_of_a_pair_are_one_test_with_its_gpus(tmp_path: Path) -> None:
    rows: list[tuple[object, ...]] = [
        ("a", "b", 40, "1G", "9d c3|1b 43"),
        ("a", "b", 41, "2G", "9d c3|1b 43"),
    ]
    file = tmp_path / "pairs.csv"
    file.write_text(csv_of(rows, "node_a,node_b,gb_s,size,gpus"))
    (test,) = tests_of_file(str(file))
    assert dict(test.busbw_gb_s) == {1 << 30: 40, 2 << 30: 41}
    assert test.gpus == (("9d", "c3"), ("1b", "43"))


@pytest.mark.parametrize(
    ("column", "gpus", "conditions"),
    [
        (["1b", "43"], ["1b", "43"], ["", ""]),
        ([0, 1], ["0", "1"], ["", ""]),
        ([4, 8], ["", ""], ["4 GPUs", "8 GPUs"]),
        (["", 8], ["", ""], ["", "8 GPUs"]),
    ],
)
def test_numbers_of_gpus_are_no_addresses_unless_other_addresses_stand_beside_them(
    tmp_path: Path, column: list[object], gpus: list[str], conditions: list[str]
) -> None:
    rows = [{"node_a": 0, "node_b": 1, "gb_s": 40, "gpus": each} for each in column]
    (tmp_path / "pairs.json").write_text(json.dumps(rows))
    (tmp_path / "pairs.csv").write_text(
        csv_of([tuple(row.values()) for row in rows], "node_a,node_b,gb_s,gpus")
    )
    for name in ("pairs.json", "pairs.csv"):
        tests = tests_of_file(str(tmp_path / name))
        assert [test.nodes for test in tests] == [("0", "1")] * 2
        assert [test.gpus for test in tests] == [((each,),) * 2 if each else () for each in gpus]
        assert [test.conditions for test in tests] == conditions


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node_a,node_b,gbs\na,b,1\n", "'gbs' is no field; nearest: gb_s"),
        ("node_a,node_b\na,b\n", "field 'gb_s' is missing"),
        ("node_a,node_b,gb_s\na,b,fast\n", "pairs.csv#1: gb_s must be a number"),
        ("node_a,node_b,gb_s\na,a,1\n", "node_a and node_b are the same"),
        ("node_a,node_b,gb_s,size\na,b,1,big\n", "size: must be a size in bytes"),
        ("node_a,node_b,gb_s\na,b,12,5\n", "pairs.csv: line 2: must have the 3 fields"),
        ("node_a,node_b,gb_s\na,b,1\na,c", "pairs.csv: line 3: must have the 3 fields"),
        (
            '[{"node_a": "a", "node_b": "b", "gb_s": 1, "gpus": ["9d"]}]',
            "pairs.csv: gpus must be a text or a number",
        ),
        ('[{"node_a": "a"', "is no JSON"),
        ('{"node_a": "a", "node_b": "b", "gb_s": 1}\n{"node_a": "a"', "is no JSON"),
    ],
)
def test_errors_in_a_table_name_the_field(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=message.replace("[", r"\[")):
        tests_of_file(str(file))


def test_all_known_files_of_a_folder_are_read_and_an_empty_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "night1").mkdir()
    with pytest.raises(InputError, match="a folder needs 1 to"):
        files_of(str(tmp_path))
    for name in ("b.log", "a.csv", "notes.md", "night1/c.json"):
        (tmp_path / name).write_text("x")
    assert [Path(file).name for file in files_of(str(tmp_path))] == ["a.csv", "b.log", "c.json"]


@pytest.mark.parametrize(
    ("stem", "pair"),
    [
        ("n1--n2", ("n1", "n2")),
        ("node-01_node-02", ("node-01", "node-02")),
        ("gpu_1__gpu_2", ("gpu_1", "gpu_2")),
        ("n1_to_n2", ("n1", "n2")),
        ("results", None),
        ("a_b_c", None),
    ],
)
def test_pair_of_nodes_is_read_from_the_file_name(stem: str, pair: tuple[str, str] | None) -> None:
    assert pair_in(stem) == pair


def test_perftest_output_belongs_to_the_pair_in_its_file_name(tmp_path: Path) -> None:
    text = (
        "                    RDMA_Write BW Test\n Dual-port       : OFF\t\tDevice         : "
        "mlx5_0\n"
        " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
        " 65536      5000             393.49             392.10               0.747870\n"
    )
    for name in ("n1--n2.log", "output.log"):
        (tmp_path / name).write_text(text)
    (test,) = tests_of_file(str(tmp_path / "n1--n2.log"))
    assert test.nodes == ("n1", "n2")
    assert test.busbw_gb_s[65536] == pytest.approx(49.01, abs=0.01)
    with pytest.raises(InputError, match="call the file NODE--NODE"):
        tests_of_file(str(tmp_path / "output.log"))


@pytest.mark.parametrize(
    ("is_slow", "found"),
    [
        (lambda device, nodes: device == 2, ("rail", "mlx5_2")),
        (lambda device, nodes: device == 2 and "n3" in nodes, ("gpu", "n3/mlx5_2")),
    ],
)
def test_a_device_that_is_slow_in_perftest_of_all_pairs_is_named(
    tmp_path: Path, is_slow: Callable[[int, tuple[str, str]], bool], found: tuple[str, str]
) -> None:
    for pair in combinations(("n0", "n1", "n2", "n3", "n4"), 2):
        text = ""
        for device in range(4):
            text += f" RDMA_Write BW Test\n Dual-port : OFF  Device : mlx5_{device}\n"
            text += " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n"
            rate = 190.1 if is_slow(device, pair) else 392.1
            text += f" 65536 5000 393.49 {rate} 0.747870\n"
        (tmp_path / f"{'--'.join(pair)}.log").write_text(text)
    tests = [test for file in files_of(str(tmp_path)) for test in tests_of_file(file)]
    assert len(tests) == 40
    assert named(localize(tests)) == [found]


def test_a_table_with_too_many_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_MOST_ROWS", 3)
    assert len(tables.tests_of_table("p.csv", csv_of(list(ROWS)))) == 3
    with pytest.raises(InputError, match=r"^p\.csv: more than 3 rows$"):
        tables.tests_of_table("p.csv", csv_of([*ROWS, ("c", "d", 40)]))
