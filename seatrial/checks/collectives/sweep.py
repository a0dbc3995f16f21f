"""Run one sweep of one operation over every rank, or over the ranks of each node, and read its
output.
"""

import logging
import shlex
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from seatrial.checks.collectives.outcome import SweepOutcome, conclude
from seatrial.checks.collectives.output import OutputReader
from seatrial.checks.collectives.problems import Setting, network_of
from seatrial.checks.collectives.section import Collectives, GpuSweepSizes, PlannedSweep
from seatrial.checks.failures import classify_failure, gave_up
from seatrial.checks.lost_ranks import lost_ranks
from seatrial.config.run import Run, secrets_of
from seatrial.model.errors import LaunchError, RemoteError
from seatrial.model.measurement import Conditions, Measurement
from seatrial.model.reason import Reason, extended, join, placed
from seatrial.model.result import Suspect
from seatrial.model.setup import ENVIRONMENT, INTRA, LATENCY
from seatrial.model.testbed import Node, Testbed
from seatrial.model.verdict import Verdict, worst
from seatrial.remote.mpi import hostfile_path, mpirun, mpirun_argv, variables
from seatrial.remote.ranks import rank_of
from seatrial.remote.ssh import answered, on_each
from seatrial.text.redact import Secrets
from seatrial.text.words import number

log = logging.getLogger("seatrial.collectives")

_NCCL_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
    "bfloat16": "bfloat16",
    "int32": "int32",
}


def sweep(
    run: Run,
    testbed: Testbed,
    settings: Collectives,
    planned: PlannedSweep,
    *,
    name_log: Callable[[str], str] = str,
    is_repeat: bool = False,
    verbose: bool = False,
) -> SweepOutcome:
    """Sweep one operation over all ranks; in the arm `intra`, over the ranks of each node alone.

    `name_log` returns the name of a log from the sweep's label, to which the arm `intra` appends
    the node. `is_repeat`: its sizes are not compared with each other.
    `verbose`: have NCCL log which network it uses.
    """
    once = partial(sweep_once, run, settings=settings, planned=planned, is_repeat=is_repeat)
    if planned.arm != INTRA:
        return once(testbed, label=name_log(planned.label), verbose=verbose)

    def on_node(node: Node) -> SweepOutcome:
        part = testbed.part([node.name], node.name)
        return once(part, label=name_log(f"{planned.label}-{node.name}"))

    nodes = testbed.nodes
    answers = on_each(nodes, on_node, at_once(testbed, [1] * len(nodes)))
    return _combined(f"{planned.operation} ({INTRA})", answered(answers))


def sweep_once(
    run: Run,
    testbed: Testbed,
    settings: Collectives,
    planned: PlannedSweep,
    *,
    label: str,
    is_repeat: bool = False,
    verbose: bool = False,
) -> SweepOutcome:
    """Run one mpirun of one operation; `label` names its logs."""
    setting = _setting(run, testbed, settings, planned, is_repeat=is_repeat)
    name = setting.name
    gpus_each = planned.gpus_each
    uneven = _uneven(testbed, gpus_each)
    if uneven:
        return SweepOutcome(name, Verdict.NOT_RUN, placed(name, uneven))
    testbed = of_processes(testbed, gpus_each)
    argv = _argv(run, testbed, settings, planned, label)
    env = _environment(testbed, planned.arm, verbose=verbose and setting.fabric is not None)
    reader = OutputReader(planned, setting, quiet=bool(testbed.label))
    try:
        result = mpirun(
            testbed,
            argv,
            timeout_s=settings.timeout_s,
            env=env,
            on_line=reader.line,
            is_done=_is_over,
            log_file=run.logs / f"{label}.log",
            secrets=secrets_of(run.cluster),
        )
    except (RemoteError, LaunchError) as error:
        # A LaunchError means that the way to the head failed, not the head
        verdict = Verdict.FAIL if isinstance(error, RemoteError) else Verdict.INCONCLUSIVE
        return SweepOutcome(name, verdict, placed(name, error.reason), fabric_gone=True)
    if result.flooded:  # its numbers may be wrong, so they are ignored
        suspects = result.flooders
        verdict, why = classify_failure(result, began=False)
        flooded = naming_flooders(placed(name, why), suspects)
        return SweepOutcome(name, verdict, flooded, suspects=suspects)
    outcome = conclude(setting, result, reader.sweep(), reader.transport.transport())
    if outcome.verdict is Verdict.FAIL:
        return replace(outcome, lost=lost_ranks(result, testbed))
    return outcome


def _uneven(testbed: Testbed, gpus_each: int) -> Reason | None:
    """Return the reason if a node's GPUs cannot be divided evenly among processes with `gpus_each`;
    else None.
    """
    for node in testbed.nodes:
        if node.slots % gpus_each:
            return Reason.of(
                "gpus-per-process-uneven", gpus=node.slots, node=node.name, each=gpus_each
            )
    return None


def _is_over(line: str) -> bool:
    """Return whether no row follows this line: it is the footer, or a rank gave up."""
    is_footer = rank_of(line) == 0 and "# Avg bus bandwidth" in line
    return is_footer or gave_up(line)


def _setting(
    run: Run, testbed: Testbed, settings: Collectives, planned: PlannedSweep, *, is_repeat: bool
) -> Setting:
    """Return the request of the sweep, by which its results are named and judged.

    `testbed` has a slot for each GPU, as ranks are counted.
    """
    called_with: Conditions = {}  # other arguments make another series
    if planned.gpus_each > 1:
        called_with["gpus_per_process"] = planned.gpus_each
    if planned.args:
        called_with["args"] = " ".join(planned.args)
    return Setting(
        operation=planned.operation,
        dtype=settings.dtype,
        ranks=testbed.world_size,
        cluster=run.cluster.name,
        sizes=tuple(planned.sizes.sizes()),
        fabric=_fabric(run, testbed),
        nodes=len(testbed.nodes),
        is_whole_on_gpus=testbed.has_gpus and not is_repeat and planned.arm != LATENCY,
        arm=planned.arm,
        node=testbed.head.name if planned.arm == INTRA else "",
        called_with=called_with,
    )


def of_processes(testbed: Testbed, gpus_each: int) -> Testbed:
    """Return the testbed with a slot for each process instead of each GPU.

    Remaining GPUs of a node are unused.
    """
    nodes = [replace(node, slots=node.slots // gpus_each) for node in testbed.nodes]
    return replace(testbed, nodes=tuple(nodes))


def _argv(
    run: Run, testbed: Testbed, settings: Collectives, planned: PlannedSweep, label: str
) -> list[str]:
    """Return the command line of a rank: nccl-tests on GPUs, else the gloo probe."""
    sizes = planned.sizes
    if isinstance(sizes, GpuSweepSizes):
        return nccl_argv(settings, planned.operation, sizes, testbed.nccl_tests)
    return gloo_argv(run, testbed, settings, planned, label)


def naming_flooders(reason: Reason, suspects: Sequence[Suspect]) -> Reason:
    """Append the names of the nodes that flooded the output to the reason."""
    names = ", ".join(suspect.name for suspect in suspects) or "the output does not name the node"
    return extended(reason, f" ({names})")


def planned_sweeps(testbed: Testbed, settings: Collectives) -> list[PlannedSweep]:
    """Return the sweeps of the suite for these nodes, in order."""
    slots = min(node.slots for node in testbed.nodes)
    return settings.sweeps(nodes=len(testbed.nodes), slots=slots, gpus=testbed.has_gpus)


def _environment(testbed: Testbed, arm: str, *, verbose: bool) -> dict[str, str]:
    """Return NCCL's variables for its log, unless the cluster file sets them, and for the arm;
    empty for gloo.
    """
    if not testbed.has_gpus:
        return {}
    debug = {"NCCL_DEBUG": "WARN"}
    if verbose:
        debug = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    if not {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"}.isdisjoint(dict(testbed.env)):
        debug = {}
    return {**debug, **ENVIRONMENT.get(arm, {})}


def _fabric(run: Run, testbed: Testbed) -> str | None:
    """Return the network that data between nodes must use, by NCCL_NET or the fabric; None if
    sockets will do.
    """
    if not testbed.has_gpus or len(testbed.nodes) < 2:
        return None
    return network_of(dict(testbed.env).get("NCCL_NET") or run.cluster.fabric)


def sweep_commands(run: Run, testbed: Testbed) -> list[str]:
    """Return the command line of each sweep of a run, with the environment that mpirun is given,
    for a shell.
    """
    settings = run.suite.section(Collectives)
    if settings is None:
        return []
    commands = []
    secrets = secrets_of(run.cluster)
    for planned in planned_sweeps(testbed, settings):
        verbose = _fabric(run, testbed) is not None and planned.label == settings.first_operation
        env = _environment(testbed, planned.arm, verbose=verbose)
        bed = of_processes(testbed, planned.gpus_each)
        argv = _argv(run, bed, settings, planned, planned.label)
        if planned.arm == INTRA:
            commands += _by_node(secrets, bed, argv, env)
        else:
            commands.append(shlex.join(_words(secrets, bed, argv, env)))
    return commands


def _words(
    secrets: Secrets, testbed: Testbed, argv: Sequence[str], env: Mapping[str, str]
) -> list[str]:
    """Return the words of a shell command: env, the ranks' variables, then mpirun, without secrets.

    `env` takes them in quotes too, where a shell would look for a command.
    """
    values = variables(testbed, env).items()
    assignments = [f"{name}={secrets.out_of_text(value)}" for name, value in values]
    return ["env", *assignments, *mpirun_argv(testbed, argv, env)]


def _by_node(
    secrets: Secrets, testbed: Testbed, argv: Sequence[str], env: Mapping[str, str]
) -> list[str]:
    """Return the shell lines that run the sweep on each node of the hostfile alone, on all nodes at
    once.
    """
    one = testbed.part([testbed.head.name], "$number")
    own = hostfile_path(one)
    words = _words(secrets, one, argv, env)
    quoted = [f'"{word}"' if word == own else shlex.quote(word) for word in words]
    return [
        "number=0",
        "while read -r node; do",
        "    number=$((number + 1))",
        f'    echo "$node" >"{own}"',
        f"    {' '.join(quoted)} </dev/null &",
        f"done <{shlex.quote(hostfile_path(testbed))}",
        "wait",
    ]


def nccl_argv(
    settings: Collectives, operation: str, sizes: GpuSweepSizes, folder: str | None = None
) -> list[str]:
    """Return the command line of nccl-tests in the folder, or on PATH."""
    flags = {
        "-b": sizes.min_bytes,
        "-e": sizes.max_bytes,
        "-f": sizes.step_factor,
        "-g": sizes.gpus_per_process,
        "-w": sizes.warmup_iterations,
        "-n": sizes.iterations,
    }
    argv = [program_of(operation, folder)]
    for flag, value in flags.items():
        argv += (flag, str(value))
    return [*argv, "-d", _NCCL_TYPES[settings.dtype], *sizes.args]


def program_of(operation: str, folder: str | None) -> str:
    """Return the program of nccl-tests for an operation, by its full path if a folder is given."""
    return f"{folder}/{operation}_perf" if folder else f"{operation}_perf"


def gloo_argv(
    run: Run, testbed: Testbed, settings: Collectives, planned: PlannedSweep, label: str
) -> list[str]:
    """Return the command line of the gloo probe, whose ranks meet under that label."""
    meeting = rendezvous_argv(run, testbed, label, settings.timeout_s)
    probe = [testbed.python, f"{testbed.workdir}/collective.py", "--operation", planned.operation]
    return [*probe, "--dtype", settings.dtype, *planned.sizes.probe_options(), *meeting]


def rendezvous_argv(run: Run, testbed: Testbed, label: str, timeout_s: float) -> list[str]:
    """Return the arguments for the ranks' rendezvous; ranks give up at half of the time limit, to
    report why.
    """
    # Below the kernel's range of ephemeral ports
    port = 20_000 + zlib.crc32(f"{run.run_id} {label}".encode()) % 10_000
    meeting = ["--master-addr", testbed.head.address, "--master-port", str(port)]
    if testbed.network:
        meeting += ("--network", testbed.network)
    return [*meeting, "--timeout-s", f"{timeout_s / 2:g}"]


def at_once(testbed: Testbed, groups: Sequence[int]) -> int:
    """Return how many groups to measure at once; `groups` are their numbers of nodes.

    All groups, or, if one machine plays all nodes, as many as it has cores for.
    """
    if testbed.shared_cores is None:
        return len(groups)
    most_slots = max(node.slots for node in testbed.nodes)
    ranks = most_slots * max(groups)
    return max(1, testbed.shared_cores // ranks)


def _combined(name: str, outcomes: Mapping[str, SweepOutcome]) -> SweepOutcome:
    """Return the joint outcome of the sweeps of single nodes.

    A node whose sweep breaks or has wrong results is a suspect, unless all nodes are bad.
    `fabric_gone`: some nodes could not be reached, so a roll call is due.
    """
    verdict = worst(outcome.verdict for outcome in outcomes.values())
    measurements = tuple(m for outcome in outcomes.values() for m in outcome.measurements)
    reasons = []
    broken = []
    for node, outcome in outcomes.items():
        if outcome.verdict is Verdict.PASS:
            continue
        reasons.append(placed(node, outcome.reason))
        is_its_own = outcome.verdict in (Verdict.FAIL, Verdict.CORRUPT)
        if is_its_own and not outcome.fabric_gone:
            broken.append(Suspect("node", node, 1.0, outcome.reason))
    if len(reasons) == len(outcomes):
        broken = []
    return SweepOutcome(
        operation=name,
        verdict=verdict,
        reason=join(reasons) or placed(name, _span(measurements, len(outcomes))),
        measurements=measurements,
        fabric_gone=any(outcome.fabric_gone for outcome in outcomes.values()),
        suspects=tuple(broken),
    )


def _span(plateaus: Sequence[Measurement], nodes: int) -> Reason:
    """Return the reason of a pass with the lowest and highest rate of the nodes; one rate if both
    look alike.
    """
    rates = [m.value for m in plateaus]
    ends = (number(min(rates, default=0.0)), number(max(rates, default=0.0)))
    span = " to ".join(dict.fromkeys(ends))
    return Reason.of("sweeps-right", rates=span, nodes=nodes)
