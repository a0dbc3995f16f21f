"""Checks: turn observations of the nodes into verdicts, measurements and suspects. Nearly all of it is pure."""

from seatrial.model.reason import Explanation, register

REASONS = {
    "mpi-program-missing": Explanation(
        "the head node cannot start {not_started}",
        "A program is missing on the head node (`not_run`).",
        "Install the program that the line names, in the image or on the nodes.",
    ),
    "option-unknown": Explanation(
        "the program does not know one of its options and printed its usage",
        "nccl-tests is too old for an option of the suite (`inconclusive`).",
        "Install a newer nccl-tests in the image.",
    ),
    "rank-cannot-start": Explanation(
        "{host} cannot start: {cause}{others}",
        "A rank could not start: a program is missing (`not_run`), or a GPU is gone (`fail`).",
        "Install what the line names, or check the GPUs of that node.",
    ),
    "rank-gave-up": Explanation(
        "rank {rank} on {host} gave up: {cause}{others}",
        "A rank ended and gave its cause. It is the first that did; others may have followed from it.",
        "Read the cause in the line, and the log of the check in `logs/`.",
    ),
    "rank-killed": Explanation(
        "rank {rank}{device} was killed by signal {signal}",
        "A rank of the check was ended from outside while its node was there: by the OOM killer, a limit, or a person.",
        "Look for the OOM killer in `dmesg` of the node, for the limits of its pod, container or job, and at /dev/shm.",
    ),
    "rank-left": Explanation(
        "rank {rank} on {node} ended first, with exit status {status} and without a cause in the output",
        "mpirun names the first process that ended with an error; it printed nothing of it.",
        "Run `seatrial ssh RUN NODE`, and start the program of the check there by hand.",
    ),
    "rank-left-in-silence": Explanation(
        "rank {rank}{device} ended first, with exit status {status} and no message",
        "mpirun names the first process that ended with an error; no rank printed a cause.",
        "Run `seatrial ssh RUN NODE`, and start the program of the check there by hand.",
    ),
    "rank-oom-killed": Explanation(
        "rank {rank}{device} was killed: it took more memory than its job may",
        "Slurm ended a rank that went beyond the memory of its job.",
        "Give the job more memory, and see what else runs on the node.",
    ),
    "rank-silent": Explanation(
        "rank {rank}{device} was silent while the others waited for it: it is stopped or hangs",
        "The other ranks waited for this one until their limit, and its node was there.",
        "Look at the process on the node (`ps`, `py-spy dump`, `dmesg`), at its GPU, and for Xids.",
    ),
    "rank-lost": Explanation(
        "rank {rank}{device} went without a word: {peers} other ranks lost their connection to it",
        "The rank ended before all others without a message, and its node was there.",
        "Look for the OOM killer in `dmesg` of the node, and at the log of the check in `logs/`.",
    ),
    "rank-out-of-memory": Explanation(
        "rank {rank}{device} ran out of memory: {cause}",
        "The memory of the GPU, or of the node, did not suffice on this rank, and did on most others.",
        "See what else holds memory there (`nvidia-smi`, `amd-smi process`, `free`), and compare with another node.",
    ),
    "rank-device-error": Explanation(
        "rank {rank}{device}: {cause}",
        "The driver reported an error of the device on this rank, and not on most others.",
        "Look for Xids in `dmesg` of the node, and run the check `devices` on it.",
    ),
    "head-connection-lost": Explanation(
        "the connection to the head node broke after {seconds} s{cause}",
        "The connection to the head node broke, so the result is unknown (`inconclusive`).",
        "Check that the head node is up, and the time limit of a proxy or the API server.",
    ),
    "mpi-timeout": Explanation(
        "no end within {seconds} s{cause}",
        "The program hung, or `timeout_s` of the suite is too short (`inconclusive` if the ranks never met).",
        "Find the rank or link that hangs, or raise `timeout_s`.",
    ),
    "machine-too-busy": Explanation(
        "no end within {seconds} s: a rank waited {waited} s of it for a processor of the machine that plays all nodes",
        "The machine is too busy, or too small for so many nodes (`inconclusive`). No node is blamed.",
        "End what else runs on the machine, ask for fewer nodes, or raise `timeout_s` of the suite.",
    ),
    "mpirun-failed": Explanation(
        "{problem}",
        "mpirun ended without a result, and its output names no cause.",
        "Run it again with `NCCL_DEBUG=INFO`, and `dmesg -T` on the nodes; for a hang at the first size on AMD"
        " boot with `iommu=pt`.",
        formerly=("output-truncated",),
    ),
    "mpi-daemon-failed": Explanation(
        "mpirun's daemon does not start on {node}: its login ended with exit status {status}{said}",
        "mpirun logs in to each node and starts `orted` there (Open MPI 5: `prted`). On this node that ended.",
        "Run `ssh -p 222 NODE 'command -v orted; orted --version'` on the first node, and mend what it prints.",
    ),
    "ranks-unreported": Explanation(
        "rank {ranks} on {nodes} did not report itself: the result is not of all ranks",
        "Each rank reports itself before its program starts. Without that the program did not start there, or something"
        " else speaks for it (`inconclusive`).",
        "Run `seatrial ssh RUN NODE -- uname -n` on the node, and compare what it has in place of `orted` and `sh`.",
    ),
    "program-missing": Explanation(
        "{program} is missing {where}: {remedy}",
        "The check needs a program or a Python package that the nodes do not have.",
        "Install it as the end of the line says, in the image or on the nodes that the line names.",
    ),
    "dcgm-failed": Explanation(
        "dcgmi diag gave no result: {problem}",
        "DCGM is installed, and its diagnostic did not start or end (`inconclusive`; `not_run` on all nodes).",
        "Start its daemon: `systemctl start nvidia-dcgm`, in a container `nv-hostengine`; then `dcgmi discovery -l`.",
    ),
    "too-few-nodes": Explanation(
        "needs at least two nodes, {left} left",
        "The check measures between nodes, and too few are left: the others were taken out before.",
        "Read the reasons of the earlier checks, which name the nodes that were taken out.",
    ),
    "too-few-ranks": Explanation(
        "needs at least two ranks, {ranks} here: ask for a second GPU or node, or set slots_per_node",
        "The check measures between ranks, and the cluster file asks for one rank only.",
        "Ask for a second GPU or node in the cluster file; without GPUs, set `slots_per_node` to 2 or more.",
    ),
    "nothing-to-sweep": Explanation(
        "{check} left out: the nodes have too few ranks for the arms {arms}",
        "The suite sweeps arms alone, and these need two ranks in a node, or two nodes.",
        "Set `slots_per_node` or `gpus_per_node` to 2 to measure inside a node; a node of one rank needs no action.",
    ),
    "single-gpu": Explanation(
        "{check} left out: it needs at least two GPUs, and the cluster is a single one",
        "The check measures between GPUs, and a single GPU has no other one to exchange data with.",
        "Set `nodes` or `gpus_per_node` to 2 to measure the links between them; a single GPU needs no action.",
    ),
    "ranks-output-flood": Explanation(
        "output flood: the ranks printed more than they may and were ended after {seconds}",
        "The ranks printed without end and were ended.",
        "Run the command by hand. `NCCL_DEBUG=TRACE` in the cluster file causes it on all nodes.",
    ),
}

register(REASONS)
