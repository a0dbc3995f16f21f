"""Reasons of a sweep that broke or whose numbers do not count."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "mpi-program-missing": Explanation(
        "the head node cannot start {not_started}",
        "A program is missing on the head node (`not_run`).",
        "Install the program that the line names, in the image or on the nodes.",
    ),
    "ranks-output-flood": Explanation(
        "output flood: the ranks printed more than they may and were ended after {seconds}",
        "The ranks printed without end and were ended.",
        "Run the command by hand. `NCCL_DEBUG=TRACE` in the cluster file causes it on all nodes.",
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
        "A rank ended by itself and said why. It is the first that did; others may have followed from it.",
        "Read the cause in the line, and the log of the check in `logs/`.",
    ),
    "rank-killed": Explanation(
        "rank {rank}{device} was killed by signal {signal}",
        "A rank of the check was ended from outside while its node was there: by the OOM killer, a limit, or a person.",
        "Look for the OOM killer in `dmesg` of the node, for the limits of its pod, container or job, and at /dev/shm.",
    ),
    "rank-oom-killed": Explanation(
        "rank {rank}{device} was killed: it took more memory than its job may",
        "Slurm ended a rank that went beyond the memory of its job.",
        "Give the job more memory, and see what else runs on the node.",
    ),
    "rank-silent": Explanation(
        "rank {rank}{device} said nothing while the others waited for it: it is stopped or hangs",
        "The other ranks waited for this one in vain, and its node was there.",
        "Look at the process on the node (`ps`, `py-spy dump`, `dmesg`), at its GPU, and for Xids.",
    ),
    "rank-lost": Explanation(
        "rank {rank}{device} went without a word: {peers} other ranks lost their connection to it",
        "The rank ended before all others, and its node was there. What ended it, nobody heard.",
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
    "log-cause": Explanation(
        "{cause}",
        "The output of the ranks names this cause. Causes that follow from another one are left out.",
        "Look the cause up in docs/log-causes.md, which has its next step.",
    ),
    "launcher-setup": Explanation(
        "{problem}: {next_step}",
        "mpirun could not start the ranks as asked: the cause is in the set-up, not in a node's hardware.",
        "Do what stands at the end of the line.",
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
    "output-truncated": Explanation(
        "the output ends early, without a cause",
        "The program ended without a result and without an error (`inconclusive`).",
        "Read the raw log, and the kernel's log on the nodes.",
    ),
    "mpirun-failed": Explanation(
        "mpirun's exit status is {exit_status}, and the output names no cause",
        "mpirun failed, and its output names no cause.",
        "Read the raw log, and the kernel's log on the nodes.",
    ),
    "operation-not-tried": Explanation(
        "{operation} was not tried: {reason}",
        "An earlier operation showed that nothing can be measured any more (`not_run`).",
        "Look at the reason of that operation.",
    ),
    "fabric-gone": Explanation(
        "the fabric is gone",
        "An earlier operation showed that the nodes cannot talk to each other any more.",
        "Look at the reason of that operation.",
    ),
    "ranks-missing": Explanation(
        "{took_part} ranks took part{cause}",
        "Fewer ranks took part than the cluster has.",
        "Check the hostfile and `slots_per_node`, and that nccl-tests was built with MPI.",
    ),
    "ranks-unknown": Explanation(
        "the output names {named} of {requested} ranks, and its numbers do not tell",
        "Part of the header is lost, so it is unknown how many ranks took part (`inconclusive`).",
        "Run again, and keep the output of the ranks apart.",
    ),
    "ranks-unsaid": Explanation(
        "how many of {requested} ranks took part is unknown: the header is lost, and the numbers do not tell",
        "The header is lost, and the bandwidth of this collective does not depend on the ranks (`inconclusive`).",
        "Give the log with its header, or run again.",
    ),
    "ranks-in-groups": Explanation(
        "NCCL_TESTS_SPLIT made {groups} groups of the ranks, so nothing is said of all of them together",
        "Each group ran the collective by itself, at the same time as the others (`inconclusive`).",
        "Remove `NCCL_TESTS_SPLIT` and `NCCL_TESTS_SPLIT_MASK` from `env` and from the image.",
    ),
    "ranks-on-fewer-nodes": Explanation(
        "all {ranks} ranks ran on {hosts} of {nodes} nodes: {min}",
        "All ranks ran on some of the nodes.",
        "Check the hostfile and `slots_per_node`, and that nccl-tests was built with MPI.",
    ),
    "wrong-elements": Explanation(
        "wrong elements: {wrong}{more}",
        "Data arrived wrong (`corrupt`). This is silent data corruption.",
        "Take the nodes out of service, then find the GPU, NIC or cable by running on fewer nodes.",
    ),
    "out-of-bounds": Explanation(
        "out of bounds values: {out_of_bounds}",
        "Data arrived wrong (`corrupt`). This is silent data corruption.",
        "Take the nodes out of service, then find the GPU, NIC or cable by running on fewer nodes.",
    ),
    "nccl-tests-says-failed": Explanation(
        "nccl-tests itself says FAILED: slower than its own NCCL_TESTS_MIN_BW",
        "The variable NCCL_TESTS_MIN_BW is set, and the sweep was slower.",
        "Remove the variable from `env` or from the image.",
    ),
    "not-verified": Explanation(
        "no result was checked: #wrong is N/A everywhere",
        "nccl-tests ran with `-c 0`, so no result was verified (`inconclusive`).",
        "Run without `-c 0`.",
    ),
    "no-rows": Explanation(
        "footer without a data row: nothing was measured",
        "The program ended as it should and printed no row that can be read (`inconclusive`).",
        "Read the raw log: rows may have been filtered out, or written with decimal commas (`LC_NUMERIC`).",
    ),
    "one-rank": Explanation(
        "one rank has nobody to exchange data with",
        "A collective over one rank measures nothing (`not_run`).",
        "Run on more GPUs or nodes, or leave the collectives out of the suite.",
    ),
    "network-arm-broke": Explanation(
        "{reason}; the same works with NVLink and shared memory, so no node is blamed",
        "NCCL could not run without NVLink and shared memory (`inconclusive`). Not every network joins GPUs of a node.",
        "Look at the reason in the line. If the network cannot do it, leave the arm out: `arms: [intra, latency]`.",
    ),
    "sweeps-interleaved": Explanation(
        "the rows are of several programs that wrote at the same time",
        "Rows of several programs stand in each other's table, so nothing says which number is whose (`inconclusive`).",
        "Run one program at a time, or write each output to a file of its own.",
    ),
    "sweep-too-small": Explanation(
        "the sweep ends at {largest}, and no plateau of GPUs begins below {needed}",
        "Latency decides at such sizes, so the sweep says nothing of bandwidth (`inconclusive`).",
        "Sweep to 8G, or at least beyond 128M.",
    ),
    "in-place-slow": Explanation(
        "in place {in_place} GB/s against {out_of_place} GB/s out of place at {size} (so at {sizes} large sizes)",
        "Operations that overwrite their input are much slower than others, which no healthy GPU shows.",
        "Compare NCCL versions and the settings of user buffer registration, and run again.",
    ),
    "small-messages-slow": Explanation(
        "messages of up to 64K take {time} us in the median, and {limit} us is slow for so many ranks",
        "Small messages take milliseconds where tens of microseconds are healthy (`degraded`).",
        "Check GPUDirect RDMA, the NICs' interrupts, the cores of NCCL's proxy threads, and power states of the CPUs.",
    ),
    "falls-at-size": Explanation(
        "falls to {reached} GB/s at {size} after {best} GB/s at smaller sizes",
        "A large message is carried much more slowly than smaller ones.",
        "Run that size alone; look for memory that is nearly full, throttled clocks, and a congested fabric.",
    ),
    "nics-missing": Explanation(
        "NCCL lists {used} network devices on {host}, and {fabric} has {nics}",
        "NCCL's log names fewer NICs on a node than the name of the fabric says (`degraded`).",
        "Look for links that are down on that node (`ibstat`, `rdma link`), and at `NCCL_IB_HCA`.",
    ),
    "nccl-over-sockets": Explanation(
        "the data went over sockets, not over {fabric}: {evidence}",
        "NCCL, or libfabric under it, did not find the fabric and used TCP sockets.",
        "Check NCCL's plugin in the image, `NCCL_NET`, `NCCL_IB_HCA`, and `/dev/infiniband` in the container.",
    ),
    "sizes-missing": Explanation(
        "{missing} of {sizes} sizes are missing: {names}{cause}",
        "The sweep ended early, or memory ends before `max_bytes` (`inconclusive`).",
        "Look at the cause in the line, or lower `max_bytes`.",
    ),
}
