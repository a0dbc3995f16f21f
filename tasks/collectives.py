"""Step `collectives`: sweep each operation over every rank; are the results right, and how fast do they come?

With GPUs the sweeps are nccl-tests, one rank per GPU; without, the gloo probe, which prints the same table. Each
operation is an mpirun of its own. After one that fails every node is asked whether it is still there: nodes that died
are named and taken out, and the others go on. Where all are there and yet the fabric is gone (the head cannot be
reached, mpirun cannot start its daemons, or nothing ends in time), the rest is not tried: each would cost its whole
time limit and say nothing new. What is measured: seatrial/checks/sweep.py.

Where the cluster has a fabric between its nodes, NCCL must say which network it took, because it falls back to sockets
in silence. So the first operation runs with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET, some hundred lines per rank
before the first row, and the others with NCCL_DEBUG=WARN; what the cluster file says of either variable stands.
"""

import json
import logging
import shlex
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from seatrial.checks.broken import gave_up
from seatrial.checks.sweep import Outcome, Setting, conclude, network_of
from seatrial.errors import InputError, LaunchError, RemoteError
from seatrial.mpi import mpirun
from seatrial.nccl import Row, Sweep, SweepReader, TransportReader, parse_text
from seatrial.result import Check
from seatrial.run import Run
from seatrial.sizes import format_size
from seatrial.ssh import connected, run_command
from seatrial.suite import Collectives
from seatrial.suite import Sweep as Sizes
from seatrial.testbed import Testbed
from seatrial.verdict import Verdict, worst
from tasks.connectivity import Present, roll_call

log = logging.getLogger("seatrial.collectives")

_NCCL_TYPES = {"float32": "float", "float64": "double", "float16": "half", "bfloat16": "bfloat16", "int32": "int32"}


@dataclass(frozen=True, slots=True)
class Swept:
    """The check `collectives`, None when the suite does not ask for it, and the testbed without the nodes that died."""

    check: Check | None
    testbed: Testbed


def collectives(run: Run, testbed: Testbed) -> Swept:
    """Sweep every operation that the suite asks for."""
    wanted = run.suite.collectives
    if wanted is None:
        return Swept(None, testbed)
    problem = too_small(run, testbed)
    if problem:
        return Swept(Check("collectives", Verdict.NOT_RUN, problem), testbed)
    started = time.monotonic()
    outcomes, present = _all(run, testbed, wanted)
    check = _check(outcomes, testbed.world_size, time.monotonic() - started)
    return Swept(replace(check, suspects=present.suspects), present.testbed)


def too_small(run: Run, testbed: Testbed) -> str | None:
    """Why there are too few nodes or ranks to talk to each other; None when there are enough."""
    left = len(testbed.nodes)
    if left < min(2, run.cluster.nodes):
        return f"needs at least two nodes, {left} left"
    return (
        None if testbed.world_size > 1 else f"needs at least two ranks, {testbed.world_size} here: set slots_per_node"
    )


def _all(run: Run, testbed: Testbed, wanted: Collectives) -> tuple[list[Outcome], Present]:
    """What every operation came to, and who is left in the end."""
    writes_json = testbed.has_gpus and _writes_json(testbed, wanted.operations[0])
    outcomes: list[Outcome] = []
    present = Present(testbed)
    for operation in wanted.operations:
        if reason := _pointless(run, present.testbed, outcomes):
            outcomes.append(Outcome(operation, Verdict.NOT_RUN, f"{operation} was not tried: {reason}"))
            continue
        outcome = _one(run, present.testbed, wanted, operation, writes_json, verbose=not outcomes)
        if outcome.fabric_gone or outcome.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
            outcome, present = _missed(run, present, outcome)
        outcomes.append(outcome)
        log.log(_level(outcome), "%s", outcome.reason)
    return outcomes, present


def _pointless(run: Run, testbed: Testbed, outcomes: Sequence[Outcome]) -> str | None:
    """Why no further operation can say anything."""
    if any(outcome.fabric_gone for outcome in outcomes):
        return "the fabric is gone"
    return too_small(run, testbed)


def _missed(run: Run, before: Present, outcome: Outcome) -> tuple[Outcome, Present]:
    """Who is not there any more after `outcome`. Without them the rest may well work."""
    now = roll_call(run, before.testbed)
    if not now.problems:
        return outcome, before
    # Nodes that were taken away on purpose are no failure of the cluster, and nothing was measured either.
    verdict = Verdict.FAIL if now.suspects else Verdict.INCONCLUSIVE
    reason = f"{outcome.reason}; {'; '.join(now.problems)}"
    gone = replace(outcome, verdict=verdict, reason=reason, fabric_gone=False)
    return gone, replace(now, suspects=(*before.suspects, *now.suspects))


def _level(outcome: Outcome) -> int:
    return logging.INFO if outcome.verdict is Verdict.PASS else logging.WARNING


def _one(
    run: Run, testbed: Testbed, wanted: Collectives, operation: str, writes_json: bool, *, verbose: bool
) -> Outcome:
    """Sweep one operation and say what it came to."""
    json_file = f"{testbed.workdir}/{operation}-{run.run_id}.json" if writes_json else None
    argv = nccl_argv(wanted, operation, json_file) if testbed.has_gpus else gloo_argv(run, testbed, wanted, operation)
    fabric = _fabric(run, testbed)
    heard = _Heard(operation)
    try:
        result = mpirun(
            testbed,
            argv,
            timeout_s=wanted.timeout_s,
            env=_nccl_debug(testbed, verbose=verbose and fabric is not None),
            on_line=heard.line,
            is_done=lambda line: "# Avg bus bandwidth" in line or gave_up(line),
            log_file=run.logs / f"{operation}.log",
        )
    except RemoteError as error:
        return Outcome(operation, Verdict.FAIL, f"{operation}: {error}", fabric_gone=True)
    except LaunchError as error:  # the way to the head, not the head
        return Outcome(operation, Verdict.INCONCLUSIVE, f"{operation}: {error}", fabric_gone=True)
    finally:
        exact = _take_json(testbed, json_file, run.logs / f"{operation}.json") if json_file else None
    sizes = tuple(_sizes(testbed, wanted).sizes())
    setting = Setting(operation, wanted.dtype, testbed.world_size, run.cluster.name, sizes, fabric, len(testbed.nodes))
    return conclude(setting, result, _with_json(heard.sweep(), exact), heard.transport.transport())


def _sizes(testbed: Testbed, wanted: Collectives) -> Sizes:
    return wanted.gpu if testbed.has_gpus else wanted.cpu


def _fabric(run: Run, testbed: Testbed) -> str | None:
    """What data between nodes must go over, by NCCL_NET or the cluster's fabric; None where sockets, or nothing, do."""
    if not testbed.has_gpus or len(testbed.nodes) < 2:
        return None
    return network_of(dict(testbed.env).get("NCCL_NET") or run.cluster.fabric)


def _nccl_debug(testbed: Testbed, *, verbose: bool) -> Mapping[str, str]:
    if not testbed.has_gpus or not {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"}.isdisjoint(dict(testbed.env)):
        return {}
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"} if verbose else {"NCCL_DEBUG": "WARN"}


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


class _Heard:
    """Reads an operation's output as it arrives, however long it is, and says every row."""

    def __init__(self, operation: str) -> None:
        self.transport = TransportReader()
        self._operation = operation
        self._reader = SweepReader(operation)

    def line(self, line: str) -> None:
        self.transport.feed(line)
        for row in self._reader.feed(line):
            self._say(row)

    def sweep(self) -> Sweep | None:
        """The fullest sweep; None where there is nothing of one."""
        return max(self._reader.sweeps(), key=lambda sweep: len(sweep.rows), default=None)

    def _say(self, row: Row) -> None:
        side = row.out_of_place or row.in_place
        if side and side.time_us is not None:
            rate = f"{side.time_us:10.1f} us  {side.busbw_gb_s or 0:8.2f} GB/s"
            wrong = f"  {side.wrong} wrong" if side.wrong else ""
            log.info("%s", f"{self._operation} {format_size(row.size):>6}  {rate}{wrong}", extra={"row": row})


def _writes_json(testbed: Testbed, operation: str) -> bool:
    """Whether these nccl-tests can write their results to a file as well (-J, since 2.17.3)."""
    with suppress(RemoteError), connected(testbed, testbed.head, 30) as head:
        return "-J" in run_command(head, f"{operation}_perf --help", timeout_s=30).output
    return False


def _take_json(testbed: Testbed, json_file: str, keep: Path) -> Sweep | None:
    """The sweep in the file that rank 0 left on the head. It holds the whole environment, so it never stays there."""
    quoted = shlex.quote(json_file)
    with suppress(RemoteError, ValueError, InputError), connected(testbed, testbed.head, 30) as head:
        try:
            text = run_command(head, f"cat {quoted}", timeout_s=60).output
        finally:
            run_command(head, f"rm -f {quoted}", timeout_s=10)
        document = {key: value for key, value in json.loads(text).items() if key != "env"}
        clean = json.dumps(document, indent=1)
        keep.parent.mkdir(parents=True, exist_ok=True)
        keep.write_text(clean)
        return parse_text(clean, json_file)[0]
    return None


def _with_json(sweep: Sweep | None, exact: Sweep | None) -> Sweep | None:
    """The sweep with the file's rows and ranks, which no other output can tear; the outcome is what was printed."""
    if sweep is None or exact is None or len(exact.rows) < len(sweep.rows):
        return sweep
    return replace(sweep, rows=exact.rows, ranks=exact.ranks or sweep.ranks)


def _check(outcomes: Sequence[Outcome], ranks: int, seconds: float) -> Check:
    """The worst outcome, its reason first."""
    verdict = worst(outcome.verdict for outcome in outcomes)
    bad = [outcome for outcome in outcomes if outcome.verdict is not Verdict.PASS]
    reasons = [outcome.reason for outcome in sorted(bad, key=lambda outcome: outcome.verdict is not verdict)]
    right = f"{', '.join(outcome.operation for outcome in outcomes)} over {ranks} ranks: every result is right"
    right += next((f", {outcome.way}" for outcome in outcomes if outcome.way), "")
    measurements = tuple(m for outcome in outcomes for m in outcome.measurements)
    return Check("collectives", verdict, "; ".join(reasons) or right, seconds, measurements)


@task(name="collectives", cache_policy=NO_CACHE)
def collectives_task(run: Run, testbed: Testbed) -> Swept:
    return collectives(run, testbed)
