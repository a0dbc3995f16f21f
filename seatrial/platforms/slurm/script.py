"""What is submitted: the job's script, and what each node runs. Pure."""

from collections.abc import Iterator

from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.platforms.slurm.config import SlurmPlatform
from seatrial.platforms.slurm.runtime import container_of

NODE_SCRIPT, JOB_SCRIPT, NODES_LOG, JOB_LOG = "node.sh", "job.sbatch", "nodes.log", "job.log"


def job_name(run_id: str) -> str:
    """By which a run's job is found again."""
    return f"seatrial-{run_id}"


def run_folder(settings: SlurmPlatform, run_id: str) -> str:
    """On the file system that login and nodes share; from the user's home where it is no full path."""
    return f"{settings.folder}/{run_id}"


def job_script(run: Run, settings: SlurmPlatform) -> str:
    """Holds the nodes and runs sshd on each, until somebody cancels it or its time is over."""
    folder = run_folder(settings, run.run_id)
    there = folder if folder.startswith("/") else f'"$HOME"/{folder}'
    container = container_of(
        run.cluster, run.nodes_image, mounts=[f"{there}:{there}"] if settings.launch == "srun" else []
    )
    return "\n".join(
        [
            "#!/bin/sh",
            *directives(run.cluster, settings, job_name(run.run_id)),
            f"#SBATCH --output={folder}/{JOB_LOG}",
            "#SBATCH --no-requeue",  # the keys of the run are for one start
            "set -eu",
            *load_modules(settings),
            "# One sshd per node. The keys come by standard input.",
            "exec srun --label --ntasks-per-node=1 --cpu-bind=none --mem=0 --mpi=none --kill-on-bad-exit=0 \\",
            *(f"    {words} \\" for words in (*container.options, " ".join(container.command)) if words),
            f"    sh -s <{folder}/{NODE_SCRIPT} >{folder}/{NODES_LOG} 2>&1",
            "",
        ]
    )


def directives(cluster: Cluster, settings: SlurmPlatform, name: str, tasks_per_node: int = 1) -> Iterator[str]:
    """The lines that sbatch reads."""
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
    yield from (f"#SBATCH --{option}={value}" for option, value in options.items() if value is not None)
    yield "#SBATCH --exclusive"  # other jobs on the nodes would be measured too
    yield from (f"#SBATCH {option}" for option in settings.args)


def load_modules(settings: SlurmPlatform) -> Iterator[str]:
    """Lines of the job's script."""
    if settings.modules:
        # `module` is a function of login shells, and reads variables that are not set
        yield "set +u"
        yield 'command -v module >/dev/null || . "${LMOD_PKG:-${MODULESHOME:-/usr/share/modules}}/init/sh"'
        yield from (f"module load {name}" for name in settings.modules)
        yield "set -u"
