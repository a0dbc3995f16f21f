"""Nodes as the steps of one job of Slurm."""

from seatrial.model.reason import Explanation, register

REASONS = {
    "slurm-command-missing": Explanation(
        "{command} is missing on {place}",
        "Slurm's commands are not installed there, or not on PATH.",
        "Run seatrial where `sinfo` works, such as on the login node.",
    ),
    "slurm-command-failed": Explanation(
        "{command} on {place} failed: {problem}",
        "One of Slurm's commands ended with an error. The end of the line has its words.",
        "Run the command by hand on the login node.",
    ),
    "slurm-command-timeout": Explanation(
        "{command} on {place} did not end within {timeout_s} s",
        "slurmctld does not answer, or the shared file system hangs.",
        "Run `scontrol ping` on the login node.",
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
        "Do what the end of the line says; `logs/nodes/NODE.log` has the rest.",
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
