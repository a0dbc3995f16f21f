"""Reasons of `seatrial judge`, beside those of collectives."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "control-has-no-effect": Explanation(
        "{control} is no control: {collective} with {off} is as fast as {treatment} without ({slow} and "
        "{fast} GB/s), so the switch did nothing or the link is not used",
        "The two arms of a comparison do not differ.",
        "Check that the switch is exported to all ranks.",
    ),
    "log-of-other-gpu": Explanation(
        "the log is of {others}, not of {hardware}",
        "The log names another GPU model than `--hardware`.",
        "Correct `--hardware`.",
    ),
    "log-of-other-network": Explanation(
        "the log is of {network}, not of {fabric}: {evidence}",
        "NCCL's log names another kind of network than `--fabric` (`inconclusive`).",
        "Correct `--fabric`, or find out why NCCL took that network.",
    ),
    "log-of-more-hosts": Explanation(
        "the {ranks} ranks are on {hosts} hosts, not on {nodes}",
        "The header names more hosts than `--nodes`, so the numbers are of another cluster (`inconclusive`).",
        "Correct `--nodes` and `--gpus-per-node`.",
    ),
    "log-names-fabric": Explanation(
        "held against {fabric}, which the log names",
        "A note to the verdict. `--fabric` was not given, and NCCL's log says which fabric it took.",
        "None.",
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
        "the data went over sockets: say --fabric, Ethernet if that is all there is: {evidence}",
        "NCCL's log says that it used TCP sockets, and `--fabric` does not say whether that is as it should be.",
        "Name the fabric with `--fabric`.",
    ),
    "log-as-slow-as-sockets": Explanation(
        "{plateau} GB/s between nodes is what TCP sockets reach: say --fabric, Ethernet if that is all there is",
        "The number is so low that it may be a fallback to TCP.",
        "Name the fabric with `--fabric`.",
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
        "None.",
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
        "None.",
    ),
    "log-empty": Explanation(
        "no nccl-tests output in it",
        "The log has no output of nccl-tests.",
        "Give the log with its header.",
    ),
}
