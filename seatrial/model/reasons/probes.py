"""Reasons of checks that run a probe on each node by itself."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "probe-failed": Explanation(
        "{probe} cannot measure: {problem}",
        "The probe started and could not do its work. The end of the line has its own words.",
        "Run the probe by hand on that node: `python3 PROBE`. For a GPU, look for Xid errors in `dmesg`.",
    ),
    "probe-timeout": Explanation(
        "{probe} did not end within {seconds} s",
        "The probe was ended. A device may hang, or the time limit is too short for this node.",
        "Run the probe by hand on that node, or raise `timeout_s` of that check in the suite file.",
    ),
    "probe-unreadable": Explanation(
        "{probe} gave no usable answer; its last line: {last}",
        "The probe ended without its result, or printed something else.",
        "Run the probe by hand on that node.",
    ),
    "probe-busy": Explanation(
        "{nodes} not measured: other nodes of the same machine were measured for all of the time",
        "Nodes that share a machine are measured one after another, and there were too many of them.",
        "Raise `timeout_s` of that check in the suite file, or use fewer nodes for each machine.",
    ),
    "wrong-result": Explanation(
        "computes wrongly: {problem}",
        "The same work gave different results, which is silent data corruption.",
        "Take the device out of use, and have its memory and its ECC counters checked.",
    ),
}
