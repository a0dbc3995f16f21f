"""The check `collectives`: sweep each operation over every rank; are the results right, and how fast do they come?"""

from seatrial.model.reason import Explanation, register

REASONS = {
    "node-lost": Explanation(
        "lost in {operation}; {problem}",
        "The node answered before the operation, and not after it: it went down, or its link did.",
        "Look at the node's console and kernel log, at its power (BMC), and at its link and switch port.",
    ),
    "operation-not-tried": Explanation(
        "{operation} was not tried: {reason}",
        "An earlier operation showed that nothing can be measured any more (`not_run`).",
        "Run `seatrial explain` with the code of that operation's reason.",
        formerly=("fabric-gone",),
    ),
    "gpus-per-process-uneven": Explanation(
        "{gpus} GPUs of {node} cannot be shared out to processes of {each} GPUs each",
        "The suite's `gpus_per_process` does not divide the GPUs of a node (`not_run`).",
        "Set `collectives.gpu.gpus_per_process` to a divisor of `gpus_per_node`.",
    ),
    "ranks-missing": Explanation(
        "{took_part} ranks took part{cause}",
        "Fewer ranks took part than the cluster has.",
        "Check the hostfile and `slots_per_node`, and that nccl-tests was built with MPI.",
    ),
    "ranks-unknown": Explanation(
        "{problem}",
        "The header is lost in part or whole, and the numbers do not depend on the ranks (`inconclusive`).",
        "Keep the output of the ranks apart, and give the log with its header.",
        formerly=("ranks-unsaid",),
    ),
    "ranks-in-groups": Explanation(
        "NCCL_TESTS_SPLIT made {groups} groups of the ranks, so there is no result of all of them together",
        "Each group ran the collective apart, at the same time as the others (`inconclusive`).",
        "Remove `NCCL_TESTS_SPLIT` and `NCCL_TESTS_SPLIT_MASK` from `env` and from the image.",
    ),
    "ranks-on-fewer-nodes": Explanation(
        "all {ranks} ranks ran on {hosts} of {nodes} nodes: {min}",
        "All ranks ran on some of the nodes.",
        "Check the hostfile and `slots_per_node`, and that nccl-tests was built with MPI.",
    ),
    "wrong-elements": Explanation(
        "{wrong}",
        "Data arrived wrong (`corrupt`). This is silent data corruption.",
        "Take the nodes out of service, then find the GPU, NIC or cable by running on fewer nodes.",
        formerly=("out-of-bounds",),
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
        "a single rank has no other one to exchange data with",
        "A collective over one rank measures nothing (`not_run`).",
        "Run on more GPUs or nodes, or leave the collectives out of the suite.",
    ),
    "network-arm-broke": Explanation(
        "{reason}; the same works with NVLink and shared memory, so no node is blamed",
        "NCCL could not run without NVLink and shared memory (`inconclusive`). Not every network joins GPUs of a node.",
        "Remove the cause that the line names. If the network cannot do it, leave the arm out: `arms: [intra,"
        " latency]`.",
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
        "Run with `NCCL_DEBUG=INFO` (`GDRDMA` must be there) and `cpupower idle-info`; pin NCCL's proxy threads"
        " and the NICs' interrupts to the cores beside them.",
    ),
    "middle-sizes-slow": Explanation(
        "messages of {first} to {last} reach {reached} GB/s of the {best} GB/s of larger ones, far less than latency "
        "explains",
        "Messages of the size of gradient buckets take several times as long as their latency and the best rate allow.",
        "Unset `NCCL_ALGO`, `NCCL_PROTO` and the tuner plugin, and run again with `NCCL_DEBUG_SUBSYS=TUNING`.",
    ),
    "network-not-forced": Explanation(
        "NVLink and shared memory were to be off, and the data went over them: {evidence}",
        "NCCL's log names channels inside a node, so the sweep is none of the network (`inconclusive`).",
        "Export `NCCL_P2P_DISABLE=1` and `NCCL_SHM_DISABLE=1` to all ranks (`mpirun -x`).",
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
        "Remove the cause that the line names, or lower `max_bytes`.",
    ),
    "control-has-no-effect": Explanation(
        "{control} is no control: {collective} with {off} is as fast as {treatment} without ({slow} and "
        "{fast} GB/s), so the switch did nothing or the link is not used",
        "The two arms of a comparison do not differ.",
        "Check that the switch is exported to all ranks.",
    ),
    "log-of-more-hosts": Explanation(
        "the {ranks} ranks are on {hosts} hosts, not on {nodes}",
        "The header names more hosts than `--nodes`, so the numbers are of another cluster (`inconclusive`).",
        "Correct `--nodes` and `--gpus-per-node`.",
    ),
}

register(REASONS)
