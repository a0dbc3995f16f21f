"""A run while it happens and after: its checks, lock, progress, login, and its files read back."""

from seatrial.model.reason import Explanation, register

REASONS = {
    "no-testbed": Explanation(
        "no testbed is up",
        "A step needed nodes, and there are none. The step that launches them has the reason.",
        "Run `seatrial explain` with the code of the step `launch`.",
    ),
    "cluster-taken": Explanation(
        "{holds}; start it again later, or give it longer to wait (wait_s)",
        "Another check has the cluster. The line names it.",
        "Wait for it, cancel it, or raise `wait_s`.",
    ),
    "server-does-not-stay-up": Explanation(
        "{name} does not stay up (exit status {status}); its last words are above",
        "The Prefect server or the runner of `seatrial serve` ends again and again.",
        "Run `prefect server start` by hand: a database that cannot be opened, a port that is taken, or memory"
        " is in its last words.",
    ),
    "upload-package-missing": Explanation(
        "{cluster}: upload: {problem}",
        "The Python package for that kind of address is not installed.",
        "Install the package that the line names (`gcsfs`, `s3fs`, `adlfs`).",
    ),
    "open-files": Explanation(
        "open files: {problem}",
        "The limit of open files is too low for so many nodes.",
        "Run the command at the end of the line; in a service set `LimitNOFILE=`.",
    ),
    "run-not-removed": Explanation(
        "run {name} cannot be removed: {problem}",
        "`seatrial prune` could not remove the folder of a run, or not all of it.",
        "Check who owns the folder and what is in it, and remove it by hand.",
    ),
    "runs-at-work-unknown": Explanation(
        "cannot tell which runs are at work: {problem}",
        "`seatrial prune` cannot read the locks of the clusters, so it removes nothing.",
        "Check who owns the folder `locks` in seatrial's state folder.",
    ),
    "requirement-not-measured": Explanation(
        "no run has {wanted}",
        "`seatrial certify`: none of the runs measured what the requirement asks for, under its conditions.",
        "Run a suite that has the check, the operation and the message size, and certify that run too.",
    ),
    "requirement-check-without-pass": Explanation(
        "{check} of {run} is {verdict}: {reason}",
        "`seatrial certify`: the check of that run did not pass, or had no result.",
        "Read the report of that run: `seatrial report RUN --format md`.",
    ),
    "requirement-not-compared": Explanation(
        "{check} of {run} passed, with {coverage}",
        "`seatrial certify`: a pass whose numbers were compared with nothing shows no requirement.",
        "Pin the numbers of a run that somebody has approved: `seatrial baseline promote RUN`.",
    ),
    "requirement-parts-missing": Explanation(
        "{parts} of {run} have no such number",
        "`seatrial certify`: nodes or GPUs of the run were not measured, so the worst number is not known.",
        "Find out why in the run's report, and repeat the run: `seatrial report RUN --format md`.",
    ),
    "requirement-number-unusable": Explanation(
        "{what} in {run} is no number that can be compared (unit {unit!r})",
        "`seatrial certify`: the number is not finite, impossible, not measured properly, or of another unit.",
        "Read the judgement in the run's report: `seatrial report RUN --format md`.",
    ),
    "requirement-limit-missed": Explanation(
        "{what} is {measured} in {run}; the limit is {limit}",
        "`seatrial certify`: the worst number that the requirement is about is beyond its limit.",
        "Find the part that is slow in the run's report: `seatrial report RUN --format md`.",
    ),
    "replayed-pass": Explanation(
        "as expected: {judged} of {series} series were held against earlier runs or their peers",
        "No number of the replayed run is lower than expected.",
    ),
    "replayed-without-baseline": Explanation(
        "no baseline yet: no series has three accepted runs or four peers",
        "The numbers of the replayed run were compared with nothing.",
        "Add earlier runs to the file.",
        formerly=("replayed-unjudged",),
    ),
    "prerequisite-failed": Explanation(
        "{step} did not work",
        "This step was not tried, because an earlier step did not work.",
        "Run `seatrial explain` with the code of that step's reason.",
    ),
    "prerequisite-missing": Explanation(
        "step {step} did not run",
        "This step was not tried, because the step that it needs did not run.",
        "Read `logs/run.log` for what ended the run.",
    ),
    "lease-lost": Explanation(
        "the Prefect server was away for too long, and another run has this cluster now",
        "The run lost its lock on the cluster, so two runs may have measured at the same time. Nobody is blamed.",
        "Repeat the run when no other run has the cluster. Find out why the Prefect server did not answer.",
    ),
    "internal-error": Explanation(
        "seatrial itself failed ({error}: {message}); logs/run.log has the trace",
        "A bug in seatrial ended the step. It is no finding about the cluster.",
        "Report it with `logs/run.log`.",
    ),
    "result-failed": Explanation(
        "no details: the result could not be put together{error}",
        "A bug in seatrial, or a strange answer of a node, made the result impossible. The verdicts are still right.",
        "Report it with `logs/run.log`.",
        formerly=("details-withheld",),
    ),
    "history-unavailable": Explanation(
        "cannot be opened, so nothing was compared with pinned and earlier values: {problem}",
        "The store of earlier runs could not be opened. The numbers were not compared with earlier runs.",
        "Follow the end of the line: the path, the server, or `SEATRIAL_HISTORY`.",
    ),
    "prefect-failed": Explanation(
        "{problem}",
        "Prefect failed or ended the flow before its verdict. It is not the cluster.",
        "Check `PREFECT_API_URL`, the disk and the database of the Prefect server. Its last words follow.",
        formerly=("no-verdict",),
    ),
    "cut-off": Explanation(
        "{how}",
        "The run was interrupted, terminated or cancelled. Its nodes are taken down.",
        "Remove what a killed run left with `seatrial reap CLUSTER`, then start it again.",
        formerly=("interrupted", "terminated"),
    ),
    "run-killed": Explanation(
        "the run was killed",
        "The process of the run ended without a word: SIGKILL, the OOM killer, or the end of the machine"
        " (`inconclusive`).",
        "Run `seatrial reap`, which takes down what it left; then start it again.",
    ),
    "run-abandoned": Explanation(
        "run {name}: its process has gone without a verdict; seatrial reap ends it",
        "The run was killed: its nodes may still be up.",
        "Take down what it left with `seatrial reap --run RUN`.",
    ),
    "leftovers-remain": Explanation(
        "{count} of {left} leftovers cannot be removed: {problems}",
        "Some of what killed runs left could not be removed. The rest is gone.",
        "Run `seatrial reap CLUSTER` again when the cause that each run names is gone.",
    ),
    "alerts-failed": Explanation(
        "alerts: {words}",
        "The flow `watch` could not deliver an alert; docs/alerts.md has the receivers' settings.",
        "Run `seatrial doctor CLUSTER`, and correct the receiver's settings.",
    ),
    "run-json-not-written": Explanation(
        "{out}: run.json cannot be written: {strerror}; choose another --out",
        "The folder of the run takes no file: the disk is full, or the right to write is missing.",
        "Free space on that disk, or choose another `--out`.",
    ),
    "upload-timeout": Explanation(
        "not through within {timeout_s} s",
        "The upload took too long. No verdict changes.",
        "Run `curl -v ADDRESS` on this machine, and correct the address, the proxy or the firewall.",
    ),
}

register(REASONS)
