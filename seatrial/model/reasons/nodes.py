"""Reasons of nodes: what they say of themselves, and MPI."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "mpi-hosts-missing": Explanation(
        "mpirun hostname does not show {missing}: {cause}",
        "MPI does not reach them, and no single node explains it.",
        "`logs/mpirun-hostname.log`; `mpi.interface`.",
    ),
    "mpi-fails-with-node": Explanation(
        "MPI fails with it: {cause}",
        "MPI works without that node and not with it.",
        "The words behind; most often a firewall, an interface (`mpi.interface`) or another Open MPI.",
    ),
    "mpirun-missing": Explanation(
        "{mpirun} is missing {where}: install Open MPI (openmpi-bin) or set mpi.mpirun",
        "No Open MPI, or not on `PATH`.",
        "Install it, or say where it is in `mpi.mpirun`.",
    ),
    "left-out-without-blame": Explanation(
        "{unblamed} left out without blame, so that the rest can go on",
        "One end of a broken link, so that the rest can be measured.",
        "Nothing at this node.",
    ),
    "mpirun-hostname-timeout": Explanation(
        "mpirun did not end within {seconds} s",
        "MPI does not reach them, and no single node explains it.",
        "`logs/mpirun-hostname.log`; `mpi.interface`.",
    ),
    "mpirun-hostname-failed": Explanation(
        "mpirun ended with status {exit_status} and did not show it",
        "MPI does not reach them, and no single node explains it.",
        "`logs/mpirun-hostname.log`; `mpi.interface`.",
    ),
    "mpirun-broken": Explanation(
        "mpirun does not work, on one node alone neither: {cause}; check Open MPI on the nodes",
        "Open MPI itself is broken (`not_run`).",
        "`seatrial ssh RUN head -- mpirun -n 1 hostname`.",
    ),
    "node-mpirun-missing": Explanation(
        "mpirun is missing on it",
        "No Open MPI, or not on `PATH`.",
        "Install it, or say where it is in `mpi.mpirun`.",
    ),
    "hostname-duplicate": Explanation(
        "has the host name of {other}, {hostname}: Open MPI takes them for one node",
        "Two nodes with one host name.",
        "Give each its own.",
    ),
    "clock-skew": Explanation(
        "its clock is {skew} s off the median node's, allowed {limit_s} s",
        "Clocks differ.",
        "Chrony or ntpd on that node; the limit is `connectivity.max_clock_skew_s`.",
    ),
    "gpus-uncountable": Explanation(
        "its GPUs cannot be counted: nvidia-smi fails or does not answer within 30 s",
        "A GPU fell off the bus, or the driver hangs.",
        "`nvidia-smi`, `dmesg` for Xid; power-cycle or replace.",
    ),
    "gpus-missing": Explanation(
        "{gpus} of {expected} GPUs are there",
        "A GPU fell off the bus, or the driver hangs.",
        "`nvidia-smi`, `dmesg` for Xid; power-cycle or replace.",
    ),
    "version-unknown": Explanation(
        "the version of {package} is not known on {nodes}",
        "Those nodes could not tell it in time; it is compared with nothing there (a note, no verdict).",
        "Run the program by hand on one of them (`seatrial ssh`); a slow disk or a broken install shows.",
    ),
    "version-differs": Explanation(
        "{package} is {own}, {common} on {count} of {words} nodes",
        "Software that differs from the others'.",
        "Bring it to the same version.",
    ),
    "output-flood-of-server": Explanation(
        "output flood: its SSH server sends more than the window allows and was cut off",
        "A node's login shell, probe or ranks print without end; the node is a suspect and is left out.",
        "Run the same on that node by hand; a debug setting (NCCL_DEBUG=TRACE) in the cluster file does "
        "it on all nodes.",
    ),
    "output-flood-of-node": Explanation(
        "output flood: its ranks printed {share} of all output",
        "A node's login shell, probe or ranks print without end; the node is a suspect and is left out.",
        "Run the same on that node by hand; a debug setting (NCCL_DEBUG=TRACE) in the cluster file does "
        "it on all nodes.",
    ),
}
