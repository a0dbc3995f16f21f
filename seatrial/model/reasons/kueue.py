"""Reasons of a queue of Kueue: waiting, and why it does not end."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "queue-unseen": Explanation(
        "queued: Kueue has not seen it yet",
        "Kueue is slow or does not run.",
        "Its controller's log.",
    ),
    "queue-not-found": Explanation(
        "queue {queue}: no such LocalQueue in namespace {namespace}; {there}",
        "`platform.queue` is wrong, or of another namespace.",
        "One of those it lists.",
    ),
    "queue-not-reconciled": Explanation(
        "queue {queue}: Kueue has not looked at it: does its controller run?",
        "The queue has no status.",
        "Look at Kueue's controller.",
    ),
    "queue-inactive": Explanation(
        "queue {queue}: is not active ({reason}): {message}",
        "The queue is stopped, or what it needs is missing.",
        "Whoever runs Kueue; the line ends with Kueue's words.",
    ),
    "never-admitted": Explanation(
        "will never be admitted: {message}{hint}",
        "The queue cannot ever take it as it is.",
        "What each of Kueue's words wants.",
    ),
    "queued": Explanation(
        "queued: {checks}",
        "Kueue's own words on what it waits for.",
        "Wait; what they want.",
    ),
    "queue-not-looked-at": Explanation(
        "queued: Kueue has not looked at it yet",
        "Kueue is slow or does not run.",
        "Its controller's log.",
    ),
    "quota-in-use": Explanation(
        "{more} more {resource} needed in flavor {flavor}",
        "Waits for quota that others hold.",
        "Wait; raise `queue_timeout_s` or `queue_priority`.",
    ),
    "quota-reserved": Explanation(
        "quota is reserved, not admitted yet",
        "Quota is there; a check, such as an autoscaler's, has the last word.",
        "The check's controller.",
    ),
    "admission-check-pending": Explanation(
        "quota is reserved; waiting for admission check {words}",
        "Quota is there; a check, such as an autoscaler's, has the last word.",
        "The check's controller.",
    ),
    "no-workload": Explanation(
        "Kueue made no Workload of the {kind} within {unmanaged_s} s",
        "Kueue does not manage that kind, or that namespace.",
        "Kueue's `integrations`, its namespace selector, the priority class.",
    ),
    "evicted": Explanation(
        "Kueue evicted it: {words}",
        "Somebody else's work took the nodes.",
        "Wait, or raise `queue_priority`; no node is blamed.",
    ),
    "workload-deactivated": Explanation(
        "Kueue has deactivated it: {words}",
        "Kueue has given it up.",
        "Its words stand behind.",
    ),
    "workload-finished": Explanation(
        "Kueue takes it for finished: {words}",
        "Kueue has given it up.",
        "Its words stand behind.",
    ),
    "queued-after-eviction": Explanation(
        "queued again after it was evicted: {words}",
        "Somebody else's work took the nodes.",
        "Wait, or raise `queue_priority`; no node is blamed.",
    ),
}
