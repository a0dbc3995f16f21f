"""Verdicts, measurements, results and nodes: plain data for every other package."""

from seatrial.model.reason import Explanation, register

_COMPARE = "Run `seatrial compare GOOD BAD` with a good run: it shows what else changed."
_AGAINST_RUNS_OR_PEERS = (
    "{number}: {percent} % {side} {against} (limit {limit} %), in {agreeing} of {readings} measurements{since}"
)
_OUTSIDE = "{comparison} ({expectation})"

REASONS = {
    "image-architecture": Explanation(
        "image {reference} is for {architectures}, the nodes ({hardware}) are {nodes}: build it for linux/{nodes}",
        "The image is for another processor architecture than the nodes.",
        "Build it with `platforms`, or correct `hardware`.",
    ),
    "node-architecture": Explanation(
        "{odd} run as {value}, and {hardware} is {expected}: the image is for another architecture and "
        "emulated, or hardware in the cluster file is wrong",
        "The nodes report another processor architecture than the hardware of the cluster file has.",
        "Build the image with `platforms`, or correct `hardware`.",
    ),
    "log-of-other-gpu": Explanation(
        "the log is of {others}, not of {hardware}",
        "The log names another GPU model than `--hardware`.",
        "Correct `--hardware`.",
    ),
    "log-of-mixed-gpus": Explanation(
        "{count} ranks have {usual}, and others do not: {odd}",
        "The header names GPUs of several models, and the slowest one holds all others back (`degraded`).",
        "Compare `nvidia-smi -L` on the nodes, and test nodes of one model together.",
    ),
    "far-below-link-rate": Explanation(
        "{share} of the link rate: the data did not go over {links} ({rate} GB/s)",
        "The plateau is a small share of what the links carry: the data took another way, such as TCP (`fail`).",
        "Run with `NCCL_DEBUG=INFO`: `Using network` and `via` say which way the data takes.",
    ),
    "log-begins-late": Explanation(
        "the table begins at {first}, the header at {asked}",
        "A note to the verdict. The small sizes were left out of the log, so latency is not judged.",
    ),
    "log-hosts-missing": Explanation(
        "a task started on {found} of {nodes} nodes",
        "The list of host names has fewer different ones than the run has nodes.",
        "Run `srun --nodes=N hostname`, and look at the state of the missing nodes (`sinfo -R`).",
    ),
    "log-nodes-unknown": Explanation(
        "neither the log nor an option says on how many nodes {ranks} ranks ran: give --nodes",
        "The header with the hosts is lost, so the numbers are held against nothing (`inconclusive`).",
        "Give `--nodes`, or the log with its header.",
    ),
    "log-of-other-network": Explanation(
        "the log is of {network}, not of {fabric}: {evidence}",
        "NCCL's log names another kind of network than `--fabric` (`inconclusive`).",
        "Correct `--fabric`, or find out why NCCL took that network.",
    ),
    "log-names-fabric": Explanation(
        "held against {fabric}, which the log names",
        "A note to the verdict. `--fabric` was not given, and NCCL's log says which fabric it took.",
    ),
    "log-nccl-older": Explanation(
        "NCCL {version} is older than {first}, the first version for {hardware}",
        "A note to the verdict. An older NCCL has no kernels for that GPU, or crashes on it.",
        "Update NCCL in the image: `strings libnccl.so.2 | grep -m1 'NCCL version'` shows which one it has.",
    ),
    "one-nic-less": Explanation(
        "all_reduce reaches {best} GB/s at most, and {fewer} of the {nics} NICs of a node would reach {limit}",
        "No size is faster than with one NIC less in each node, of which a ring would use every one (`degraded`).",
        "Look for a NIC or link that is down or slow (`ibstat`, `rdma link`, error counters), node by node.",
    ),
    "log-without-collective": Explanation(
        "the log does not say which collective it is of",
        "The log is not one of nccl-tests, or its header is lost.",
        "Give the log with its header.",
    ),
    "log-over-sockets": Explanation(
        "{seen}: say --fabric, Ethernet if that is all there is",
        "NCCL used TCP sockets, or the numbers are as low, and `--fabric` does not say whether that is as it should"
        " be.",
        "Name the fabric with `--fabric`.",
        formerly=("log-as-slow-as-sockets",),
    ),
    "log-rows-unread": Explanation(
        "{measured}, but {problem}",
        "Some rows of the log hold no usable numbers, so the sweep is not known to be complete (`inconclusive`).",
        "Look at those rows in the log, and run the test again.",
    ),
    "log-without-network": Explanation(
        "which network NCCL took is not in the log: NCCL_DEBUG=INFO says it",
        "The number is bad, and the log does not show which network NCCL took.",
        "Run with `NCCL_DEBUG=INFO`.",
    ),
    "as-fast-as-expected": Explanation(
        "as fast as expected by {source}",
        "A note to a pass. Nothing is wrong.",
    ),
    "log-ranks-unusual": Explanation(
        "{ranks} of {nodes} ranks took part, {usual} GPUs per node being usual for {hardware}; say "
        "--gpus-per-node if the nodes have another number",
        "Fewer ranks took part than such nodes usually have.",
        "Set `--gpus-per-node`, or find the missing ranks.",
    ),
    "log-of-groups": Explanation(
        "in {groups} groups of {ranks} ranks at the same time (NCCL_TESTS_SPLIT), each judged as a cluster of its own",
        "A note to the verdict. The ranks ran in groups, and the numbers are the average of all groups.",
    ),
    "log-noted": Explanation(
        "noted: {what}",
        "A note to the verdict. The log names events that do not count: a run survives them, or they are not its own.",
        "`seatrial judge --json` lists them with their next steps.",
    ),
    "log-hung-at-first-size": Explanation(
        "the output ends early, without a cause: a header and no row, so it hung at the first size",
        "The ranks started and listed their devices, and no collective ended. The log names no cause (`inconclusive`).",
        "Run it again with `NCCL_DEBUG=INFO`; if `NCCL_P2P_DISABLE=1` lets it pass, boot with `iommu=pt` and turn ACS"
        " off.",
    ),
    "log-empty": Explanation(
        "no nccl-tests output in it",
        "The log has no output of nccl-tests.",
        "Give the log with its header.",
    ),
    "not-finite": Explanation(
        "{number} is not a finite number, so nothing was measured",
        "The measurement is NaN or infinite.",
        "Read the check's file in `logs/` of the run for the line with that number, and run `dcgmi diag -r 3` on"
        " its node.",
    ),
    "not-positive": Explanation(
        "{number} cannot be: a {quantity} is above 0, so the clock or the log is wrong",
        "A time or a rate is zero or negative.",
        "Run `chronyc tracking` on the nodes, and read the check's file in `logs/` of the run.",
    ),
    "rounded-to-zero": Explanation(
        "{number} is rounded to zero at so small a message, so it is not judged",
        "nccl-tests prints two decimals, and the bus bandwidth of a small message is below them. Nothing is wrong.",
    ),
    "zero-rate": Explanation(
        "{number} is no rate at all: nothing was moved in the time",
        "The benchmark moved no data.",
        "Read the check's file in `logs/` of the run for the line with that number, and run `dcgmi diag -r 3` on"
        " its node.",
    ),
    "nodes-unmeasured": Explanation(
        "{metric} was measured on {measured} of {nodes} nodes ({missing})",
        "Some nodes have no such number, and no check says why.",
        "Run `grep NODE` on the check's file in `logs/` of the run, and `seatrial run CLUSTER --only CHECK` again.",
    ),
    "far-below-links": Explanation(
        "{operation} between nodes reaches {value} GB/s, under 2 % of a GPU's links ({links} GB/s); fabric: {fabric}",
        "The rate of the fabric is not known, so nothing holds the number, and no fabric made for such GPUs is as slow:"
        " it is what TCP reaches.",
        "Name the fabric with its rate, such as IB-8x400G, or Ethernet-1x10G if that is all there is.",
    ),
    "many-alike": Explanation(
        "{metric} of {count} of {total} {kinds} ({names}) is {percent} % {side} {against} (limit {limit} %), all alike",
        "More than a third of the peers read lower, by about as much. They have one cause, and it is in none of them.",
        "Find what they share: rack, switch, driver, power, cooling, a shared file system. If that is how they are,"
        " accept it with `seatrial baseline promote RUN --force REASON`.",
    ),
    "low-unproven": Explanation(
        "{number}: {percent} % {side} {against} (limit {limit} %), in {agreeing} of {readings} measurements{since}:"
        " too few to blame a node",
        "The number is beyond its limit, and could not be measured often enough to tell a fault from a stray reading.",
        "Run the suite again while nothing else uses the nodes; `seatrial history CLUSTER` shows whether it stays low.",
    ),
    "above-physics": Explanation(
        "{comparison}, so it was not measured over those links",
        "The number is above what the links can carry.",
        "Correct `hardware`, `fabric` or `gpus_per_node` in the cluster file, or find the ranks that shared a node.",
    ),
    "no-baseline": Explanation(
        "{number}: no baseline yet ({tested})",
        "There is nothing to compare the number with. It is finite, and that is all that is known.",
        "Run the suite until three runs have passed; to pin this one as it is: `seatrial baseline promote RUN --force"
        " REASON`.",
    ),
    "nothing-measured": Explanation(
        "nothing was measured",
        "No check of the suite has a result.",
        "Check that the suite enables at least one check, then read `logs/run.log`.",
    ),
    "within-limit": Explanation(
        "{number}: not lower than {against} (limit {limit} %)",
        "The number is as earlier runs of this cluster, or the other nodes of the same run, let expect.",
        formerly=("within-peers", "within-history"),
    ),
    "within-interval": Explanation(
        "{comparison} ({expectation})",
        "The number is in the interval that is expected: by a pinned value, published numbers, or what links carry.",
        formerly=("within-pinned", "within-catalog", "within-model", "within-physics"),
    ),
    "worse-than-peers": Explanation(
        _AGAINST_RUNS_OR_PEERS,
        "The number is worse than the other nodes of the same run: `degraded` below the limit, `fail` below half of"
        " it.",
        "Check the hardware, the link and the switch port of that node.",
    ),
    "worse-than-history": Explanation(
        _AGAINST_RUNS_OR_PEERS,
        "The number is worse than the earlier runs of this cluster: `degraded` below the limit, `fail` below half of"
        " it.",
        _COMPARE,
    ),
    "watched": Explanation(
        "{number} looks {percent} % {worse} {since}: {sure} % sure",
        "The number reads lower than before, and not surely enough to be `degraded`. Later runs decide.",
        "Nothing yet. `seatrial show NODE` has its course.",
    ),
    "worse-than-pinned": Explanation(
        _OUTSIDE,
        "The number is worse than the value that a person approved for this cluster: `degraded` outside the interval,"
        " `fail` beyond the floor.",
        _COMPARE,
    ),
    "worse-than-catalog": Explanation(
        _OUTSIDE,
        "The number is worse than the published numbers for this hardware: `degraded` outside the interval, `fail`"
        " beyond the floor.",
        "Set driver, NCCL and its variables as in the source that the line names, and run it again.",
    ),
    "worse-than-model": Explanation(
        _OUTSIDE,
        "The number is worse than what healthy nodes reach of such links: `degraded` outside the interval, `fail`"
        " beyond the floor.",
        "Correct `fabric` in the cluster file, or run `seatrial localize` for the slow links.",
    ),
    "worse-than-physics": Explanation(
        _OUTSIDE,
        "The number is worse than what the links can carry: `degraded` outside the interval, `fail` beyond the floor.",
        "Check that the data went over the fabric: `NCCL_DEBUG=INFO` names it.",
    ),
}

register(REASONS)
