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
        "needs at least two ranks, {ranks} here: ask for a second GPU or node, or set slots_per_node",
        "The check measures between ranks, and the cluster file asks for one rank only.",
        "Ask for a second GPU or node in the cluster file; without GPUs, set `slots_per_node` to 2 or more.",
    ),
    "single-gpu": Explanation(
        "{check} left out: it needs at least two GPUs, and the cluster is a single one",
        "The check measures between GPUs, and a single GPU has no other one to exchange data with.",
        "Nothing has to be done. Ask for a second GPU or node to measure the links between them.",
    ),
    "lease-lost": Explanation(
        "the Prefect server was away for too long, and another run has this cluster now",
        "The run lost its lock on the cluster, so two runs may have measured at the same time. Nobody is blamed.",
        "Repeat the run when no other run has the cluster. Find out why the Prefect server did not answer.",
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
        "Ctrl-C ended the run. Its nodes are taken down; exit status 130.",
        "Run again.",
    ),
    "terminated": Explanation(
        "terminated; everything is taken down",
        "SIGTERM ended the run. Its nodes are taken down; exit status 143.",
        "Run again.",
    ),
    "prefect-failed": Explanation(
        "Prefect failed: {error_type}: {error}. {words}",
        "Prefect failed, not the cluster.",
        "Check `PREFECT_API_URL`, the disk and the database of the Prefect server. Its last words follow.",
    ),
    "no-verdict": Explanation(
        "the run did not end in a verdict: {result}",
        "Prefect ended the flow before it came to a verdict.",
        "Check `PREFECT_API_URL`, the disk and the database of the Prefect server.",
    ),
    "cut-off": Explanation(
        "cut off by {cut} before it was through",
        "The run was interrupted, terminated or cancelled.",
        "Run again.",
    ),
    "leftovers-remain": Explanation(
        "{count} of {left} leftovers cannot be removed: {problems}",
        "Some of what killed runs left could not be removed. The rest is gone.",
        "Look at the reason of each run, then run `seatrial reap CLUSTER` again.",
    ),
    "alerts-failed": Explanation(
        "alerts: {words}",
        "The flow `watch` could not deliver an alert.",
        "The line names the receiver and the next step.",
    ),
    "run-json-not-written": Explanation(
        "{out}: run.json cannot be written: {strerror}; choose another --out",
        "The folder of the run takes no file: the disk is full, or the right to write is missing.",
        "Free space on that disk, or choose another `--out`.",
    ),
    "upload-timeout": Explanation(
        "not through within {timeout_s} s",
        "The upload took too long. No verdict changes.",
        "Check the address and the network to it.",
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
