"""Nodes in and out of service on a cluster at work: which to test, what to make of it, and how much is covered.

A pass (`seatrial/qualify/cycle.py`) chooses idle nodes and tests them alone, then in pairs of nodes that have passed.
The gate decides what follows for each, unless so many fail alike that they share a cause. Pure but for the pass.
"""

from seatrial.model.reason import Explanation, register

REASONS = {
    "qualify-let-in": Explanation("{node}: let in, it has passed", "A node at the gate passed its test."),
    "qualify-not-compared": Explanation(
        "{node}: stays at the gate, its numbers were compared with nothing",
        "The node passed, and there is no baseline yet: too few nodes like it have been tested.",
        "Test it again by `seatrial qualify CLUSTER NODE` when other nodes have been, or three times by itself.",
    ),
    "qualify-kept-out": Explanation(
        "{node}: kept out, {found}",
        "The node failed its test, or two in a row where a number was only slow, or was slow with two partners.",
        "Run `seatrial report RUN` for its numbers and repair the node. Then run `seatrial qualify CLUSTER NODE`.",
    ),
    "qualify-common-cause": Explanation(
        "{count} of the last {of} tests fail alike ({failure}), so no node is put out: look for a common cause",
        "More than a third of the nodes of a pass, or several in a row, failed in the same way.",
        "Compare driver, image and fabric with the last pass by `seatrial compare RUN RUN`.",
    ),
    "qualify-untested": Explanation(
        "{nodes} untested for {days} days",
        "No test of the node has passed for longer than `qualify.max_age_days`.",
        "Look for its state by `seatrial status CLUSTER`. Reserve it for `seatrial qualify CLUSTER NODE` if it is "
        "never idle.",
    ),
    "qualify-open": Explanation(
        "{passed} nodes passed; {nodes} not: {found}",
        "A test gave way to a job, or its number was slow for the first time.",
        "There is nothing to do: the next pass tests the nodes again. Name them to do it at once.",
    ),
    "qualify-nothing-tested": Explanation(
        "no node was tested; {why}none was idle and due",
        "No node was idle and due, or all tests gave way.",
        "There is nothing to do. `seatrial status CLUSTER` lists the age of each node's test.",
    ),
    "qualify-node-not-idle": Explanation(
        "{node}: {state}{why}",
        "Only idle nodes and nodes at the gate are tested.",
        "Wait for the end of its job, or reserve the node.",
    ),
}

register(REASONS)
