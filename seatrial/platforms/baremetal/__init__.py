"""Bare metal: hosts that are up, each with one more sshd for the time of a run."""

from seatrial.model.reason import Explanation, register

REASONS = {
    "baremetal-host-busy": Explanation(
        "{host}: {holder} has it",
        "One run at a time measures a host. The lock is `seatrial.lock` in `platform.folder` on the host.",
        "Wait for that run, or interrupt it. `seatrial reap FILE` ends runs of this machine whose process is gone.",
    ),
    "baremetal-host-failed": Explanation(
        "{host}: {problem}",
        "The login works, and the run's sshd could not be started or ended there.",
        "Do what the end of the line says; `seatrial doctor FILE` lists what each host lacks.",
    ),
    "baremetal-python-missing": Explanation(
        "{host}: {python} cannot be run",
        "The hosts need Python 3, and for training also torch.",
        "Install it, or set `platform.python` to its full path.",
    ),
    "baremetal-host-lacks": Explanation(
        "{host}: {programs} missing",
        "Programs that a run calls are not on PATH of a login without terminal.",
        "Install openssh-server, openssh-client, awk, coreutils and Open MPI, or what `platform.runtime` names;"
        " `mpi.mpirun` takes a full path.",
    ),
    "baremetal-image-missing": Explanation(
        "{host}: image {image} is not there: {problem}",
        "The container of the run cannot start there yet.",
        "Run `docker pull IMAGE` or `podman pull IMAGE` on the host, after a login to its registry, or copy the .sif"
        " file there; correct `image` in the cluster file.",
    ),
    "baremetal-folder-unusable": Explanation(
        "{host}: {folder} {problem}",
        "A run needs a folder where it may write and run programs, with 100 MiB of space.",
        "Make room, or set `platform.folder` to another folder on the hosts.",
    ),
    "baremetal-hosts-remain": Explanation(
        "{count} of {hosts} hosts not cleared: {problems}; they end the run by themselves at {until}",
        "The run could not be ended there, as the host does not answer, or a process does not end.",
        "Run `seatrial reap FILE` when the hosts answer again.",
    ),
    "baremetal-deadline": Explanation(
        "the hosts ended the run at its deadline (deadline_s: {deadline_s})",
        "The run took longer than `platform.deadline_s`. No node is to blame.",
        "Raise `platform.deadline_s`, or choose a shorter suite.",
    ),
    "baremetal-jump-silent": Explanation(
        "jump host {jump} does not answer: {problem}",
        "This machine has no way to the node, because the jump host before it is gone. The node is not to blame.",
        "Run `ssh JUMP true` on this machine.",
    ),
}

register(REASONS)
