"""Nodes as the steps of one job of Slurm: reasons and settings."""

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from seatrial.config.cluster import Cluster, PlatformSettings, Seconds
from seatrial.config.image import Mount
from seatrial.model.reason import Explanation, register
from seatrial.platforms.openssh import Host, SshSettings

REASONS = {
    "slurm-command-missing": Explanation(
        "{command} is missing on {place}",
        "Slurm's commands are not installed there, or not on PATH.",
        "Run seatrial where `sinfo` works, such as on the login node.",
    ),
    "slurm-command-failed": Explanation(
        "{command} on {place} failed: {problem}",
        "One of Slurm's commands ended with an error, or not in time. The end of the line has its words.",
        "Run the command by hand on the login node, and `scontrol ping`.",
        formerly=("slurm-command-timeout",),
    ),
    "slurm-submit-refused": Explanation(
        "sbatch refused the job: {problem}",
        "The job asks for what the cluster lacks, or what the user may not use. The line ends with Slurm's words.",
        "Compare `platform` of the cluster file with `sinfo` and `sacctmgr show associations user=$USER`.",
    ),
    "slurm-pyxis-missing": Explanation(
        "srun on {place} has no option --container-image",
        "The plugin Pyxis, which `platform.runtime: pyxis` needs, is not in Slurm's configuration there.",
        "Ask the cluster's administrator for Pyxis, or set `platform.runtime` to apptainer, singularity or none.",
    ),
    "slurm-mpi-plugin-missing": Explanation(
        "srun on {place} has no MPI plugin {plugin}; it has: {known}",
        "`platform.launch: srun` starts ranks with the plugin that `platform.mpi_plugin` names.",
        "Set `platform.mpi_plugin` to one that the line names, and build nccl-tests with an MPI that uses it.",
    ),
    "slurm-image-unreadable": Explanation(
        "image {image} cannot be read on {place}",
        "The file is not there, or its permissions or those of a folder above it keep the user out.",
        "Put the image on a file system that the login node and all nodes share, and name its full path.",
    ),
    "slurm-never-starts": Explanation(
        "job {job} will never start ({pending}): {meaning}",
        "The job is pending for a reason that waiting does not change.",
        "Change what the line names in `platform` of the cluster file, or ask the cluster's administrator.",
    ),
    "slurm-queued-too-long": Explanation(
        "job {job} did not start within {limit_s} s (queue_timeout_s): {pending}: {meaning}",
        "The job was still pending when its time was over.",
        "Wait, raise `platform.queue_timeout_s`, or choose another partition. `squeue --start` estimates the start.",
    ),
    "slurm-nodes-silent": Explanation(
        "no node of job {job} was ready within {limit_s} s (start_timeout_s): {problem}",
        "The job runs, and its step does not bring up sshd on any node.",
        "Read `logs/nodes/` and `logs/job.log` of the run.",
    ),
    "slurm-step-failed": Explanation(
        "{node}: {problem}",
        "The step of the job could not start sshd on the node.",
        "Read `logs/nodes/NODE.log`, and remove the error that the end of the line names.",
    ),
    "slurm-job-cancelled": Explanation(
        "job {job} was {how}{detail}",
        "A person, a limit of the site or a job of higher priority took the nodes. No node is to blame.",
        "`sacct -D -j JOB` shows who, where accounting is on. Submit it again, or use a QOS that is not preempted.",
        formerly=("slurm-job-preempted", "slurm-job-requeued"),
    ),
    "slurm-job-timed-out": Explanation(
        "job {job} reached its time limit{detail}",
        "Slurm ended the nodes because `platform.time_limit` was over. No node is to blame.",
        "Raise `platform.time_limit`, or choose a shorter suite.",
    ),
    "slurm-time-limit-short": Explanation(
        "time_limit is {limit}, and {check} of suite {suite} alone may take {longest}",
        "Slurm would end the nodes before the suite's own timeout, which names the cause. Nothing was submitted.",
        "Raise `platform.time_limit` above the sum of the suite's timeouts, or choose a shorter suite.",
    ),
    "slurm-node-failed": Explanation(
        "job {job} lost a node{detail}",
        "Slurm considers a node of the job down.",
        "Look at the node: `scontrol show node NODE` has Slurm's reason.",
    ),
    "slurm-job-held": Explanation(
        "job {job} is held: {pending}",
        "The job waits for a person, or Slurm could not start it and held it.",
        "Run `scontrol release JOB`, or ask the user who holds it. `slurmd`'s log has the cause of a failed launch.",
    ),
    "slurm-job-failed": Explanation(
        "job {job} {how}{detail}",
        "The batch script or its step ended while the run still needed its nodes.",
        "Read `logs/job.log` and `logs/nodes/` of the run. `sacct -j JOB` has the cause, where accounting is on.",
        formerly=("slurm-job-ended",),
    ),
    "slurm-job-gone": Explanation(
        "job {job} is not known to Slurm any more",
        "slurmctld has forgotten the job, and there is no accounting to ask.",
        "Turn accounting on, or raise `MinJobAge` in slurm.conf, so that the end of a job can be asked for.",
    ),
    "slurm-job-does-not-end": Explanation(
        "job {job} is still {state} {seconds} s after it was cancelled, on {nodes}",
        "Processes of the job do not end, or slurmd does not answer.",
        "Look at the nodes: Slurm drains a node whose processes do not end.",
    ),
}

register(REASONS)

_TIME = re.compile(r"(?:(\d{1,3})-)?(\d{1,4})(?::(\d{1,2}))?(?::(\d{1,2}))?")
_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.@:,/+-]*$"
_OWN_OPTIONS = re.compile(
    r"--(job-name|nodes|ntasks|ntasks-per-node|time|output|error|parsable|wrap|array|partition|account|qos"
    r"|reservation|constraint|nodelist|exclude|switches|gres|gpus|gpus-per-node|requeue|no-requeue|chdir|wait)(=|$)"
)


def _legal_time(value: str) -> str:
    seconds(value)
    return value


def seconds(time_limit: str) -> int:
    """The seconds of a time limit as sbatch reads it: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S. Raises ValueError."""
    match = _TIME.fullmatch(time_limit)
    if not match:
        raise ValueError(f'must be as sbatch reads it, such as "01:30:00" or "1-12:00:00", is {time_limit!r}')
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None or len(numbers) == 3:
        hours, minutes, rest = [*numbers, 0, 0][:3]
    else:
        hours, (minutes, rest) = 0, [*numbers, 0][:2]
    total = int(days or 0) * 86400 + hours * 3600 + minutes * 60 + rest
    if not 60 <= total <= 30 * 86400:
        raise ValueError(f"must be from one minute to 30 days, is {time_limit!r}")
    return total


def _legal_option(value: str) -> str:
    if not re.fullmatch(r"--[a-z][a-z-]*(=[^\s\"'\\]+)?", value):
        raise ValueError(f"must be one option with its value, such as --mem=0, is {value!r}")
    if own := _OWN_OPTIONS.match(value):
        raise ValueError(f"--{own[1]} is set by another field or by seatrial; leave it out")
    return value


def _legal_folder(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_./+-]+", value) or value.startswith("-") or ".." in value.split("/"):
        raise ValueError(f"must be a path of letters, digits and _ . / + -, without .., is {value!r}")
    return value


Name = Annotated[str, Field(pattern=_NAME, max_length=255)]
NodeList = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]*$", max_length=10_000)]
Constraint = Annotated[str, Field(pattern=r"^[A-Za-z0-9_\[(][A-Za-z0-9_.&|*,:()\[\]-]*$", max_length=1000)]


class SlurmPlatform(SshSettings, PlatformSettings):
    """A Slurm cluster, from this machine or a login node."""

    kind: Literal["slurm"] = Field(description="a Slurm cluster")
    host: Host | None = Field(None, description="login node, as ssh knows it; this machine when unset")
    partition: Name | None = Field(None, description="--partition; Slurm's default when unset")
    account: Name | None = Field(None, description="--account")
    qos: Name | None = Field(None, description="--qos")
    reservation: Name | None = Field(None, description="--reservation")
    constraint: Constraint | None = Field(None, description="--constraint: features that nodes must have")
    nodelist: NodeList | None = Field(None, description="--nodelist: nodes that must take part, such as gpu-[01-08]")
    exclude: NodeList | None = Field(None, description="--exclude: nodes to leave alone")
    switches: Annotated[str, Field(pattern=r"^[1-9]\d*(@[0-9:-]+)?$")] | None = Field(
        None, description="--switches: most leaf switches, such as 1 or 1@30:00"
    )
    gres: Annotated[str, Field(pattern=r"^[a-z]+(:[A-Za-z0-9_.-]+)*(,[a-z]+(:[A-Za-z0-9_.-]+)*)*$")] | None = Field(
        None, description="--gres, such as gpu:h100:8, in place of --gpus-per-node"
    )
    time_limit: Annotated[str, AfterValidator(_legal_time)] = Field(
        "01:00:00", description="--time, in quotes; longer than the suite"
    )
    args: tuple[Annotated[str, AfterValidator(_legal_option)], ...] = Field(
        (), description="further options of sbatch, such as --mem=0"
    )
    launch: Literal["sshd", "srun"] = Field(
        "sshd", description="what starts ranks: mpirun over the nodes' sshd, or srun"
    )
    runtime: Literal["none", "pyxis", "apptainer", "singularity"] = Field("none", description="what starts `image`")
    mounts: tuple[Mount, ...] = Field((), description="files and folders that the containers see")
    modules: tuple[Name, ...] = Field((), description="environment modules that every node loads, such as openmpi/4.1")
    mpi_plugin: Literal["pmix", "pmi2", "none"] = Field(
        "pmix", description="srun --mpi: what nccl-tests was built with"
    )
    output: Annotated[str, AfterValidator(_legal_folder)] | None = Field(
        None, description="existing folder for what the script by hand writes"
    )
    folder: Annotated[str, AfterValidator(_legal_folder)] = Field(
        ".seatrial", description="for the files of runs, shared by all nodes; below the user's home"
    )
    python: Annotated[str, AfterValidator(_legal_folder)] = Field("python3", description="on the nodes, with torch")
    queue_timeout_s: Seconds = Field(3600, description="seconds until the nodes start")
    start_timeout_s: Seconds = Field(300, description="seconds that started nodes have to answer")

    pulls_images: ClassVar[bool] = True
    isolates: ClassVar[bool] = True
    qualifies: ClassVar[bool] = True
    takes_image_files: ClassVar[bool] = True

    @property
    def time_limit_s(self) -> int:
        """Seconds after which Slurm ends the nodes."""
        return seconds(self.time_limit)

    def problems(self, cluster: Cluster) -> Iterator[str]:
        if self.gres and cluster.hardware.name == "cpu":
            yield "platform.gres: needs hardware that has GPUs"
        for name in ("user", "port", "jump", "key_file", "ssh_config"):
            if getattr(self, name) is not None and self.host is None:
                yield f"platform.{name}: is for the login on platform.host; name that host, or leave it out"
        image = cluster.image.planned if cluster.image else None
        ending = ".sqsh" if self.runtime == "pyxis" else ".sif"
        if self.runtime == "none":
            if image:
                yield "platform.runtime: must say what starts the image: pyxis, apptainer or singularity"
            if self.mounts:
                yield "platform.mounts: are for containers; platform.runtime: none starts none"
        elif image is None:
            yield f"image: is required with platform.runtime {self.runtime}"
        elif cluster.image_is_a_file and not image.endswith(ending):
            yield f"image: {self.runtime} starts a {ending} file or a reference, is {image!r}"
        if cluster.qualify and not (cluster.qualify.qos or cluster.qualify.partition):
            yield "qualify.qos: is required on Slurm, or qualify.partition: one whose jobs may be preempted"
        yield from super().problems(cluster)
