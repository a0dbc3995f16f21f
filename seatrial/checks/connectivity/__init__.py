"""The check `connectivity`: nodes answer, reach each other, run MPI, have the same software and carry traffic."""

from seatrial.model.reason import Explanation, register

REASONS = {
    "probes-left-out": Explanation(
        "the nodes have no Python, so their hardware and the network between them are not measured",
        "The image has no Python 3. MPI and nccl-tests are tried; inventory, TCP streams and training are not.",
        "Install Python 3 in the image, and torch for devices and training.",
    ),
    "link-ssh-failed": Explanation(
        "SSH fails between them, not elsewhere: {problem}",
        "Both nodes reach the other nodes, and not each other.",
        "Run `ping` and `traceroute` between the two nodes, then replace the cable or correct the port, route or"
        " network policy.",
    ),
    "tcp-node-slow": Explanation(
        "{what} of TCP at best, the faster half of the nodes {usual} MB/s",
        "The node's best TCP stream is less than a quarter of what the faster half of the nodes reaches, after three"
        " tries (`degraded`).",
        "Check the link speed of its NIC (`ethtool`), its cable and switch port, and what else uses its network.",
    ),
    "tcp-link-slow": Explanation(
        "{rate} MB/s of TCP between them, the faster half of the nodes {usual} MB/s; neither end is slow elsewhere",
        "One link is much slower than all others, after three tries (`degraded`).",
        "Run `traceroute` between these two nodes, and replace the uplink or correct the route that only they share.",
    ),
    "tcp-cut-slow": Explanation(
        "TCP is slow between {parties}: {rate} MB/s at best on {streams} streams across, {usual} MB/s within each side",
        "The nodes fall into groups. Within a group streams are fast; all streams between groups that were measured are"
        " slow (`degraded`).",
        "Run `traceroute` from a node of one group to one of the other, and replace the uplink or correct the"
        " tunnel where it ends.",
    ),
    "tcp-nodes-divided": Explanation(
        "{slow} of {nodes} nodes ({names}) send or receive far less than the {usual} MB/s that the faster half reaches:"
        " too many to tell which nodes are healthy",
        "Much of a small cluster is slow on the network, so no node is blamed (`inconclusive`).",
        "Measure between two of these nodes by hand (`iperf3`), and look for what the slow ones share.",
    ),
    "tcp-not-measured": Explanation(
        "TCP was not measured on {missing} links: {links}",
        "Streams between these nodes did not start or end in time, so their links are unknown (`inconclusive`).",
        "Read the log of the run; check that nodes may connect to each other's high ports.",
    ),
    "fabric-cut": Explanation(
        "cut between {parties}: {pairs} pairs fail, and within each side all reach each other: {problem}",
        "The nodes fall into groups that do not reach each other. It is unknown which side is at fault.",
        "Run `traceroute` from a node of one group to one of the other, and correct the switch, route or network"
        " policy where it ends.",
    ),
    "no-pair-works": Explanation(
        "none of {pairs} pairs of nodes reach each other: {problem}",
        "No node reaches any other one, so the set-up is at fault and no node is blamed (`inconclusive`).",
        "Run `nc -vz NODE PORT` from the control host to a node: open its firewall or network policy for the SSH port.",
    ),
    "node-ssh-failed": Explanation(
        "SSH fails between it and {failed} of {others} nodes: {problem}",
        "The node does not reach several of the other nodes.",
        "Run `ping` and `ibstat` on that node, and correct its cable, port, route or network policy.",
        formerly=("links-ssh-failed",),
    ),
    "gpu-rows-failed": Explanation(
        "rows of its memory could not be remapped: it must be replaced",
        "The GPU has run out of spare rows for defective memory (`remapped_rows.failure`).",
        "Take the GPU out of use and have it replaced.",
    ),
    "gpu-requires-reset": Explanation(
        "it requires a reset",
        "The driver answers `GPU requires reset` for the GPU: after an error it does not work until then.",
        "Drain the node, then `nvidia-smi --gpu-reset` or a reboot; look for its Xid in `dmesg`.",
    ),
    "gpu-recovery-action": Explanation(
        "the driver asks for: {action}",
        "The driver names what the GPU needs after an error (`gpu_recovery_action`, Xid 154).",
        "Drain the node, then reset the GPU (`nvidia-smi --gpu-reset -i GPU`) or reboot the node, as it says.",
    ),
    "gpu-fabric-down": Explanation(
        "it is not registered with fabric manager: {state}",
        "GPUs behind NVSwitches start no CUDA program before fabric manager has set up their links (CUDA error 802).",
        "`systemctl status nvidia-fabricmanager`: its version must be the driver's. Start it, then reset the GPUs.",
    ),
    "gpu-rows-pending": Explanation(
        "rows of its memory wait to be remapped at the next reset",
        "The GPU found defective memory and replaces it when it is reset (a note, no verdict).",
        "Drain the node and reset the GPU.",
    ),
    "gpu-ecc-uncorrected": Explanation(
        "{count} uncorrectable ECC errors since the driver was loaded",
        "Memory of the GPU lost data that ECC could not restore.",
        "Drain the node and reset the GPU. If errors come back, have it replaced.",
    ),
    "gpu-slowed-down": Explanation(
        "is slowed down: {causes}",
        "The GPU lowers its clock by itself: it is hot, or power is short (clock event reasons, throttle violations).",
        "Check cooling and power supplies of the node, then `nvidia-smi -q -d PERFORMANCE`, for AMD"
        " `amd-smi metric --throttle`.",
    ),
    "gpu-in-use": Explanation(
        "{processes} processes use it already",
        "Something else runs on the GPU, so measurements share it (a note, no verdict).",
        "End it, or run again when the GPU is free: `nvidia-smi --query-compute-apps=pid,name --format=csv`, or"
        " `amd-smi process`.",
    ),
    "gpu-pcie-narrow": Explanation(
        "its PCIe link has {width} of {widest} lanes",
        "The link trained with fewer lanes than GPU and slot have (a note, no verdict).",
        "Reseat the GPU or its riser. Some servers wire fewer lanes; then all nodes show it.",
    ),
    "gpu-nvlinks-down": Explanation(
        "{down} of {links} links to other GPUs are down",
        "NVLinks or XGMI links of the GPU are down (a note, no verdict). Some boards do not wire all; then all nodes"
        " show it.",
        "Run `nvidia-smi nvlink --status` and `nvidia-smi topo -m`, and check fabric manager; for AMD `amd-smi xgmi`.",
    ),
    "gpu-xid": Explanation(
        "{kind} {number} ({meaning}) {count} times on {nodes}, last {age} ago: {step}",
        "The driver reported the error since the machine started (a note, no verdict). `dmesg` names the GPU.",
        "Drain the node, then run the command at the end of the line.",
    ),
    "kernel-event": Explanation(
        "{cause} {count} times on {nodes}, last {age} ago: {step}",
        "The kernel reported a failure of hardware, without an Xid, since the machine started (a note, no verdict).",
        "Run `dmesg -T` on the node for the device, and the command at the end of the line.",
    ),
    "link-errors-rose": Explanation(
        "{counter} of {links} during the run",
        "An error counter of these links rose between the first and the last look at the nodes. Where numbers of the"
        " same node are slow it is evidence (`suspects`), else a note.",
        "Reseat or replace cable and optics of that port, then its NIC or switch port (`mlxlink`, `ibqueryerrors`). For"
        " NVLink: `nvidia-smi nvlink -e`, reset the GPUs; have the board replaced if it comes again.",
    ),
    "packets-lost": Explanation(
        "{counter} of {links} during the run",
        "Packets were dropped or sent again: congestion, flow control that is set up otherwise on some switch, or a bad"
        " link elsewhere (a note, no verdict).",
        "Compare PFC and ECN of NICs and switches (`mlnx_qos`), and look for a port with link errors on the path.",
    ),
    "errors-in-run": Explanation(
        "during the run: {what}",
        "The kernel or the driver reported a failure of hardware while the run measured (a note, no verdict).",
        "Run `dmesg -T` on the node, and the command at the end of the line.",
    ),
    "acs-redirects": Explanation(
        "PCIe ACS redirects traffic between peers on {nodes} ({switches} switch ports)",
        "Between GPU and NIC below one PCIe switch, data takes the way through the root complex (a note, no verdict).",
        "On bare metal disable ACS in the BIOS, or `setpci -s BDF ECAP_ACS+0x6.w=0000` on each port at boot. A virtual"
        " machine needs it, with ATS enabled on the NIC.",
    ),
    "iommu-translates": Explanation(
        "the IOMMU translates DMA of {ports}",
        "The kernel maps each transfer of the NIC, which costs bandwidth, and GPUDirect RDMA may not work at all (a"
        " note, no verdict).",
        "On bare metal boot with `iommu=pt`, on ARM `iommu.passthrough=1`, or disable the IOMMU in the BIOS.",
    ),
    "gpudirect-missing": Explanation(
        "{nodes} cannot use GPUDirect RDMA: nvidia-peermem is not loaded, and the driver has no DMA-BUF",
        "RDMA goes through the memory of the host, about half as fast (a note, no verdict). DMA-BUF needs NVIDIA's open"
        " kernel modules and Linux 5.12.",
        "`modprobe nvidia-peermem`, or install the open kernel modules. NCCL_DEBUG=INFO then says `GDRDMA`.",
    ),
    "nic-pcie-slow": Explanation(
        "the PCIe link of {ports} runs at {link}, could at {best}",
        "The NIC's link trained with fewer lanes or slower than the NIC can (a note, no verdict).",
        "Reseat the NIC or its riser. Some slots wire fewer lanes; then all nodes show it.",
    ),
    "nic-strict-ordering": Explanation(
        "PCIe relaxed ordering is disabled for {ports}",
        "The NIC must write in order, which is slow on several platforms (a note, no verdict).",
        "Enable it in the BIOS, and `mlxconfig -d DEVICE set PCI_WR_ORDERING=1`; reboot.",
    ),
    "driver-too-old": Explanation(
        "driver {driver} on {nodes} is older than CUDA {cuda} needs ({least} or later), without a cuda-compat package",
        "The software of the nodes was built for a newer driver (a note, no verdict).",
        "Update the driver, use an image with an older CUDA, or install the cuda-compat package in the image.",
    ),
    "nodes-unequal": Explanation(
        "{attribute} of {nodes} is {other}, {common} on {count} of {all} nodes",
        "Nodes of the same model are set up or equipped differently (a note, no verdict).",
        "Make them alike; a difference can explain a slow node.",
    ),
    "disk-nearly-full": Explanation(
        "less than {least_gb} GB are free in /tmp of {nodes}",
        "Programs may fail to write their temporary files (a note, no verdict).",
        "Remove old files on these nodes.",
    ),
    "shm-small": Explanation(
        "/dev/shm of {nodes} is smaller than {least_gb} GB",
        "NCCL and data loaders need shared memory (a note, no verdict).",
        "Give the pod or container more: a memory volume at `/dev/shm`, or `--shm-size`.",
    ),
    "inventory-unknown": Explanation(
        "{nodes} gave no inventory",
        "The nodes could not tell the state of their hardware in time (a note, no verdict).",
        "Run `python3 inventory.py` by hand on the node.",
    ),
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
        formerly=("node-mpirun-missing",),
    ),
    "left-out-without-blame": Explanation(
        "{unblamed} left out without blame, so that the rest can go on",
        "The node is one end of a broken link. It was left out so that the others can be measured.",
        "Look at the link that the other reasons name.",
    ),
    "mpirun-hostname-failed": Explanation(
        "mpirun {ended}",
        "MPI did not reach all nodes in time, or failed before the nodes showed their names.",
        "Read `logs/mpirun-hostname.log`, and check `mpi.interface`.",
        formerly=("mpirun-hostname-timeout",),
    ),
    "mpirun-broken": Explanation(
        "mpirun does not work, on one node alone neither: {cause}; check Open MPI on the nodes",
        "Open MPI does not work on a single node either (`not_run`).",
        "Run `seatrial ssh RUN head -- mpirun -n 1 hostname`.",
    ),
    "hostname-duplicate": Explanation(
        "{nodes} report the same host name, {hostname}: Open MPI takes them for one node",
        "Several nodes have the same host name, or one reports another's (`inconclusive`). None is blamed.",
        "Give each node a host name of its own.",
    ),
    "clock-skew": Explanation(
        "its clock is {skew} s off the median node's, allowed {limit_s} s",
        "The clock of the node differs from the others.",
        "Check chrony or ntpd on the node. `connectivity.max_clock_skew_s` sets the limit.",
    ),
    "gpus-uncountable": Explanation(
        "its GPUs cannot be counted: {problem}",
        "`nvidia-smi` fails or hangs on the node.",
        "Run `nvidia-smi` there and look for Xids in `dmesg`. Where versions differ, reboot or reload the driver; where"
        " a GPU is lost, power-cycle the node.",
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
}

register(REASONS)
