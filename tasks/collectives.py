"""Step `collectives`: sweep each operation over every rank; are the results right, and how fast do they come?

With GPUs the sweeps are nccl-tests, one rank per GPU; without, the gloo probe, which prints the same table. Each
operation is an mpirun of its own. One that fails does not stop the others, unless the fabric itself is gone (the head
cannot be reached, mpirun cannot start its daemons, or nothing ends in time): every further one would cost its whole
time limit and say nothing new. What is measured: seatrial/sweep.py.
"""

import json
import logging
import shlex
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from seatrial.broken import gave_up
from seatrial.errors import InputError, RemoteError
from seatrial.mpi import MpiResult, mpirun
from seatrial.nccl import RowReader, Sweep, parse_lines, parse_text
from seatrial.result import Check
from seatrial.run import Run
from seatrial.sizes import format_size
from seatrial.ssh import connected, run_command
from seatrial.suite import Collectives
from seatrial.sweep import Outcome, Setting, conclude
from seatrial.testbed import Testbed
from seatrial.verdict import Verdict, worst

log = logging.getLogger("seatrial.collectives")

_NCCL_TYPES = {"float32": "float", "float64": "double", "float16": "half", "bfloat16": "bfloat16", "int32": "int32"}


def collectives(run: Run, testbed: Testbed) -> Check | None:
    """The check `collectives`; None when the suite does not ask for it."""
    wanted = run.suite.collectives
    if wanted is None:
        return None
    problem = too_small(run, testbed)
    if problem:
        return Check("collectives", Verdict.NOT_RUN, problem)
    started = time.monotonic()
    outcomes = _all(run, testbed, wanted)
    return _check(outcomes, testbed.world_size, time.monotonic() - started)


def too_small(run: Run, testbed: Testbed) -> str | None:
    """Why there are too few nodes or ranks to talk to each other; None when there are enough."""
    left = len(testbed.nodes)
    if left < min(2, run.cluster.nodes):
        return f"needs at least two nodes, {left} left"
    return (
        None if testbed.world_size > 1 else f"needs at least two ranks, {testbed.world_size} here: set slots_per_node"
    )


def _all(run: Run, testbed: Testbed, wanted: Collectives) -> list[Outcome]:
    writes_json = testbed.has_gpus and _writes_json(testbed, wanted.operations[0])
    outcomes: list[Outcome] = []
    for operation in wanted.operations:
        if outcomes and outcomes[-1].fabric_gone:
            reason = f"{operation} was not tried: the fabric is gone"
            outcomes.append(Outcome(operation, Verdict.NOT_RUN, reason, fabric_gone=True))
            continue
        outcomes.append(_one(run, testbed, wanted, operation, writes_json))
        log.log(_level(outcomes[-1]), "%s", outcomes[-1].reason)
    return outcomes


def _level(outcome: Outcome) -> int:
    return logging.INFO if outcome.verdict is Verdict.PASS else logging.WARNING


def _one(run: Run, testbed: Testbed, wanted: Collectives, operation: str, writes_json: bool) -> Outcome:
    """Sweep one operation and say what it came to."""
    json_file = f"{testbed.workdir}/{operation}-{run.run_id}.json" if writes_json else None
    argv = nccl_argv(wanted, operation, json_file) if testbed.has_gpus else gloo_argv(run, testbed, wanted, operation)
    quiet = {} if "NCCL_DEBUG" in dict(testbed.env) or not testbed.has_gpus else {"NCCL_DEBUG": "WARN"}
    try:
        result = mpirun(
            testbed,
            argv,
            timeout_s=wanted.timeout_s,
            env=quiet,
            on_line=_logger(operation),
            is_done=lambda line: "# Avg bus bandwidth" in line or gave_up(line),
            log_file=run.logs / f"{operation}.log",
        )
    except RemoteError as error:
        return Outcome(operation, Verdict.FAIL, f"{operation}: {error}", fabric_gone=True)
    sweep = _parsed(result, operation)
    if json_file and sweep:
        sweep = _with_json(sweep, _read_json(testbed, json_file, run.logs / f"{operation}.json"))
    return conclude(Setting(operation, wanted.dtype, testbed.world_size, run.cluster.name), result, sweep)


def nccl_argv(wanted: Collectives, operation: str, json_file: str | None) -> list[str]:
    """The command line of nccl-tests, one GPU per rank."""
    sizes = wanted.gpu
    flags = {"-b": sizes.min_bytes, "-e": sizes.max_bytes, "-f": sizes.step_factor, "-g": 1}
    flags |= {"-w": sizes.warmup_iterations, "-n": sizes.iterations}
    words = [word for flag, value in flags.items() for word in (flag, str(value))]
    return [f"{operation}_perf", *words, "-d", _NCCL_TYPES[wanted.dtype], *(("-J", json_file) if json_file else ())]


def gloo_argv(run: Run, testbed: Testbed, wanted: Collectives, operation: str) -> list[str]:
    """The command line of the gloo probe."""
    sizes = wanted.cpu
    flags = {"--min-bytes": sizes.min_bytes, "--max-bytes": sizes.max_bytes, "--step-factor": sizes.step_factor}
    flags |= {"--warmup-iterations": sizes.warmup_iterations, "--iterations": sizes.iterations}
    words = [word for flag, value in flags.items() for word in (flag, str(value))]
    meeting = rendezvous_argv(run, testbed, operation, wanted.timeout_s)
    probe = [testbed.python, f"{testbed.workdir}/collective.py", "--operation", operation, "--dtype", wanted.dtype]
    return [*probe, *words, *meeting]


def rendezvous_argv(run: Run, testbed: Testbed, what: str, timeout_s: float) -> list[str]:
    """Where a probe's ranks meet. They give up at half of the whole time limit, so that their own words are heard."""
    port = 20_000 + zlib.crc32(f"{run.run_id} {what}".encode()) % 10_000  # below the ports that the kernel hands out
    network = ("--network", testbed.network) if testbed.network else ()
    meeting = ("--master-addr", testbed.head.address, "--master-port", str(port), *network)
    return [*meeting, "--timeout-s", f"{timeout_s / 2:g}"]


def _logger(operation: str) -> Callable[[str], None]:
    """Says every row as it arrives."""
    reader = RowReader()

    def on_line(line: str) -> None:
        row = reader.feed(line)
        side = row and (row.out_of_place or row.in_place)
        if row and side and side.time_us is not None:
            text = f"{operation} {format_size(row.size):>6}  {side.time_us:10.1f} us  {side.busbw_gb_s or 0:8.2f} GB/s"
            log.info("%s", text + (f"  {side.wrong} wrong" if side.wrong else ""), extra={"row": row})

    return on_line


def _parsed(result: MpiResult, operation: str) -> Sweep | None:
    """The sweep in the output, the fullest where there are several; None where there is nothing of one."""
    try:
        sweeps = parse_lines(result.lines, operation)
    except InputError:
        return None
    return max(sweeps, key=lambda sweep: len(sweep.rows))


def _writes_json(testbed: Testbed, operation: str) -> bool:
    """Whether these nccl-tests can write their results to a file as well (-J, since 2.17.3)."""
    with suppress(RemoteError), connected(testbed, testbed.head, 30) as head:
        return "-J" in run_command(head, f"{operation}_perf --help", timeout_s=30).output
    return False


def _read_json(testbed: Testbed, json_file: str, keep: Path) -> Sweep | None:
    """The sweep in the file that rank 0 left on the head. It holds the whole environment, which is never kept."""
    quoted = shlex.quote(json_file)
    with suppress(RemoteError, ValueError, InputError), connected(testbed, testbed.head, 30) as head:
        text = run_command(head, f"cat {quoted} && rm -f {quoted}", timeout_s=60).output
        document = {key: value for key, value in json.loads(text).items() if key != "env"}
        clean = json.dumps(document, indent=1)
        keep.parent.mkdir(parents=True, exist_ok=True)
        keep.write_text(clean)
        return parse_text(clean, json_file)[0]
    return None


def _with_json(sweep: Sweep, exact: Sweep | None) -> Sweep:
    """The sweep with the file's rows, which no other output can tear; outcome and ranks are what was printed."""
    return replace(sweep, rows=exact.rows) if exact and len(exact.rows) >= len(sweep.rows) else sweep


def _check(outcomes: Sequence[Outcome], ranks: int, seconds: float) -> Check:
    """The worst outcome, its reason first."""
    verdict = worst(outcome.verdict for outcome in outcomes)
    bad = [outcome for outcome in outcomes if outcome.verdict is not Verdict.PASS]
    reasons = [outcome.reason for outcome in sorted(bad, key=lambda outcome: outcome.verdict is not verdict)]
    right = f"{', '.join(outcome.operation for outcome in outcomes)} over {ranks} ranks: every result is right"
    measurements = tuple(m for outcome in outcomes for m in outcome.measurements)
    return Check("collectives", verdict, "; ".join(reasons) or right, seconds, measurements)


@task(name="collectives", cache_policy=NO_CACHE)
def collectives_task(run: Run, testbed: Testbed) -> Check | None:
    return collectives(run, testbed)
