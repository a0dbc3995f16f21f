"""Reasons of judgements: a number against what it was compared with."""

from seatrial.model.reasons.explanation import Explanation

_COMPARE = "Run `seatrial compare GOOD BAD` with a good run: it shows what else changed."

REASONS = {
    "not-finite": Explanation(
        "{number} is not a finite number, so nothing was measured",
        "The measurement is NaN or infinite.",
        "Read the raw log of the check.",
    ),
    "not-positive": Explanation(
        "{number} cannot be: a {quantity} is above 0, so the clock or the log is wrong",
        "A time or a rate is zero or negative.",
        "Read the raw log of the check, and compare the clocks of the nodes.",
    ),
    "rounded-to-zero": Explanation(
        "{number} is rounded to zero at so small a message, so it is not judged",
        "nccl-tests prints two decimals, and the bus bandwidth of a small message is below them. Nothing is wrong.",
        "None.",
    ),
    "zero-rate": Explanation(
        "{number} is no rate at all: nothing was moved in the time",
        "The benchmark moved no data.",
        "Read the raw log of the check.",
    ),
    "nodes-unmeasured": Explanation(
        "{metric} was measured on {measured} of {nodes} nodes ({missing})",
        "Some nodes have no such number, and no check says why.",
        "Read the raw log of the check for those nodes.",
    ),
    "nodes-divided": Explanation(
        "{metric} of {slow} of {nodes} nodes ({names}) is {percent} % slower, all alike: {slow_median}, {fast_median}"
        " on the others; these nodes share a fault, or they are another model and do not tell it",
        "A few nodes are slower together, and they say that they are like the others. Earlier runs do not show it.",
        "Find what these nodes share: rack, switch, power, BIOS, cooling. If they are other hardware, keep the runs:"
        " when three earlier runs show the same, the nodes count as two groups.",
    ),
    "nodes-divided-evenly": Explanation(
        "{metric} falls into two groups: {slow_median} on {slow} of {nodes} nodes ({names}), {percent} % slower than"
        " {fast_median} on the others; the nodes tell no difference, so it is unknown which group is healthy",
        "Many nodes are slower together, and they say that they are like the others. Earlier runs do not show it.",
        "Find what the slower nodes share: rack, switch, power, BIOS, cooling. If they are other hardware, keep the"
        " runs: when three earlier runs show the same, the nodes count as two groups.",
    ),
    "above-physics": Explanation(
        "{comparison}, so it was not measured over those links",
        "The number is above what the links can carry.",
        "Correct `hardware`, `fabric` or `gpus_per_node` in the cluster file, or find the ranks that shared a node.",
    ),
    "no-baseline": Explanation(
        "{number}: no baseline yet: judged by sanity only ({tested})",
        "There is nothing to compare the number with. It is finite, and that is all that is known.",
        "Make three passing runs, or approve one with `seatrial baseline promote`.",
    ),
    "broke-when-repeated": Explanation(
        "when it was repeated: {reason}",
        "A suspicious number was measured again, and that measurement broke.",
        "Look up the reason that follows.",
    ),
}
for _source, _words, _next in (
    ("peers", "the other nodes of the same run", "Check the hardware, the link and the switch port of that node."),
    ("pinned", "the value that a person approved for this cluster", _COMPARE),
    ("history", "the earlier runs of this cluster", _COMPARE),
    ("catalog", "the published numbers for this hardware", "Compare the set-up with the source that the line names."),
    (
        "model",
        "what healthy nodes reach of such links",
        "Compare the fabric with the cluster file, then look for slow links.",
    ),
    ("physics", "what the links can carry", "Check that the data went over the fabric: `NCCL_DEBUG=INFO` names it."),
):
    REASONS |= {
        f"within-{_source}": Explanation(
            "{comparison} ({expectation})",
            f"The number is in the interval that is expected from {_words}.",
            "None.",
        ),
        f"worse-than-{_source}": Explanation(
            "{comparison} ({expectation})",
            f"The number is worse than {_words}: `degraded` outside the interval, `fail` beyond the floor.",
            _next,
        ),
    }
