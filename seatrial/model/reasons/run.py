"""Reasons of the run as a whole and of what it needs from this machine."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "prerequisite-failed": Explanation(
        "{step}: {cause}",
        "This step was not tried, because an earlier step did not work. The reason of that step follows its name.",
        "Look up the code of the earlier step.",
    ),
    "prerequisite-missing": Explanation(
        "step {step} did not run",
        "This step was not tried, because the step that it needs did not run.",
        "Read `logs/run.log` for what ended the run.",
    ),
    "program-missing": Explanation(
        "{program} is missing {where}: {remedy}",
        "The check needs a program or a Python package that the nodes do not have.",
        "Install it as the end of the line says, in the image or on the nodes that the line names.",
    ),
    "too-few-nodes": Explanation(
        "needs at least two nodes, {left} left",
        "The check measures between nodes, and too few are left: the others were taken out before.",
        "Read the reasons of the earlier checks, which name the nodes that were taken out.",
    ),
    "too-few-ranks": Explanation(
        "needs at least two ranks, {ranks} here: set slots_per_node",
        "The check measures between ranks, and the cluster file asks for one rank only.",
        "Set `slots_per_node` in the cluster file to 2 or more, or ask for a second node.",
    ),
    "internal-error": Explanation(
        "seatrial itself failed ({error}: {message}); logs/run.log has the trace",
        "A bug in seatrial ended the step. Nothing is said about the cluster.",
        "Report it with `logs/run.log`.",
    ),
    "result-failed": Explanation(
        "no details: the result could not be put together ({error}); logs/run.log has the trace",
        "A bug in seatrial, or a strange answer of a node, made the result impossible. The verdicts are still right.",
        "Report it with `logs/run.log`.",
    ),
    "details-withheld": Explanation(
        "no details: the result could not be put together",
        "The verdict of the check is right; its details are not shown, because they may be what broke the result.",
        "Read `logs/run.log`.",
    ),
    "nothing-measured": Explanation(
        "nothing was measured",
        "No check of the suite came to a result.",
        "Check that the suite enables at least one check, then read `logs/run.log`.",
    ),
    "history-unavailable": Explanation(
        "cannot be opened, so nothing was compared with pinned and earlier values: {problem}",
        "The store of earlier runs could not be opened. The numbers were not compared with earlier runs.",
        "Follow the end of the line: the path, the server, or `SEATRIAL_HISTORY`.",
    ),
    "history-failed": Explanation(
        "history {place}: {action}: {problem}{next_step}",
        "The store of earlier runs cannot be read or written.",
        "Follow the end of the line: another process holds the file, the path, the server, or `SEATRIAL_HISTORY`.",
    ),
    "history-driver-missing": Explanation(
        "history {place}: {action}: {problem}; install seatrial[postgres]",
        "The PostgreSQL driver is not installed.",
        "Install `seatrial[postgres]`.",
    ),
    "history-too-new": Explanation(
        "history {place}: a newer seatrial wrote it ({problem}); upgrade seatrial",
        "A newer version of seatrial changed the tables of the store.",
        "Upgrade seatrial on this machine.",
    ),
    "interrupted": Explanation(
        "interrupted; everything is taken down",
        "Ctrl-C, SIGTERM or a cancellation; exit status 130 or 143.",
        "Run again.",
    ),
    "terminated": Explanation(
        "terminated; everything is taken down",
        "Ctrl-C, SIGTERM or a cancellation; exit status 130 or 143.",
        "Run again.",
    ),
    "prefect-failed": Explanation(
        "Prefect failed: {error_type}: {error}. {words}",
        "Prefect, not the cluster.",
        "Its server's words stand behind; `PREFECT_API_URL`, disk full, its database.",
    ),
    "no-verdict": Explanation(
        "the run did not end in a verdict: {result}",
        "Prefect, not the cluster.",
        "Its server's words stand behind; `PREFECT_API_URL`, disk full, its database.",
    ),
    "cut-off": Explanation(
        "cut off by {cut} before it was through",
        "Ctrl-C, SIGTERM or a cancellation; exit status 130 or 143.",
        "Run again.",
    ),
    "leftovers-remain": Explanation(
        "{problems} of {left} leftovers cannot be removed: {problems_2}",
        "`seatrial reap`, or the reaping before a run: what killed runs have left is partly still there;"
        " the rest of it is gone.",
        "The reason stands behind each run; then `seatrial reap CLUSTER` again.",
    ),
    "alerts-failed": Explanation(
        "alerts: {words}",
        "The flow `watch` found a check that died or is overdue, and could not tell everybody; a run "
        "says the same in its notes.",
        "The receiver is named, with the next step: alerts.",
    ),
    "run-json-not-written": Explanation(
        "{out}: run.json cannot be written: {strerror}; choose another --out",
        "The run measured, and its folder takes nothing: a full disk, or no right to write; exit status 3.",
        "Room on that disk, or another `--out`; once the result is recorded, a warning only.",
    ),
    "upload-timeout": Explanation(
        "not through within {timeout_s} s",
        "An upload that took too long; no verdict changes.",
        "The address and its network.",
    ),
    "run-never-recorded": Explanation(
        "no run of suite {suite} is recorded; check its schedule and its worker",
        "The flow `watch` looked for a run of the suite on this cluster, and the history has none.",
        "Check the schedule, the worker and `SEATRIAL_HISTORY`.",
    ),
    "run-overdue": Explanation(
        "the last run, {run_id}, ended {age} ago, {max_age} are allowed; check its schedule and its worker",
        "The flow `watch` found no run of the suite within the time that is allowed.",
        "Check the schedule and the worker, and whether an earlier run still holds the cluster.",
    ),
}
