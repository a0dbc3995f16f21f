"""Reasons of a queue of Kueue: waiting, and why it does not end."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "queue-unseen": Explanation(
        "queued: Kueue has not seen it yet",
        "Kueue has not handled the object yet: it is slow, or it does not run.",
        "Read the log of Kueue's controller.",
    ),
    "queue-not-found": Explanation(
        "queue {queue}: no such LocalQueue in namespace {namespace}; {there}",
        "The queue does not exist in the namespace of the run.",
        "Set `platform.queue` to one of the queues that the line lists.",
    ),
    "queue-not-reconciled": Explanation(
        "queue {queue}: Kueue has not looked at it: does its controller run?",
        "The queue has no status, so Kueue's controller has not handled it.",
        "Check that Kueue's controller runs.",
    ),
    "queue-inactive": Explanation(
        "queue {queue}: is not active ({reason}): {message}",
        "The queue is stopped, or its ClusterQueue cannot admit anything.",
        "Ask whoever runs Kueue. The end of the line has Kueue's words.",
    ),
    "never-admitted": Explanation(
        "will never be admitted: {message}{hint}",
        "The queue can never admit this run as it is.",
        "Compare the run with the quota of the ClusterQueue; docs/kubernetes.md explains each message.",
    ),
    "queued": Explanation(
        "queued: {checks}",
        "The run waits in its queue. The end of the line has Kueue's words.",
        "Wait, or raise `queue_timeout_s`; docs/kubernetes.md explains each message.",
    ),
    "queue-not-looked-at": Explanation(
        "queued: Kueue has not looked at it yet",
        "Kueue has not handled the Workload yet: it is slow, or it does not run.",
        "Read the log of Kueue's controller.",
    ),
    "quota-in-use": Explanation(
        "{more} more {resource} needed in flavor {flavor}",
        "Other workloads hold the quota.",
        "Wait, or raise `queue_timeout_s` or `queue_priority`.",
    ),
    "quota-reserved": Explanation(
        "quota is reserved, not admitted yet",
        "The quota is reserved, and Kueue has not admitted the run yet.",
        "Wait. If it stays so, read the log of Kueue's controller.",
    ),
    "admission-check-pending": Explanation(
        "quota is reserved; waiting for admission check {words}",
        "The quota is reserved. An admission check, such as that of an autoscaler, decides.",
        "Check the controller of that admission check.",
    ),
    "no-workload": Explanation(
        "Kueue made no Workload of the {kind} within {unmanaged_s} s",
        "Kueue does not manage this kind of object, or not in this namespace.",
        "Check `integrations` and the namespace selector of Kueue, and the priority class.",
    ),
    "evicted": Explanation(
        "Kueue evicted it: {words}",
        "Kueue took the nodes for another workload.",
        "Wait and run again, or raise `queue_priority`. No node is blamed.",
    ),
    "workload-deactivated": Explanation(
        "Kueue has deactivated it: {words}",
        "Kueue gave the run up. The end of the line has its words.",
        "Do what the words ask for, then run again.",
    ),
    "workload-finished": Explanation(
        "Kueue takes it for finished: {words}",
        "Kueue considers the run finished, although it is not.",
        "Run again. The end of the line has Kueue's words.",
    ),
    "queued-after-eviction": Explanation(
        "queued again after it was evicted: {words}",
        "Kueue took the nodes for another workload and put the run back into the queue.",
        "Wait, or raise `queue_priority`. No node is blamed.",
    ),
}
