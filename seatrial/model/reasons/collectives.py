"""Reasons of a sweep that broke or whose numbers do not count."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "mpi-program-missing": Explanation(
        "the head node cannot start {not_started}",
        "`not_run` where a program is missing; `fail` where a GPU is gone.",
        "What it names, in the image.",
    ),
    "ranks-output-flood": Explanation(
        "output flood: the ranks printed more than they may and were ended after {seconds}",
        "A node's login shell, probe or ranks print without end; the node is a suspect and is left out.",
        "Run the same on that node by hand; a debug setting (NCCL_DEBUG=TRACE) in the cluster file does "
        "it on all nodes.",
    ),
    "option-unknown": Explanation(
        "the program does not know one of its options and printed its usage",
        "`inconclusive`: an nccl-tests that is too old for the suite.",
        "A newer one in the image.",
    ),
    "rank-cannot-start": Explanation(
        "{host} cannot start: {cause}{others}",
        "`not_run` where a program is missing; `fail` where a GPU is gone.",
        "What it names, in the image.",
    ),
    "head-connection-lost": Explanation(
        "the connection to the head node broke after {seconds} s{cause}",
        "`inconclusive`: what became of it nobody knows.",
        "Is the head node up? the API server's or a proxy's time limit.",
    ),
    "mpi-timeout": Explanation(
        "no end within {seconds} s{cause}",
        "Hangs, or `timeout_s` of the suite is too short (`inconclusive` where the ranks never met).",
        "The rank or link that hangs; `timeout_s`.",
    ),
    "output-truncated": Explanation(
        "the output ends early, without a cause",
        "It stopped without a word.",
        "`logs/OPERATION.log`, the kernel's log on the nodes.",
    ),
    "mpirun-failed": Explanation(
        "mpirun's exit status is {exit_status}, and the output names no cause",
        "It stopped without a word.",
        "`logs/OPERATION.log`, the kernel's log on the nodes.",
    ),
    "operation-not-tried": Explanation(
        "{operation} was not tried: {reason}",
        "`not_run`: an operation before it showed that nothing can be measured any more.",
        "The reason of that operation.",
    ),
    "fabric-gone": Explanation(
        "the fabric is gone",
        "`not_run`: an operation before it showed that nothing can be measured any more.",
        "The reason of that operation.",
    ),
    "ranks-missing": Explanation(
        "{took_part} ranks took part{cause}",
        "Not the whole cluster was measured.",
        "The hostfile, `slots_per_node`; nccl-tests built without MPI.",
    ),
    "ranks-unknown": Explanation(
        "the output names {ranks} of {ranks_2} ranks, and its numbers do not tell",
        "`inconclusive`: part of the header was lost.",
        "Run again; keep the ranks' output apart.",
    ),
    "ranks-on-fewer-nodes": Explanation(
        "all {ranks} ranks ran on {hosts} of {nodes} nodes: {min}",
        "Not the whole cluster was measured.",
        "The hostfile, `slots_per_node`; nccl-tests built without MPI.",
    ),
    "wrong-elements": Explanation(
        "wrong elements: {wrong}{more}",
        "`corrupt`: data arrived wrong. Nothing is worse.",
        "Take the nodes out of service; a GPU's memory, a NIC, a cable; bisect by running on fewer nodes.",
    ),
    "out-of-bounds": Explanation(
        "out of bounds values: {out_of_bounds}",
        "`corrupt`: data arrived wrong. Nothing is worse.",
        "Take the nodes out of service; a GPU's memory, a NIC, a cable; bisect by running on fewer nodes.",
    ),
    "nccl-tests-says-failed": Explanation(
        "nccl-tests itself says FAILED: slower than its own NCCL_TESTS_MIN_BW",
        "Somebody set that variable.",
        "`env` in the cluster file, the image.",
    ),
    "not-verified": Explanation(
        "no result was checked: #wrong is N/A everywhere",
        "`inconclusive`: nccl-tests ran with `-c 0`.",
        "Leave that out.",
    ),
    "nccl-over-sockets": Explanation(
        "the data went over sockets, not over {fabric}: {evidence}",
        "NCCL did not find the fabric, and took TCP.",
        "NCCL's plugin in the image, `NCCL_NET`, `NCCL_IB_HCA`; `/dev/infiniband` in the container.",
    ),
    "sizes-missing": Explanation(
        "{missing} of {sizes} sizes are missing: {names}{cause}",
        "`inconclusive`: the sweep was cut, or memory ends before `max_bytes`.",
        "The reason behind it; a smaller `max_bytes`.",
    ),
}
