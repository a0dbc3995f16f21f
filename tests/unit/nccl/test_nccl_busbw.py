"""busbw factors, the ranks they give away, and the table for people."""

import pytest

from seatrial.nccl import Row, Sweep, Timing, busbw_factor, expected_algbw, parse_text, render
from seatrial.nccl.busbw import agrees, infer_ranks
from seatrial.nccl.collectives import COLLECTIVES
from seatrial.nccl.draft import candidates


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [
        ("all_reduce", 16, 1.875),
        ("all_reduce", 1, 0),
        ("all_gather", 16, 0.9375),
        ("reduce_scatter", 8, 0.875),
        ("alltoall", 2, 0.5),
        ("alltoallv", 4, 0.75),
        ("gather", 4, 0.75),
        ("scatter", 4, 0.75),
        ("broadcast", 64, 1),
        ("reduce", 64, 1),
        ("sendrecv", 64, 1),
        ("hypercube", 64, 1),
    ],
)
def test_busbw_factors_of_each_collective(collective: str, ranks: int, factor: float) -> None:
    assert busbw_factor(collective, ranks) == factor


def test_busbw_factor_refuses_invalid_arguments() -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        busbw_factor("all_reduce", 0)
    with pytest.raises(ValueError, match="legal: all_reduce"):
        busbw_factor("allreduce", 2)


def test_expected_algbw_is_decimal_gigabytes_per_second() -> None:
    assert expected_algbw(1_000_000_000, 1e6) == 1.0
    assert expected_algbw(8, 0.0) == float("inf")


def _rows(collective: str, ranks: int) -> list[Row]:
    """Rows as nccl-tests prints them, two digits behind the point."""
    rows = []
    for algbw in (0.37, 12.34, 187.65, 203.01):
        busbw = round(algbw * busbw_factor(collective, ranks), 2)
        rows.append(Row(1 << 20, 1 << 18, "float", "sum", -1, Timing(1.0, algbw, busbw), None))
    return rows


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8, 16, 32, 72, 80, 96, 128, 256, 512, 1000, 1024])
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather"])
def test_ranks_are_inferred_from_the_printed_digits(collective: str, ranks: int) -> None:
    rows = _rows(collective, ranks)
    assert agrees(collective, ranks, rows)
    # A guess is no evidence
    assert infer_ranks(collective, rows) in ((ranks,) if ranks <= 72 else (ranks, None))


def test_no_ranks_are_inferred_from_no_rows_or_contradictory_rows() -> None:
    tiny = Row(8, 2, "float", "sum", -1, Timing(9.0, 0.0, 0.0), None)
    assert infer_ranks("all_reduce", []) is None and infer_ranks("all_reduce", [tiny]) is None
    assert infer_ranks("all_reduce", [*_rows("all_reduce", 4), *_rows("all_reduce", 16)]) is None
    assert not agrees("all_reduce", 4, _rows("all_reduce", 16))
    assert all(
        infer_ranks(name, _rows(name, 4)) is None
        for name in ("broadcast", "reduce", "sendrecv", "hypercube")
    )
    assert len(COLLECTIVES) == 11


def test_rendered_table_is_aligned_and_has_a_summary_line() -> None:
    sweeps = parse_text(
        "# Collective test starting: all_reduce_perf\n"
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
        "8 2 float sum -1 9.00 0.00 0.00 0 9.00 0.00 0.00 N/A\n"
        "1048576 262144 float sum -1 50.00 20.97 36.70 0 50.00 20.97 36.70 0\n"
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 18.35\n"
        "ssh: connect to host b port 22: Connection refused\n"
    )
    table = render(sweeps)
    lines = table.splitlines()
    assert len({len(line) for line in lines[:3]}) == 1, "columns are aligned"
    assert lines[2].split() == [
        "1048576",
        "262144",
        "float",
        "sum",
        "-1",
        "50.00",
        "20.97",
        "36.70",
        "0",
        "50.00",
        "20.97",
        "36.70",
        "0",
    ]
    assert lines[1].split()[-1] == "-"
    assert lines[3] == "all_reduce, 8 ranks, 2 rows, peak busbw 36.70 GB/s, avg 18.350 GB/s, ok"
    assert (
        lines[5].startswith("unknown collective, ranks unknown, 0 rows")
        and "ssh connection refused on b" in lines[6]
    )


def test_empty_sweep_has_no_peak_busbw_or_wrong_total() -> None:
    sweep = Sweep(None, None, None, (), (), None, None, "truncated")
    assert sweep.peak_busbw_gb_s is None and sweep.wrong_total is None


@pytest.mark.parametrize(
    ("count", "busbw", "first"),
    [
        (1 << 15, 87.5, "gather"),
        (None, 87.5, "gather"),  # busbw below algbw says it alone
        (1 << 18, 100.0, "broadcast"),
        (None, 100.0, "broadcast"),
        (None, None, "broadcast"),
    ],
)
def test_rooted_collective_is_recognised_by_its_count_or_its_busbw_ratio(
    count: int | None, busbw: float | None, first: str
) -> None:
    row = Row(1 << 20, count, "float", "none", 0, Timing(1.0, 100.0, busbw), None)
    assert candidates([row], None)[0] == first
