"""How far NCCL's ranks came before a time limit ended them."""

import pytest

from seatrial.causes import classify

LIMIT = (
    "slurmstepd: error: *** STEP 1.0 ON node-a CANCELLED AT 2026-08-27T10:00:00 DUE TO TIME "
    "LIMIT ***"
)


def info_line(host: str, process: int, message: str) -> str:
    return f"{host}:{process}:{process + 100} [0] NCCL INFO {message}"


def first(lines: list[str]) -> tuple[str, str]:
    finding = classify([*lines, LIMIT])[0]
    return finding.code, finding.cause


def test_the_rank_that_is_behind_is_named() -> None:
    lines = [
        info_line("node-a", 1, "Connected all rings"),
        info_line("node-b", 2, "comm 0x1 rank 1 nranks 2 - Init START"),
    ]
    code, cause = first(lines)
    assert (
        code == "log-nccl-connects" and "1 of 2 ranks connected their rings, not node-b:2" in cause
    )


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [
            info_line("node-a", 1, "Connected all rings"),
            info_line("node-a", 1, "comm 0x1 rank 0 nranks 1 - Init COMPLETE"),
        ],
        [
            info_line("node-a", 1, "Connected all rings"),
            info_line("node-a", 1, "Connected all trees"),
        ],
        [info_line("node-a", 1, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")],
    ],
    ids=["nothing", "initialised", "connected", "another line"],
)
def test_without_a_rank_behind_the_time_limit_is_the_cause(lines: list[str]) -> None:
    assert first(lines)[0] == "log-slurm-time-limit"


def test_a_known_cause_comes_before_the_time_limit() -> None:
    lines = [
        info_line("node-a", 1, "Connected all rings"),
        "node-b kernel: NVRM: Xid (PCI:0000:9c:00): 79, fallen off",
    ]
    assert first(lines)[0] == "log-xid-79"
