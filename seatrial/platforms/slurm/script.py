"""The scripts for Slurm: the job of a run, and one for people to submit by hand. Pure."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from seatrial.checks.collectives.check import COLLECTIVES
from seatrial.checks.collectives.section import ARM_OPERATION, Collectives
from seatrial.checks.collectives.sweep import nccl_argv
from seatrial.checks.table import left_out
from seatrial.checks.training.section import Training
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.setup import ENVIRONMENT, INTRA, NETWORK
from seatrial.platforms.container import apptainer_exec, apptainer_image, bind
from seatrial.platforms.slurm import SlurmPlatform
from seatrial.remote.probes.facts import NCCL_TESTS

NODE_SCRIPT = "node.sh"
JOB_SCRIPT = "job.sbatch"
NODES_LOG = "nodes.log"
JOB_LOG = "job.log"
_REFERENCE = re.compile(
    r"(?:(?P<registry>[^/]*[.:][^/]*|localhost)/)?(?P<path>[^:@]+)(?P<tag>:[^@]+)?(?:@(?P<digest>.+))?"
)
MEASURE_SCRIPT = "measure.sbatch"
_HEAD = """\
#
# Measures the nodes of this job, and judges nothing. They need no seatrial:{probes}
#     sbatch measure.sbatch
# Then, where seatrial is installed:
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
    return "$status"
}"""
_AT_ONCE = 128  # most parallel steps of srun, one for each node
# A named container is unpacked once on each node; Pyxis keeps it, so the job removes it.
_UNPACK = """\
container=seatrial-$SLURM_JOB_ID
remove_container() {{
    srun --mpi=none --ntasks={nodes} --ntasks-per-node=1 sh -c \\
        'command -v enroot >/dev/null && enroot remove --force "pyxis_$1"' sh "$container" >/dev/null 2>&1
}}
trap remove_container EXIT
srun --mpi=none --ntasks={nodes} --ntasks-per-node=1 \\
    {options} true ||
    {{ echo "container: the image cannot be unpacked on every node"; failed=1; }}"""
_BY_NODE = """\
# NVLink only: each node by itself, all of them at once.
steps=()
for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
    [ "$(jobs -rp | wc -l)" -lt {at_once} ] || wait -n
    options=(--nodes=1 --ntasks={gpus} --nodelist="$node")
    {assignments} \\
        measure "intra-$node" ranks {sweep} &
    steps+=("$!")
done
for step in "${{steps[@]}}"; do wait "$step" || failed=1; done
options=()
"""


def job_name(run_id: str) -> str:
    """Return the name of a run's job."""
    return f"seatrial-{run_id}"


def run_folder(settings: SlurmPlatform, run_id: str) -> str:
    """Return the run's folder on the shared file system, relative to the user's home if it is not a
    full path.
    """
    return f"{settings.folder}/{run_id}"


def job_script(run: Run, settings: SlurmPlatform) -> str:
    """Return the job that runs sshd on each node, until it is cancelled or its time is over."""
    folder = run_folder(settings, run.run_id)
    if run.taken and run.taken.gated:  # the nodes were drained, and are reserved for the run
        settings = settings.model_copy(update={"reservation": job_name(run.run_id)})
    there = folder if folder.startswith("/") else f'"$HOME"/{folder}'
    container = container_of(
        run.cluster,
        run.nodes_image,
        mounts=[f"{there}:{there}"] if settings.launch == "srun" else [],
    )
    return "\n".join(
        [
            "#!/bin/sh",
            *directives(run.cluster, settings, job_name(run.run_id)),
            f"#SBATCH --output={folder}/{JOB_LOG}",
            "#SBATCH --no-requeue",  # the run's keys are for one start only
            "set -eu",
            *load_modules(settings),
            "# One sshd per node. The keys come by standard input.",
            (
                "exec srun --label --ntasks-per-node=1 --cpu-bind=none --mem=0 --mpi=none "
                "--kill-on-bad-exit=0 \\"
            ),
            *(
                f"    {option} \\"
                for option in (*container.options, " ".join(container.command))
                if option
            ),
            f"    sh -s <{folder}/{NODE_SCRIPT} >{folder}/{NODES_LOG} 2>&1",
            "",
        ]
    )


def directives(
    cluster: Cluster, settings: SlurmPlatform, name: str, tasks_per_node: int = 1
) -> Iterator[str]:
    """Yield the #SBATCH lines."""
    options = {
        "job-name": name,
        "nodes": cluster.nodes,
        "ntasks-per-node": tasks_per_node,
        "gpus-per-node": cluster.gpus if cluster.gpus and not settings.gres else None,
        "gres": settings.gres,
        "time": settings.time_limit,
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "reservation": settings.reservation,
        "constraint": settings.constraint,
        "nodelist": settings.nodelist,
        "exclude": settings.exclude,
        "switches": settings.switches,
    }
    yield from (
        f"#SBATCH --{option}={value}" for option, value in options.items() if value is not None
    )
    yield "#SBATCH --exclusive"  # other jobs on the nodes would disturb measurements
    yield from (f"#SBATCH {option}" for option in settings.args)


def load_modules(settings: SlurmPlatform) -> Iterator[str]:
    """Yield the lines that load environment modules."""
    if settings.modules:
        # `module` is a function of login shells, and reads unset variables
        yield "set +u"
        yield (
            "command -v module >/dev/null || . "
            '"${LMOD_PKG:-${MODULESHOME:-/usr/share/modules}}/init/sh"'
        )
        yield from (f"module load {name}" for name in settings.modules)
        yield "set -u"


@dataclass(frozen=True, slots=True)
class Container:
    """The container of a step, quoted for a shell: `options` of srun, and `command` as a prefix of
    the program.
    """

    options: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


def container_of(
    cluster: Cluster,
    image: str,
    names: Iterable[str] = (),
    mounts: Sequence[str] = (),
    name: str = "",
) -> Container:
    """Return the container of the cluster file; empty if nodes run their own software.

    `names` are variables that override the image's. `mounts` are further binds, and `name` is the
    container that Pyxis keeps for later steps, both as words for a shell.
    """
    settings = cluster.platform
    assert isinstance(settings, SlurmPlatform)
    binds = [*(shlex.quote(bind(mount)) for mount in settings.mounts), *mounts]
    if settings.runtime == "none":
        return Container()
    if settings.runtime == "pyxis":
        options = [f"--container-image={shlex.quote(pyxis_image(image))}"]
        if binds:
            options.append(f"--container-mounts={','.join(binds)}")
        if name:
            options.append(f'--container-name="{name}"')
        if exported := sorted(names):
            options.append(f"--container-env={','.join(exported)}")
        # Keep the user, for the login, and skip the entry point, which would start another sshd.
        return Container((*options, "--no-container-entrypoint", "--no-container-remap-root"))
    return Container(
        command=(
            *apptainer_exec(cluster, settings.runtime, binds),
            shlex.quote(apptainer_image(image)),
        )
    )


def container_env(settings: SlurmPlatform, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a step, so that they override the image's too."""
    prefix = {"apptainer": "APPTAINERENV_", "singularity": "SINGULARITYENV_"}.get(settings.runtime)
    return {**env, **({f"{prefix}{name}": value for name, value in env.items()} if prefix else {})}


def pyxis_image(image: str) -> str:
    """Return a reference as Pyxis expects it, `[REGISTRY#]IMAGE[:TAG]`; a path is unchanged.

    A digest replaces the tag: Enroot asks the registry for either, and its older releases do not
        know `@`.
    """
    match = _REFERENCE.fullmatch(image)
    if image.startswith("/") or not match:
        return image
    registry = f"{match['registry']}#" if match["registry"] else ""
    tag = f":{match['digest']}" if match["digest"] else match["tag"] or ""
    return f"{registry}{match['path']}{tag}"


def measure_script(run: Run, settings: SlurmPlatform) -> str:
    """Return the script for measuring by hand, with the sizes of the run's suite."""
    cluster = run.cluster
    names = list(_probe_names(run))
    variables = {**cluster.env, **ENVIRONMENT[INTRA], **ENVIRONMENT[NETWORK]}
    plain, probing = (
        container_of(cluster, run.nodes_image, variables, mounts, "$container")
        for mounts in ((), ['"$probes":"$probes":ro'])
    )
    lines = [
        "#!/bin/bash",
        *directives(cluster, settings, f"seatrial-{cluster.name}", cluster.slots),
        f"#SBATCH --output={_in_folder(settings, 'seatrial-%j.out')}",
        _HEAD.format(
            judge=_judge_command(cluster, _in_folder(settings, "seatrial-JOBID")),
            probes="".join(
                f"\n#     seatrial probe {name} # its file goes where you submit" for name in names
            ),
        ),
        *load_modules(settings),
        *(f"export {assignment}" for assignment in _assignments(settings, cluster.env)),
        f"out={_in_folder(settings, 'seatrial-$SLURM_JOB_ID')}",
        _FUNCTIONS,
        "options=() # of srun, for some of the measurements",
        "# What NCCL is told begins each log: `seatrial judge` knows an arm by it.",
        *_ranks("ranks", cluster, settings, plain),
        "",
        *_unpacking(cluster, plain),
        "# Connectivity: a task starts on every node of the job.",
        f"measure hostnames srun --mpi=none --ntasks={cluster.nodes} --ntasks-per-node=1 hostname",
        f'[ "$(sort -u "$out/hostnames.log" | wc -l)" = {cluster.nodes} ] ||',
        f'    {{ echo "hostnames: {cluster.nodes} different ones are expected"; failed=1; }}',
        "",
        *(_nccl_tests(run, settings) if cluster.gpus else ()),
        *(_probes(run, settings, probing) if names else ()),
        'exit "$failed"',
        "",
    ]
    return "\n".join(lines)


def _unpacking(cluster: Cluster, container: Container) -> Iterator[str]:
    """Yield the lines that unpack the image of Pyxis once per node, instead of once per
    measurement.
    """
    if container.options:
        options = " \\\n    ".join(container.options)
        yield "# The image is unpacked once on each node."
        yield _UNPACK.format(nodes=cluster.nodes, options=options)
        yield ""


def _in_folder(settings: SlurmPlatform, name: str) -> str:
    return f"{settings.output}/{name}" if settings.output else name


def _judge_command(cluster: Cluster, logs: str) -> str:
    argv = [
        "seatrial",
        "judge",
        logs,
        "--hardware",
        cluster.hardware.name,
        "--nodes",
        str(cluster.nodes),
    ]
    argv += ["--gpus-per-node", str(cluster.gpus)] if cluster.gpus else []
    return shlex.join([*argv, "--fabric", cluster.fabric] if cluster.fabric else argv)


def _ranks(
    name: str, cluster: Cluster, settings: SlurmPlatform, container: Container
) -> Iterator[str]:
    """Yield the shell function that starts a rank per GPU, or per slot, in the container if there
    is one.
    """
    yield f"{name}() {{ # COMMAND..."
    yield "    env | grep -o 'NCCL_[A-Z0-9_]*=.*' | sort -u"
    yield (
        f"    srun --cpu-bind=none --mem=0 --mpi={settings.mpi_plugin} "
        f"--ntasks-per-node={cluster.slots} \\"
    )
    yield from (
        f"        {option} \\" for option in (*container.options, '${options[@]+"${options[@]}"}')
    )
    find = f'PATH={NCCL_TESTS}; exec "$@"'  # nccl-tests are not on PATH in every image
    yield "        " + " ".join((*container.command, "sh", "-c", shlex.quote(find), "sh", '"$@"'))
    yield "}"


def _assignments(settings: SlurmPlatform, env: Mapping[str, str]) -> list[str]:
    return [f"{name}={shlex.quote(value)}" for name, value in container_env(settings, env).items()]


def _nccl_tests(run: Run, settings: SlurmPlatform) -> Iterator[str]:
    """Yield the sweeps with NCCL as training uses it, then the arms: each node alone, network
    alone, small messages.
    """
    cluster = run.cluster
    section = run.suite.section(Collectives)
    if section is None or left_out(COLLECTIVES, run):
        return
    section = section.with_a_gpu_per_process()
    folder = cluster.nccl_tests
    sweep = shlex.join(nccl_argv(section, ARM_OPERATION, section.gpu, folder))
    yield "# nccl-tests as training uses NCCL: one rank for each GPU, over whatever NCCL chooses."
    for operation in section.operations:
        yield (
            f"measure {operation} ranks "
            f"{shlex.join(nccl_argv(section, operation, section.gpu, folder))}"
        )
    yield ""
    if cluster.gpus > 1:
        yield _BY_NODE.format(
            at_once=_AT_ONCE,
            gpus=cluster.gpus,
            assignments=" ".join(_assignments(settings, ENVIRONMENT[INTRA])),
            sweep=sweep,
        )
    if cluster.nodes > 1:
        yield "# The network alone: GPUs of one node use it too, and Ring loads every link alike."
        yield f"{' '.join(_assignments(settings, ENVIRONMENT[NETWORK]))} \\"
        yield f"    measure network ranks {sweep}"
        yield ""
    yield "# Latency: small messages, many times."
    latency = nccl_argv(section, ARM_OPERATION, section.gpu_latency, folder)
    yield f"measure latency ranks {shlex.join(latency)}"
    yield ""


def _probe_names(run: Run) -> Iterator[str]:
    """Yield the probes that the script runs."""
    if run.suite.section(Collectives) and not run.cluster.gpus:
        yield "collective"
    if run.suite.section(Training):
        yield "training"


def _probes(run: Run, settings: SlurmPlatform, container: Container) -> Iterator[str]:
    """Yield the lines that run seatrial's probes: collectives on nodes without GPUs, and the
    training.
    """
    cluster = run.cluster
    collectives = run.suite.section(Collectives)
    training = run.suite.section(Training)
    yield (
        "# Files of `seatrial probe`, in a folder that all nodes see. They need torch, and "
        "nothing of seatrial."
    )
    yield "probes=${SEATRIAL_PROBES:-$PWD}"
    # In a container the probes need a mount
    ranks = "ranks" if container == Container() else "probing_ranks"
    yield from () if ranks == "ranks" else _ranks(ranks, cluster, settings, container)
    yield "probe() { # NAME OPTION...: by every rank, which meet at the first node of the job"
    yield "    local name=$1"
    yield "    shift"
    yield "    local file=$probes/$name.pyz"
    yield (
        '    [ -f "$file" ] || { echo "$file is missing: seatrial probe $name writes it"; '
        "return 1; }"
    )
    yield f'    {ranks} {shlex.quote(settings.python)} "$file" "$@" \\'
    yield '        --master-port "$((20000 + SLURM_JOB_ID % 10000))"'
    yield "}"
    if collectives and not cluster.gpus:
        sizes = " ".join(collectives.cpu.probe_options())
        for operation in collectives.operations:
            yield (
                f"measure {operation} probe collective --operation {operation} --dtype "
                f"{collectives.dtype}"
                f" {sizes} --timeout-s {collectives.timeout_s / 2:g}"
            )
    if training:
        yield (
            f"measure training probe training --device {'cuda' if cluster.gpus else 'cpu'}"
            f" {shlex.join(training.workload(gpus=bool(cluster.gpus)).arguments())}"
            f" --timeout-s {training.timeout_s / 2:g}"
        )
