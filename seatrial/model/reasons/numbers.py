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
    "many-alike": Explanation(
        "{metric} of {count} of {total} {kinds} ({names}) is {percent} % {side} {against} (limit {limit} %), all alike",
        "More than a third of the peers read lower, by about as much. They have one cause, and it is in none of them.",
        "Find what they share: rack, switch, driver, power, cooling, a shared file system. If that is how they are,"
        " accept it with `seatrial baseline promote RUN --force REASON`.",
    ),
    "low-unproven": Explanation(
        "{number}: {percent} % {side} {against} (limit {limit} %), in {agreeing} of {readings} measurements{of_runs}:"
        " too few to blame anybody",
        "The number is beyond its limit, and could not be measured often enough to tell a fault from a stray reading.",
        "Run the suite again.",
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
    "replayed-pass": Explanation(
        "as expected: {judged} of {series} series were held against earlier runs or their peers",
        "No number of the replayed run is lower than expected.",
        "None.",
    ),
    "replayed-unjudged": Explanation(
        "no baseline yet: no series has three accepted runs or four peers",
        "The numbers of the replayed run were compared with nothing.",
        "Add earlier runs to the file.",
    ),
    "broke-when-repeated": Explanation(
        "when it was repeated: {reason}",
        "A suspicious number was measured again, and that measurement broke.",
        "Look up the reason that follows.",
    ),
}
_AGAINST_RUNS_OR_PEERS = (
    "{number}: {percent} % {side} {against} (limit {limit} %), in {agreeing} of {readings} measurements{of_runs}"
)
for _source, _words, _next in (
    ("peers", "the other nodes of the same run", "Check the hardware, the link and the switch port of that node."),
    ("history", "the earlier runs of this cluster", _COMPARE),
):
    REASONS |= {
        f"within-{_source}": Explanation(
            "{number}: not lower than {against} (limit {limit} %)",
            f"The number is as {_words} let expect.",
            "None.",
        ),
        f"worse-than-{_source}": Explanation(
            _AGAINST_RUNS_OR_PEERS,
            f"The number is worse than {_words}: `degraded` below the limit, `fail` below half of it.",
            _next,
        ),
    }
for _source, _words, _next in (
    ("pinned", "the value that a person approved for this cluster", _COMPARE),
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
