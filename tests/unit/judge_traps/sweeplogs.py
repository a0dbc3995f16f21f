"""Logs of all_reduce_perf with any numbers, and what is judged of them."""

from collections.abc import Sequence

from seatrial.logs.cluster import LogsConfig
from seatrial.logs.judge import Log, LogsJudgement, judge_logs
from seatrial.nccl import parse_text
from seatrial.nccl.busbw import busbw_factor

M, G = 1 << 20, 1 << 30
SIZES = (64 * M, 256 * M, G, 4 * G, 8 * G)
H100 = LogsConfig("H100-SXM", 1, 8)
OVER_NODES = (270.0, 330.0, 355.0, 372.0, 376.0)  # 32 or 64 H100 with eight NICs of 400 Gb/s
IB = "IB-8x400G"
QUAD = LogsConfig("H100-SXM", 4, 8, IB)


def row(size: int, busbw: float, ranks: int = 8, wrong: int = 0) -> str:
    algbw = busbw / busbw_factor("all_reduce", ranks)
    side = f"{size / algbw / 1e3:.2f} {algbw:.2f} {busbw:.2f} {wrong}"
    return f"{size} {size // 4} float sum -1 {side} {side}"


def log_text(
    busbw: Sequence[float],
    ranks: int = 8,
    nodes: int = 1,
    before: Sequence[str] = (),
    wrong: int = 0,
    sizes: Sequence[int] = SIZES,
) -> str:
    """What all_reduce_perf prints, spread evenly over `nodes`."""
    each = ranks // nodes
    lines = [
        *before,
        (
            "# nThread 1 nGpus 1 minBytes 67108864 maxBytes 8589934592 step: 4(factor) warmup "
            "iters: 5 iters: 20"
        ),
        "# Using devices",
        *(
            (
                f"#  Rank {i} Group  0 Pid {100 + i} on node-{i // each} device  {i % each} "
                f"[0x{i % each:02x}] NVIDIA GPU"
            )
            for i in range(ranks)
        ),
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
        *(row(size, value, ranks, wrong) for size, value in zip(sizes, busbw, strict=True)),
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}",
        "# Avg bus bandwidth    : 123.4",
    ]
    return "\n".join(lines) + "\n"


def is_row(line: str) -> bool:
    return line[:1].isdigit()


def of_operation(text: str, operation: str, redop: str, factor: float = 1.0) -> str:
    """The log with each row's busbw as that operation's; `redop` with its root."""
    lines = [f"mpirun -np 16 {operation}_perf -b 64M -e 8G -f 4"]
    for line in text.splitlines():
        if is_row(line):
            size, busbw = int(line.split()[0]), float(line.split()[7])
            side = f"{size * factor / busbw / 1e3:.2f} {busbw / factor:.2f} {busbw:.2f} 0"
            lines.append(f"{size} {size // 4} float {redop} {side} {side}")
        else:
            lines.append(line)
    return "\n".join(lines)


def log(name: str, text: str) -> Log:
    return Log(name, tuple(parse_text(text, name)))


def judged(text: str, asked: LogsConfig = H100) -> LogsJudgement:
    return judge_logs([log("log", text)], asked)


HEALTHY = (360.0, 419.0, 442.0, 476.0, 480.0)


def over_four_nodes(
    before: Sequence[str] = (), factor: float = 1.0, sizes: Sequence[int] = SIZES
) -> str:
    return log_text([factor * value for value in OVER_NODES], 32, 4, before, sizes=sizes)
