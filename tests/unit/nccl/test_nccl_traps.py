"""What misleads readers of nccl-tests output: columns that move, footers without rows, programs
without MPI.
"""

import pytest

from seatrial.model.errors import InputError
from seatrial.nccl import Sweep, Timing, parse_lines, parse_text

_SIDE = "time   algbw   busbw  #wrong"
HEADER = f"#       size         count      type   redop    root     {_SIDE}     {_SIDE}"
FOOTER = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 100.0 \n#"
ROW = (
    "     1048576        262144     float     sum      -1" + "    50.00   20.97   36.70       0" * 2
)
BROADCAST = "1048576 262144 float none 0 50.00 20.97 20.97 0 50.00 20.97 20.97 0"


def _single_sweep(*lines: str) -> Sweep:
    (sweep,) = parse_text("\n".join(lines))
    return sweep


def _prologue(host: str, pid: int, gpus: int = 1, collective: str = "all_reduce") -> list[str]:
    ranks = [
        f"#  Rank {r:2} Group  0 Pid {pid} on {host} device {r:2} [0000:0{r}:00] NVIDIA H200"
        for r in range(gpus)
    ]
    return [
        "# nccl-tests version 2.19.6 nccl-headers=22902 nccl-library=22902",
        f"# Collective test starting: {collective}_perf",
        (
            f"# nThread 1 nGpus {gpus} minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 1 "
            "iters: 20 agg iters: 1"
        ),
        "#",
        "# Using devices",
        *ranks,
        "#",
        HEADER,
    ]


def test_per_iteration_columns_do_not_shift_the_second_side() -> None:
    side = "time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%"
    sweep = _single_sweep(
        f"#       size         count      type   redop    root     {side}     {side}  timestamp",
        "     1048576        262144     float     sum      -1    50.00   20.97   36.70       0    "
        "49.00    52.00"
        "    51.90     1.20    25.00   41.94   73.40       3    24.00    26.00    25.90     2.10  "
        " 2025-01-02 03:04:05",
    )
    (row,) = sweep.rows
    assert row.out_of_place == Timing(50.0, 20.97, 36.7, 0)
    assert row.in_place == Timing(25.0, 41.94, 73.4, 3)
    assert sweep.outcome == "failed", "3 wrong elements"


@pytest.mark.parametrize("header", [[HEADER + "           timestamp"], [HEADER], []])
def test_timestamps_do_not_shift_columns(header: list[str]) -> None:
    sweep = _single_sweep(*header, ROW + "  2025-01-02 03:04:05", FOOTER)
    assert [row.to_dict() for row in sweep.rows] == [
        row.to_dict() for row in _single_sweep(HEADER, ROW, FOOTER).rows
    ]


def test_columns_are_chosen_by_the_header_not_by_position() -> None:
    sweep = _single_sweep(
        "# size count type redop root time algbw busbw error #wrong time algbw busbw error #wrong",
        "1048576 262144 float sum -1 50.00 20.97 36.70 1e-07 5 25.00 41.94 73.40 0e+00 0",
        FOOTER,
    )
    assert sweep.rows[0].out_of_place == Timing(50.0, 20.97, 36.7, 5)
    assert sweep.rows[0].in_place == Timing(25.0, 41.94, 73.4, 0)


def test_cpu_time_is_no_reason_to_doubt_a_row() -> None:
    """With -C 1 the time column is the CPU's, so algbw is not size/time."""
    header = HEADER.replace("   time", "cputime")
    (row,) = _single_sweep(header, ROW.replace("50.00", " 3.00"), FOOTER).rows
    assert row.out_of_place is not None and (
        row.out_of_place.time_us,
        row.out_of_place.algbw_gb_s,
    ) == (3.0, 20.97)


def test_old_error_column_is_no_count_of_wrong_values() -> None:
    sweep = _single_sweep(
        (
            "#       size         count    type   redop     time   algbw   busbw  error     "
            "time   algbw   busbw  error"
        ),
        (
            "     1048576        262144   float     sum    50.00   20.97   36.70  1e+00    "
            "50.00   20.97   36.70    N/A"
        ),
        FOOTER,
    )
    assert sweep.wrong_total is None and sweep.outcome == "ok" and sweep.rows[0].root is None


def test_numbers_that_overflow_their_columns() -> None:
    (row,) = _single_sweep(
        HEADER,
        " 17179869184    4294967296     float     sum      -1"
        "  1.6e+07    1.07    1.88   1e+06    16000 1073.7  1879.05     N/A",
        FOOTER,
    ).rows
    assert row.out_of_place == Timing(1.6e7, 1.07, 1.88, 1_000_000)
    assert row.in_place == Timing(16000.0, 1073.7, 1879.05, None)


def test_nan_and_inf_are_null_in_json() -> None:
    sweep = _single_sweep(
        HEADER, ROW.replace("20.97   36.70", "  inf     nan"), "# Avg bus bandwidth    : nan"
    )
    assert sweep.to_dict()["rows"][0]["out_of_place"] == {
        "time_us": 50.0,
        "algbw": None,
        "busbw": None,
        "wrong": 0,
    }
    assert sweep.to_dict()["avg_busbw"] is None


@pytest.mark.parametrize(
    ("collective", "row", "ranks"),
    [
        ("all_gather", "1048576 32768 float none -1 50.00 20.97 18.35 0 50.00 20.97 18.35 0", 8),
        ("alltoall", "1048576 32768 float none -1 50.00 20.97 18.35 0 50.00 20.97 18.35 N/A", 8),
        ("reduce_scatter", "1048576 32768 float sum -1 50.00 20.97 18.35 0 50.00 20.97 18.35 0", 8),
        ("gather", "1048576 32768 float none 0 50.00 20.97 18.35 0 50.00 20.97 18.35 0", 8),
        ("broadcast", "1048576 262144 float none 0 50.00 20.97 20.97 0 50.00 20.97 20.97 0", None),
        ("reduce", "1048576 262144 float sum 3 50.00 20.97 20.97 0 50.00 20.97 20.97 0", None),
        ("sendrecv", "1048576 262144 float sum -1 50.00 20.97 20.97 0 50.00 20.97 20.97 N/A", None),
        ("hypercube", "1048576 32768 float -1 50.00 18.35 18.35 0 50.00 18.35 18.35 0", 8),
        (
            "all_reduce",
            "1048576 524288 bfloat16 avg -1 50.00 20.97 39.32 0 50.00 20.97 39.32 0",
            16,
        ),
        ("all_reduce", "1048576 1048576 f8e4m3 sum -1 50.00 20.97 20.97 0 50.00 20.97 20.97 0", 2),
    ],
)
def test_collective_and_ranks_are_inferred_from_a_row(
    collective: str, row: str, ranks: int | None
) -> None:
    for lines in ([row], [HEADER, row]):
        sweep = _single_sweep(*lines, FOOTER)
        assert (sweep.collective, sweep.ranks, len(sweep.rows)) == (collective, ranks, 1)


def test_command_line_or_file_name_decides_an_ambiguous_collective() -> None:
    row = "1048576 32768 float none 0 50.00 20.97 18.35 0 50.00 20.97 18.35 0"
    assert (
        _single_sweep(
            "$ srun -n 8 ./build/scatter_perf -b 1M -e 1M", HEADER, row, FOOTER
        ).collective
        == "scatter"
    )
    sweep = _single_sweep(
        "$ mpirun -np 4 -H a:2,b:2 \\", "  ./build/broadcast_perf_mpi -g 2", HEADER, BROADCAST
    )
    assert (sweep.collective, sweep.ranks) == ("broadcast", 8)
    (by_name,) = parse_text(f"{HEADER}\n{row}\n{FOOTER}", source="logs/scatter.log")
    assert by_name.collective == "scatter"


def test_table_with_only_in_place_columns_is_read() -> None:
    """rccl-tests -O 0 measures in-place only and says so above the header."""
    sweep = _single_sweep(
        "#                                                     in-place          ",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong",
        "     1048576        262144     float     sum      -1    50.00   20.97   36.70      0",
        FOOTER,
    )
    (row,) = sweep.rows
    assert row.out_of_place is None and row.in_place == Timing(50.0, 20.97, 36.7, 0)
    assert (sweep.ranks, sweep.peak_busbw_gb_s) == (8, 36.7)


def test_split_worlds_count_the_ranks_of_the_group_that_prints() -> None:
    lines = _prologue("a", 7, gpus=8)
    lines = [
        line.replace("Group  0", f"Group {int(line[7:10]) % 4:2}") if " Rank " in line else line
        for line in lines
    ]
    assert _single_sweep(*lines, ROW.replace("36.70", "20.97"), FOOTER).ranks == 2


def test_memory_report_and_other_comments_are_no_rows() -> None:
    sweep = _single_sweep(
        *_prologue("a", 7, gpus=8),
        "# Reducing maxBytes to 26549638485 due to memory limitation",
        ROW,
        FOOTER,
        (
            "# GPU memory usage     : Initialization 512 MB | User-Allocated 4.00 GB | "
            "Collective 1.20 GB | Total  5.70 GB"
        ),
    )
    assert (len(sweep.rows), sweep.outcome, sweep.errors) == (1, "ok", ())


def test_launcher_tables_are_no_rows() -> None:
    with pytest.raises(InputError):
        parse_text(
            "nccl-test-0   1/1     Running   0          14s\n 8 2 3 4\n1048576 262144 "
            "50.0 20.97 36.70\n"
        )
    reduced = ["size time algbw busbw", "(B) (us) (GB/s) (GB/s)"]
    sweep = _single_sweep(
        *reduced,
        "1_048_576 50.00 20.97 36.70",
        "0 1 2 3",
        "1048576 50 7 12",
        "2097152 100.0 20.97 36.70",
    )
    assert [row.size for row in sweep.rows] == [1048576, 2097152], "algbw must be size/time"


@pytest.mark.parametrize(
    ("footer", "outcome"),
    [
        ("# Out of bounds values : 0 OK", "ok"),
        ("# Out of bounds values : 0", "ok"),
        ("# Out of bounds values : 1", "failed"),
        ("# Avg bus bandwidth    : 36.7", "ok"),
        ("# Out of bounds values : 4 FAILED\n# Avg bus bandwidth    : 36.7", "failed"),
        # NCCL_TESTS_MIN_BW
        ("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 36.7 FAILED", "failed"),
        ("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 36.7 OK", "ok"),
        ("", "truncated"),
        ("a: Test NCCL failure common.cu:1 'unhandled cuda error'", "error"),
        (
            (
                "slurmstepd: error: *** JOB 12 ON a CANCELLED AT 2025-01-02T03:04:05 DUE TO "
                "TIME LIMIT ***"
            ),
            "error",
        ),
    ],
)
def test_outcome_of_a_sweep_with_rows_follows_from_its_footer(footer: str, outcome: str) -> None:
    assert _single_sweep(HEADER, ROW, footer).outcome == outcome


def test_wrong_values_fail_a_test_whose_footer_says_ok() -> None:
    sweep = _single_sweep(HEADER, ROW.replace("0    50.00", "2    50.00"), FOOTER)
    assert (sweep.outcome, sweep.wrong_total, sweep.out_of_bounds) == ("failed", 2, 0)


def test_a_footer_without_rows_is_no_result() -> None:
    sweep = _single_sweep(HEADER, FOOTER)
    assert sweep.outcome == "error" and "without a data row" in sweep.errors[0]


def test_the_usage_text_is_an_error_though_the_program_exits_with_0() -> None:
    sweep = _single_sweep(
        "invalid option 'q'",
        "USAGE: all_reduce_perf ",
        "\t[-t,--nthreads <num threads>] ",
        "\t[-h,--help]",
    )
    assert (sweep.rows, sweep.outcome) == ((), "error")
    assert any("usage" in error for error in sweep.errors)


def test_a_crash_after_the_footer_leaves_the_numbers_valid_and_is_told() -> None:
    sweep = _single_sweep(
        HEADER, ROW, FOOTER,
        "mpirun noticed that process rank 3 with PID 0 on node b exited on signal 11 (Segmentation fault).",
    )  # fmt: skip
    assert (
        sweep.outcome == "ok" and "signal" in sweep.errors[0] and "on b (rank 3)" in sweep.errors[0]
    )


def test_a_launch_that_fails_after_a_complete_sweep_is_an_error_of_its_own() -> None:
    sweeps = parse_lines(
        [HEADER, ROW, *FOOTER.split("\n"), "ssh: connect to host b port 222: Connection refused"]
    )
    assert [s.outcome for s in sweeps] == ["ok", "error"]
    assert sweeps[0].errors == () and "on b" in sweeps[1].errors[0]


@pytest.mark.parametrize(
    "line", ["bc: command not found", "slurmstepd: error: *** JOB 1 ON a CANCELLED AT x ***"]
)
def test_output_of_a_script_after_a_complete_sweep_is_ignored(line: str) -> None:
    assert _single_sweep(HEADER, ROW, FOOTER, line).outcome == "ok"


def test_a_log_with_nothing_but_a_missing_command_is_an_error() -> None:
    assert (
        _single_sweep("bash: mpirun: command not found")
        .errors[0]
        .startswith("command missing (mpirun)")
    )


def test_a_row_that_dies_half_way_is_no_row_and_its_failure_is_told() -> None:
    sweep = _single_sweep(
        HEADER, ROW, ROW[:56] + "b-3: Test NCCL failure common.cu:401 'unhandled system error / '"
    )
    assert len(sweep.rows) == 1 and sweep.outcome == "error"
    assert sweep.errors[0].startswith("unhandled system error on b-3")


def _busbw_zero(time: float) -> str:
    return (
        f"1048576 262144 float sum -1 {time:.2f} {1048.576 / time:.2f} 0.00 0 {time:.2f} "
        f"{1048.576 / time:.2f} 0.00 0"
    )


def test_sweep_over_a_single_rank_is_ok() -> None:
    sweep = _single_sweep(*_prologue("a", 7), _busbw_zero(50.0), FOOTER)
    assert (sweep.ranks, sweep.outcome, sweep.peak_busbw_gb_s) == (1, "ok", 0.0)


def test_builds_without_mpi_that_print_one_after_the_other_are_one_error() -> None:
    """srun's pipe holds each program's output until it ends: two whole runs of one rank each."""
    lines = [
        *_prologue("a", 7),
        _busbw_zero(50),
        FOOTER,
        *_prologue("b", 9),
        _busbw_zero(51),
        FOOTER,
    ]
    sweep = _single_sweep(*lines)
    assert sweep.outcome == "error" and "not built with MPI=1: 2 processes" in sweep.errors[0]
    assert (sweep.collective, sweep.version, sweep.ranks, len(sweep.rows)) == (
        "all_reduce",
        "2.19.6",
        1,
        2,
    )


def test_builds_without_mpi_that_print_line_by_line_are_one_error() -> None:
    a = [*_prologue("a", 7), _busbw_zero(50), *FOOTER.replace("100.0", "0").split("\n")]
    b = [*_prologue("b", 9), _busbw_zero(51), *FOOTER.replace("100.0", "0").split("\n")]
    sweep = _single_sweep(*[line for pair in zip(a, b, strict=True) for line in pair])
    assert sweep.outcome == "error" and "not built with MPI=1" in sweep.errors[0]


def test_builds_without_mpi_and_with_several_gpus_each_are_an_error() -> None:
    """mpirun -np 2 all_reduce_perf -g 8: busbw is that of one node, and both nodes print
    everything.
    """
    head, rest = _prologue("a", 7, gpus=8), _prologue("b", 9, gpus=8)
    rows = [ROW, ROW.replace("50.00", "51.00").replace("20.97", "20.56").replace("36.70", "35.98")]
    lines = [
        *head[2:5],
        *rest[2:5],
        *head[5:-1],
        *rest[5:],
        HEADER,
        *rows,
        FOOTER,
        FOOTER.replace("100.0", "99.0"),
    ]
    sweep = _single_sweep(*lines)
    assert sweep.outcome == "error" and "not built with MPI=1: 2 processes" in sweep.errors[0]
    assert (sweep.ranks, len(sweep.rows)) == (8, 2)


def test_a_sweep_that_stops_and_one_that_follows_are_not_taken_for_missing_mpi() -> None:
    sweeps = parse_lines(
        [*_prologue("a", 7, gpus=8)[:-1], *_prologue("a", 8, gpus=8), ROW, *FOOTER.split("\n")]
    )
    assert [sweep.outcome for sweep in sweeps] == ["truncated", "ok"]


def test_headings_of_a_script_separate_bare_rows() -> None:
    smaller = ROW.replace("1048576        262144", " 524288        131072").replace(
        "50.00", "25.00"
    )
    sweeps = parse_lines(["=== 2 nodes", smaller, ROW, "=== 4 nodes", smaller, ROW])
    assert [[row.size for row in sweep.rows] for sweep in sweeps] == [[524288, 1048576]] * 2


def test_rows_of_several_reductions_and_cycles_stay_one_sweep() -> None:
    rows = [ROW.replace("  sum", f"{op:>5}") for op in ("sum", "prod", "max")]
    assert (
        len(
            _single_sweep(
                *_prologue("a", 7, gpus=8), *rows, ROW.replace("50.00", "49.99"), FOOTER
            ).rows
        )
        == 4
    )


def test_rows_of_placeholders_are_no_rows() -> None:
    sweep = _single_sweep(
        HEADER, ROW.replace("50.00   20.97   36.70", "XXXXX  XXX.XX  XXX.XX"), FOOTER
    )
    assert (sweep.rows, sweep.outcome) == ((), "truncated")
    assert "hold no numbers" in sweep.errors[0]


def test_error_and_wrong_columns_fill_separate_fields() -> None:
    (row,) = _single_sweep(
        HEADER, "1024  256  float  sum  -1  10.0  0.10  0.19  3  9.0  0.11  0.20  N/A", FOOTER
    ).rows
    assert row.out_of_place is not None and row.in_place is not None
    assert (row.redop, row.root, row.out_of_place.wrong, row.in_place.wrong) == ("sum", -1, 3, None)
    older = "# size count type redop time algbw busbw error time algbw busbw error"
    (row,) = _single_sweep(
        older, "1024 256 float 10.0 0.10 0.19 1e-07 9.0 0.11 0.20 N/A", FOOTER
    ).rows
    assert row.out_of_place is not None
    assert (row.redop, row.out_of_place.error, row.out_of_place.wrong) == (None, 1e-07, None)


def test_header_with_redop_as_last_column_is_read() -> None:
    (row,) = _single_sweep(
        "# size count type time algbw busbw redop", " 1024 256 float 10.0 0.10 0.10"
    ).rows
    assert (row.size, row.redop) == (1024, None)


def test_a_header_that_lost_a_word_does_not_shift_numbers_into_the_next_column() -> None:
    lost = "# size count type redop root time algbw busbw #wrong time algbw #wrong"
    assert (
        _single_sweep(
            lost, "33554432 8388608 float sum -1 1587.57 21.14 21.14 0 1572.73 21.34 21.34"
        ).rows
        == ()
    )
