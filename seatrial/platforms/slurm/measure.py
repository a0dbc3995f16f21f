"""A batch script that a person submits by hand: the whole measurement by srun, as logs for `seatrial judge`. Pure."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from seatrial.checks.collectives.check import COLLECTIVES
from seatrial.checks.collectives.section import ARM_OPERATION, LATENCY_SIZES, Collectives
from seatrial.checks.collectives.sweep import nccl_argv
from seatrial.checks.table import left_out
from seatrial.checks.training.section import Training
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.arms import ENVIRONMENT, INTRA, NETWORK
from seatrial.platforms.slurm.config import SlurmPlatform
from seatrial.platforms.slurm.runtime import Container, container_env, container_of
from seatrial.platforms.slurm.script import directives, load_modules

MEASURE_SCRIPT = "measure.sbatch"
_PROBES = Path(__file__).parents[2] / "remote" / "probes"

_HEAD = """\
#
# Measures the nodes of this job, and judges nothing:
#     sbatch measure.sbatch
# Then, where seatrial is installed, for each log in {logs}/:
#     {judge}
#
# Every measurement is one srun. If one fails, the others still run, and the job ends with status 1.
set -u"""

_FUNCTIONS = """\
mkdir -p "$out" || exit 1
failed=0

measure() { # NAME COMMAND...: its output goes to $out/NAME.log
    local name=$1 status=0
    shift
    echo "$(date +%H:%M:%S) $name"
    "$@" >"$out/$name.log" 2>&1 || status=$?
    [ "$status" = 0 ] || { echo "$name: exit status $status, see $out/$name.log"; failed=1; }
}"""


def measure_script(run: Run, settings: SlurmPlatform) -> str:
    """The script, with the sizes of the run's suite."""
    cluster = run.cluster
    container = container_of(
        cluster,
        run.nodes_image,
        {**cluster.env, **ENVIRONMENT[INTRA], **ENVIRONMENT[NETWORK]},
        ['"$probes":"$probes":ro'],
    )
    lines = [
        "#!/bin/bash",
        *directives(cluster, settings, f"seatrial-{cluster.name}", cluster.slots),
        f"#SBATCH --output={_in_folder(settings, 'seatrial-%j.out')}",
        _HEAD.format(judge=_judge_command(cluster), logs=_in_folder(settings, "seatrial-JOBID")),
        *load_modules(settings),
        *(f"export {words}" for words in _assignments(settings, cluster.env)),
        f"out={_in_folder(settings, 'seatrial-$SLURM_JOB_ID')}",
        _FUNCTIONS,
        f"probes=${{SEATRIAL_PROBES:-{shlex.quote(str(_PROBES))}}} # programs of seatrial's own",
        *_ranks(cluster, settings, container),
        "",
        "# Connectivity: a task starts on every node of the job.",
        f"measure hostnames srun --mpi=none --ntasks={cluster.nodes} --ntasks-per-node=1 hostname",
        f'[ "$(sort -u "$out/hostnames.log" | wc -l)" = {cluster.nodes} ] ||',
        f'    {{ echo "hostnames: {cluster.nodes} different ones are expected"; failed=1; }}',
        "",
        *(_nccl_tests(run, settings) if cluster.gpus else ()),
        *_probes(run, settings),
        'exit "$failed"',
        "",
    ]
    return "\n".join(lines)


def _in_folder(settings: SlurmPlatform, name: str) -> str:
    return f"{settings.output}/{name}" if settings.output else name


def _judge_command(cluster: Cluster) -> str:
    words = ["seatrial", "judge", "LOG", "--hardware", cluster.hardware.name, "--nodes", str(cluster.nodes)]
    words += ["--gpus-per-node", str(cluster.gpus)] if cluster.gpus else []
    return shlex.join([*words, "--fabric", cluster.fabric] if cluster.fabric else words)


def _ranks(cluster: Cluster, settings: SlurmPlatform, container: Container) -> Iterator[str]:
    """The function that starts one rank for each GPU, or slot, in the container where there is one."""
    yield "options=() # of srun, for some of the measurements"
    yield "# What NCCL is told begins each log: `seatrial judge` knows an arm by it."
    yield "ranks() { # COMMAND..."
    yield "    env | grep -o 'NCCL_[A-Z0-9_]*=.*' | sort -u"
    yield f"    srun --cpu-bind=none --mem=0 --mpi={settings.mpi_plugin} --ntasks-per-node={cluster.slots} \\"
    yield from (f"        {words} \\" for words in (*container.options, '${options[@]+"${options[@]}"}'))
    yield "        " + " ".join((*container.command, '"$@"'))
    yield "}"


def _assignments(settings: SlurmPlatform, env: Mapping[str, str]) -> list[str]:
    return [f"{name}={shlex.quote(value)}" for name, value in container_env(settings, env).items()]


def _nccl_tests(run: Run, settings: SlurmPlatform) -> Iterator[str]:
    """As training uses NCCL, and then the arms: inside each node, over the network alone, and small messages."""
    cluster, section = run.cluster, run.suite.section(Collectives)
    if section is None or left_out(COLLECTIVES, run):
        return
    sweep = shlex.join(nccl_argv(section, ARM_OPERATION, None))
    yield "# nccl-tests as training uses NCCL: one rank for each GPU, over whatever NCCL chooses."
    for operation in section.operations:
        yield f"measure {operation} ranks {shlex.join(nccl_argv(section, operation, None))}"
    yield ""
    if cluster.gpus > 1:
        yield "# NVLink only: each node by itself. Judge these logs with --nodes 1."
        yield 'for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do'
        yield f'    options=(--nodes=1 --ntasks={cluster.gpus} --nodelist="$node")'
        yield f"    {' '.join(_assignments(settings, ENVIRONMENT[INTRA]))} \\"
        yield f'        measure "intra-$node" ranks {sweep}'
        yield "done"
        yield "options=()"
        yield ""
    if cluster.nodes > 1:
        yield "# The network alone: GPUs of one node use it too, and Ring loads every link alike."
        yield f"{' '.join(_assignments(settings, ENVIRONMENT[NETWORK]))} \\"
        yield f"    measure network ranks {sweep}"
        yield ""
    yield "# Latency: small messages, many times."
    yield f"measure latency ranks {shlex.join(nccl_argv(section, ARM_OPERATION, None, LATENCY_SIZES[True]))}"
    yield ""


def _probes(run: Run, settings: SlurmPlatform) -> Iterator[str]:
    """Programs of seatrial's own: collectives where there are no GPUs, and the training smoke."""
    cluster, collectives, training = run.cluster, run.suite.section(Collectives), run.suite.section(Training)
    yield "# Probes: they need a seatrial that all nodes can read, and torch."
    yield "probe() { # NAME OPTION...: by every rank, which meet at the first node of the job"
    yield "    local name=$1"
    yield "    shift"
    yield f'    ranks {shlex.quote(settings.python)} "$probes/$name.py" "$@" \\'
    yield '        --master-port "$((20000 + SLURM_JOB_ID % 10000))"'
    yield "}"
    if collectives and not cluster.gpus:
        sizes = collectives.cpu
        for operation in collectives.operations:
            yield (
                f"measure {operation} probe collective --operation {operation} --dtype {collectives.dtype}"
                f" --min-bytes {sizes.min_bytes} --max-bytes {sizes.max_bytes} --step-factor {sizes.step_factor}"
                f" --warmup-iterations {sizes.warmup_iterations} --iterations {sizes.iterations}"
                f" --timeout-s {collectives.timeout_s / 2:g}"
            )
    if training:
        yield (
            f"measure training probe training --device {'cuda' if cluster.gpus else 'cpu'}"
            f" {shlex.join(training.workload(gpus=bool(cluster.gpus)).arguments())}"
            f" --timeout-s {training.timeout_s / 2:g}"
        )
