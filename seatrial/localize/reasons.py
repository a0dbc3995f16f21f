"""Reasons of localisation."""

from seatrial.model.reason import Explanation, register

_WITH_IT = "slow in {slow} of {tests} tests with it{end}, at {percent} % of like tests"
_REPEAT = "Run the next test that the line names, and localize again with its log."

REASONS = {
    "localize-cut": Explanation(
        "slow between two groups of nodes: {slow} of {tests} tests across, at {percent} % of like tests; {fine}"
        " of {inside} within: {side} | {other}{more}",
        "Nodes are fast within each group and slow across: the path between the groups lacks bandwidth, no node does.",
        "Run `ibqueryerrors` (`ethtool -S` for Ethernet) on the switches between the two groups, and replace the"
        " uplink with errors.",
    ),
    "localize-switch": Explanation(
        f"the uplink of {{name}}: {_WITH_IT} and others outside{{more}}",
        "Tests that leave this group of nodes are slow, and tests within it are not.",
        "Check the uplinks of that switch for errors, missing links and congestion.",
    ),
    "localize-placement": Explanation(
        "slow by placement, on {name}: {slow} of {tests} such tests, at {percent} % of like tests, over {nodes}"
        " nodes{more}",
        "Tests are slow where GPUs are placed like this, whichever nodes take part; no node is to blame.",
        "Run GPUs on the same rail and socket, or check `NCCL_CROSS_NIC`, `NCCL_PXN_DISABLE` and the routes between"
        " rails.",
    ),
    "localize-rail": Explanation(
        f"GPU address {{name}} on any node: {_WITH_IT}{{more}}",
        "Slow tests share a GPU's address and no node: its rail, or a path from it to other rails, is slow.",
        "Check the leaf switch and the cables of that rail, and the routes from it to the others.",
    ),
    "localize-node": Explanation(
        f"{_WITH_IT} and {{partners}} other nodes; {{fine}} of {{rest}} tests without it are fine{{more}}",
        "Tests with this node are slow whichever nodes and GPUs take part, and tests without it are not.",
        "Check NICs, GPUs, PCIe and BIOS settings of that node, then run `seatrial localize` again.",
    ),
    "localize-node-fails": Explanation(
        "{slow} of {tests} tests with it failed or were slow, with {partners} other nodes; {fine} of {rest} tests"
        " without it are fine{more}",
        "Tests with this node fail, and tests without it do not.",
        "Read the log of one of these tests on that node: `seatrial parse` names its errors.",
    ),
    "localize-gpu": Explanation(
        f"{_WITH_IT}; the node's other GPUs are fine{{more}}",
        "Tests with this GPU of one node are slow, tests with the node's other GPUs are not: the GPU, its NIC or its"
        " port of the rail.",
        "Run `nvidia-smi -q -i GPU` and `mlxlink -d DEVICE -m` for the NIC beside it on that node; replace what"
        " shows errors.",
    ),
    "localize-link": Explanation(
        "slow in {slow} of {tests} tests of the two, at {percent} % of like tests; both are fine with others{more}",
        "Two nodes are slow with each other, and fine with others: a path between them is slow.",
        "Run `ibtracert LID LID` (`traceroute` for Ethernet) between the two nodes, and `ibqueryerrors` on the"
        " switches that it lists.",
    ),
    "localize-groups": Explanation(
        "slow between {groups} groups of nodes: {slow} of {tests} tests across, at {percent} % of like tests; {fine} of"
        " {inside} within: {sides}{more}",
        "Nodes are fast within each group and slow across: the spine between their leaf switches lacks bandwidth.",
        "Run `ibqueryerrors` (`show interfaces counters errors` on Ethernet switches) on the uplinks of these groups"
        " and their spine switches; replace what shows errors, and plug in links that are missing.",
    ),
    "localize-socket": Explanation(
        f"{_WITH_IT} on these nodes; {{fine}} of {{rest}} other tests are fine{{more}}",
        "Tests with these GPUs, which share a socket or always took part together, are slow, and tests without them are"
        " not: what they share is slow on these nodes.",
        "Check the PCIe switch of these GPUs, its NICs, NUMA binding and ACS (`lspci -vvv`). Tests of one of the GPUs"
        " at a time tell them apart.",
    ),
    "localize-one-of": Explanation(
        f"{_WITH_IT}; {{fine}} of {{rest}} other tests are fine; these GPUs always took part together{{more}}",
        "Tests with these GPUs are slow, and tests without them are not. They always took part together: one of them,"
        " several, or what they share is slow.",
        "Run the next test that the line names, with a part of the GPUs, and localize again with its log.",
    ),
    "localize-leaf": Explanation(
        f"{_WITH_IT} on these nodes; {{fine}} of {{rest}} other tests are fine{{more}}",
        "Tests with this GPU address are slow on a part of the nodes: their leaf switch of that rail, or its uplinks.",
        "Run `ibqueryerrors` (`show interfaces counters errors` on Ethernet switches) on the leaf switch of that rail"
        " and its uplinks; replace what shows errors, and plug in links that are missing.",
    ),
    "localize-misfit": Explanation(
        "no part explains {odd} of {slow} slow tests (best: {best}); next test: {next_test}",
        "The slow tests have a pattern that no candidate fits, or several faults at once; nothing is named.",
        _REPEAT,
    ),
    "localize-undecided": Explanation(
        "cannot tell {causes} apart; next test: {next_test}",
        "The tests fit several causes; the shares are how likely each is.",
        _REPEAT,
    ),
    "localize-unsure": Explanation(
        "perhaps {causes}; next test: {next_test}",
        "The tests fit one cause, but not so well that it is sure.",
        _REPEAT,
    ),
    "localize-together": Explanation(
        "GPUs {gpus} took part in the same tests; next test, of some of them: {next_test}",
        "GPUs that took part in the same tests cannot be told apart.",
        "Run the next test that the line names, and localize again with its log.",
    ),
    "localize-odd": Explanation(
        "{odd} of {tests} tests unlike the others, without a pattern; next test: {next_test}",
        "A test that is slow, failed or too fast without a pattern is a stray, or of a fault that only it touched.",
        _REPEAT,
    ),
    "localize-too-few": Explanation(
        "{tests} comparable tests are too few; next test: {next_test}",
        "A test counts only beside like ones: the same collective, sizes, number of nodes and of GPUs.",
        "Run the same collective over more pairs of nodes.",
    ),
    "localize-none": Explanation(
        "no part stands out in {tests} tests over {nodes} nodes",
        "All tests are as fast as like tests, or were so when repeated. A fault that slows all of them alike does not"
        " show.",
    ),
}

register(REASONS)
