"""Reasons of the store of earlier runs."""

from seatrial.model.reason import Explanation, register

REASONS = {
    "history-failed": Explanation(
        "history {place}: {action}: {problem}{next_step}",
        "The store of earlier runs cannot be read or written.",
        "Follow the end of the line: another process holds the file, the path, the server, or `SEATRIAL_HISTORY`.",
    ),
    "history-driver-missing": Explanation(
        "history {place}: {action}: {problem}; install seatrial with its extra `postgres`",
        "The PostgreSQL driver is not installed.",
        "Install seatrial with its extra `postgres` (docs/install.md).",
    ),
    "history-too-new": Explanation(
        "history {place}: a newer seatrial wrote it ({problem}); upgrade seatrial",
        "A newer version of seatrial changed the tables of the store.",
        "Upgrade seatrial on this machine.",
    ),
    "run-overdue": Explanation(
        "{late}; check its schedule and its worker",
        "The flow `watch` found no run of the suite on this cluster within the time that is allowed.",
        "Check the schedule, the worker and `SEATRIAL_HISTORY`, and whether an earlier run still holds the cluster.",
        formerly=("run-never-recorded",),
    ),
}

register(REASONS)
