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
    return _rendered(
        JOB_SCRIPT,
        folder=folder,
        directives=directives(run.cluster, settings, job_name(run.run_id)),
        modules=load_modules(settings),
        container=container,
        job_log=JOB_LOG,
        node_script=NODE_SCRIPT,
        nodes_log=NODES_LOG,
    )


def _rendered(script: str, **values: object) -> str:
    """Fill in a template of a script; a value that it lacks is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("seatrial.platforms.slurm"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return templates.get_template(script).render(values)


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
    section = run.suite.section(Collectives)
    nccl = None
    if section and cluster.gpus and not left_out(COLLECTIVES, run):
        nccl = section.with_a_gpu_per_process()

    def assignments(env: Mapping[str, str]) -> list[str]:
        variables = container_env(settings, env)
        return [f"{name}={shlex.quote(value)}" for name, value in variables.items()]

    variables = {**cluster.env, **ENVIRONMENT[INTRA], **ENVIRONMENT[NETWORK]}
    plain, probing = (
        container_of(cluster, run.nodes_image, variables, mounts, "$container")
        for mounts in ((), ['"$probes":"$probes":ro'])
    )
    return _rendered(
        MEASURE_SCRIPT,
        cluster=cluster,
        settings=settings,
        folder=f"{settings.output}/" if settings.output else "",
        directives=directives(cluster, settings, f"seatrial-{cluster.name}", cluster.slots),
        modules=load_modules(settings),
        plain=plain,
        probing=probing,
        nccl_tests=NCCL_TESTS,
        environment=ENVIRONMENT,
        assignments=assignments,
        nccl_argv=nccl_argv,
        arm_operation=ARM_OPERATION,
        nccl=nccl,
        collectives=section,
        training=run.suite.section(Training),
        quote=shlex.quote,
        join=shlex.join,
    )
