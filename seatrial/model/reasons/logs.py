"""Reasons of `seatrial judge`, beside those of collectives."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "control-has-no-effect": Explanation(
        "{control} is no control: {collective} with {off} is as fast as {treatment} without ({slow} and "
        "{fast} GB/s), so the switch did nothing or the link is not used",
        "The two arms of a comparison do not differ.",
        "Is the switch exported to all ranks?",
    ),
    "log-of-other-gpu": Explanation(
        "the log is of {others}, not of {hardware}",
        "Another GPU model than `--hardware`.",
        "The right `--hardware`.",
    ),
    "log-without-collective": Explanation(
        "the log does not say which collective it is of",
        "Not a log of nccl-tests, or its header was cut.",
        "The log with its header.",
    ),
    "log-as-slow-as-sockets": Explanation(
        "{plateau} GB/s between nodes is what TCP sockets reach: say --fabric, Ethernet if that is all there is",
        "So slow that it may be a fallback.",
        "`--fabric`.",
    ),
    "log-without-network": Explanation(
        "which network NCCL took is not in the log: NCCL_DEBUG=INFO says it",
        "A bad number whose cause the log keeps to itself.",
        "Run it with `NCCL_DEBUG=INFO`.",
    ),
    "as-fast-as-expected": Explanation(
        "as fast as expected by {source}",
        "Nothing is wrong: a note to a pass.",
        "None.",
    ),
    "log-ranks-unusual": Explanation(
        "{ranks} of {nodes} ranks took part, {usual} GPUs per node being usual for {hardware}; say "
        "--gpus-per-node if the nodes have another number",
        "Fewer ranks than such nodes usually have.",
        "`--gpus-per-node`, or find the ranks that are missing.",
    ),
    "log-empty": Explanation(
        "no nccl-tests output in it",
        "Not a log of nccl-tests, or its header was cut.",
        "The log with its header.",
    ),
}
