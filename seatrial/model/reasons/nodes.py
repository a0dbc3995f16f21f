"""Reasons of nodes: what they say of themselves, and MPI."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "mpi-hosts-missing": Explanation(
        "mpirun hostname does not show {missing}: {cause}",
        "MPI does not reach these nodes, and no single node explains it.",
        "Read `logs/mpirun-hostname.log`, and check `mpi.interface`.",
    ),
    "mpi-fails-with-node": Explanation(
        "MPI fails with it: {cause}",
        "MPI works without that node, and fails with it.",
        "Check its firewall, its interface (`mpi.interface`) and its version of Open MPI.",
    ),
    "mpirun-missing": Explanation(
        "{mpirun} is missing {where}: install Open MPI (openmpi-bin) or set mpi.mpirun",
        "Open MPI is not installed on the nodes, or is not on `PATH`.",
        "Install it, or set `mpi.mpirun`.",
    ),
    "left-out-without-blame": Explanation(
        "{unblamed} left out without blame, so that the rest can go on",
        "The node is one end of a broken link. It was left out so that the others can be measured.",
        "Look at the link that the other reasons name.",
    ),
    "mpirun-hostname-timeout": Explanation(
        "mpirun did not end within {seconds} s",
        "MPI did not reach all nodes in time.",
        "Read `logs/mpirun-hostname.log`, and check `mpi.interface`.",
    ),
    "mpirun-hostname-failed": Explanation(
        "mpirun ended with status {exit_status} and did not show it",
        "mpirun failed before the nodes showed their names.",
        "Read `logs/mpirun-hostname.log`.",
    ),
    "mpirun-broken": Explanation(
        "mpirun does not work, on one node alone neither: {cause}; check Open MPI on the nodes",
        "Open MPI does not work on a single node either (`not_run`).",
        "Run `seatrial ssh RUN head -- mpirun -n 1 hostname`.",
    ),
    "node-mpirun-missing": Explanation(
        "mpirun is missing on it",
        "Open MPI is not installed on that node, or is not on `PATH`.",
        "Install it, or set `mpi.mpirun`.",
    ),
    "hostname-duplicate": Explanation(
        "has the host name of {other}, {hostname}: Open MPI takes them for one node",
        "Two nodes have the same host name.",
        "Give each node a host name of its own.",
    ),
    "clock-skew": Explanation(
        "its clock is {skew} s off the median node's, allowed {limit_s} s",
        "The clock of the node differs from the others.",
        "Check chrony or ntpd on the node. `connectivity.max_clock_skew_s` sets the limit.",
    ),
    "gpus-uncountable": Explanation(
        "its GPUs cannot be counted: nvidia-smi fails or does not answer within 30 s",
        "`nvidia-smi` fails or hangs on the node.",
        "Look for Xid errors in `dmesg`, then reset or replace the GPU.",
    ),
    "gpus-none": Explanation(
        "none of {nodes} nodes has a GPU, and the cluster file promises {expected} for each",
        "What hands GPUs to containers does not, or the cluster file is wrong (`not_run`).",
        "Check the device plugin, the container runtime and the driver, or set `hardware: cpu`.",
    ),
    "gpus-missing": Explanation(
        "{gpus} of {expected} GPUs are there",
        "The node has fewer GPUs than the cluster file says.",
        "Run `nvidia-smi`, and look for Xid errors in `dmesg`. Power-cycle the node or replace the GPU.",
    ),
    "version-unknown": Explanation(
        "the version of {package} is not known on {nodes}",
        "The node could not report the version in time. It is not compared (a note, no verdict).",
        "Run the program by hand on the node (`seatrial ssh`).",
    ),
    "version-differs": Explanation(
        "{package} is {own}, {common} on {count} of {nodes} nodes",
        "The software of the node differs from that of the other nodes.",
        "Install the same version on all nodes.",
    ),
    "output-flood-of-server": Explanation(
        "output flood: its SSH server sends more than the window allows and was cut off",
        "The node's SSH server sent more than the protocol allows.",
        "Check what listens on that port. The node is left out.",
    ),
    "output-flood-of-node": Explanation(
        "output flood: its ranks printed {share} of all output",
        "The ranks of this node printed most of the output, until it was cut off.",
        "Run the command by hand on the node. `NCCL_DEBUG=TRACE` in the cluster file does it on all nodes.",
    ),
}
