"""What mpirun prints in a sweep, what stands in its place, and the testbed and run that it plays
for.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial.checks.suites import SuiteFile, load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.testbed import Node, Testbed, dial_tcp
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.ranks import RankLine

HEADER = """\
# Collective test starting: {operation}_perf
# nThread 1 nGpus 1 minBytes 4096 maxBytes 65536 step: 4(factor) warmup iters: 1 iters: 5 agg iters: 1 validation: 1
#
# Using devices
"""
COLUMNS = """\
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
"""
SIDE = "  {time:7.2f}  {alg:6.2f}  {bus:6.2f}  "
ROW = "{size:12d}  {count:12d}     float     sum      -1" + SIDE + "{wrong:5}" + SIDE + "    0"
FOOTER = """\
# Out of bounds values : {bad} {word}
# Avg bus bandwidth    : 1.5
#
# Collective test concluded: all_reduce_perf
#
"""

SIZES = (4096, 16384, 65536)
GPU_SIZES = (1 << 18, 1 << 20, 1 << 22)


def table(
    ranks: int = 4,
    sizes: Sequence[int] = SIZES,
    wrong: int = 0,
    footer: bool = True,
    listed: int | None = None,
) -> list[RankLine]:
    """What rank 0 prints in a sweep: 1 GB/s algbw at every size, `wrong` elements at the last.

    `listed` ranks are in the header.
    """
    lines = HEADER.format(operation="all_reduce").splitlines()
    names = range(ranks if listed is None else listed)
    lines += [
        f"#  Rank {i:2d} Group  0 Pid {100 + i:6d} on node-{i} device  0 [] CPU" for i in names
    ]
    lines += COLUMNS.splitlines()
    for size in sizes:
        bad = wrong if size == sizes[-1] else 0
        bus = 2 * (ranks - 1) / ranks
        lines.append(
            ROW.format(size=size, count=size // 4, time=size / 1e3, alg=1.0, bus=bus, wrong=bad)
        )
    if footer:
        lines += FOOTER.format(bad=int(wrong > 0), word="FAILED" if wrong else "OK").splitlines()
    return [RankLine(line, 0) for line in lines]


def result(lines: Sequence[str], status: int | None = 0, **more: Any) -> MpiResult:
    return MpiResult(status, tuple(lines), 1.0, **more)


def make_testbed(nodes: int = 4, gpus: int = 0, env: Mapping[str, str] | None = None) -> Testbed:
    made = tuple(
        Node(f"node-{i}", f"10.0.0.{i + 1}", 222, max(1, gpus), "ssh-ed25519 AAAA", gpus)
        for i in range(nodes)
    )
    return Testbed(
        "run-1",
        made,
        "root",
        Path("key"),
        dial_tcp,
        "/w",
        network="10.0.0.0/24",
        env=tuple((env or {}).items()),
    )


def make_run(
    tmp_path: Path,
    nodes: int = 4,
    operations: Sequence[str] = ("all_reduce",),
    sizes: Sequence[int] = SIZES,
    fabric: str | None = None,
    gpu: Mapping[str, Any] | None = None,
) -> Run:
    cluster = {"name": "lab", "nodes": nodes, "platform": {"kind": "local"}, "fabric": fabric}
    quick = load_suite("quick").model_dump()
    asked = {"min_bytes": sizes[0], "max_bytes": sizes[-1], "step_factor": sizes[1] // sizes[0]}
    quick["collectives"] |= {
        "operations": list(operations),
        "cpu": asked,
        "gpu": {**asked, **(gpu or {})},
    }
    return Run("run-1", Cluster.model_validate(cluster), SuiteFile.model_validate(quick), tmp_path)


Answer = Callable[[str], MpiResult]


class FakeMpirun:
    """Stands where mpirun does: remembers the command lines and plays back what the test says each
    operation prints.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.argvs: list[list[str]] = []
        self.envs: list[Mapping[str, str] | None] = []
        self.slots: list[int] = []

    def __call__(self, testbed: Testbed, argv: Sequence[str], **options: Any) -> MpiResult:
        self.argvs.append(list(argv))
        self.slots.append(testbed.world_size)
        self.envs.append(options["env"])
        operation = (
            argv[argv.index("--operation") + 1]
            if "--operation" in argv
            else argv[0].removesuffix("_perf")
        )
        played = self.answer(operation)
        for line in played.lines:
            options["on_line"](line if isinstance(line, RankLine) else RankLine(line, 0))
        return played
