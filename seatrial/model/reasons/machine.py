"""Reasons of this machine, before anything starts."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "cluster-taken": Explanation(
        "{holds}; start it again later, or give it longer to wait (wait_s)",
        "Another check has the cluster. The line names it.",
        "Wait for it, cancel it, or raise `wait_s`.",
    ),
    "server-does-not-stay-up": Explanation(
        "{name} does not stay up (exit status {status}); its last words are above",
        "The Prefect server or the runner of `seatrial serve` ends again and again.",
        "Read its last words above: a database that cannot be opened, a port, or memory.",
    ),
    "upload-package-missing": Explanation(
        "{cluster}: upload: {problem}",
        "The Python package for that kind of address is not installed.",
        "Install the package that the line names (`gcsfs`, `s3fs`, `adlfs`).",
    ),
    "ssh-missing": Explanation(
        "ssh is missing: install openssh-client",
        "`seatrial ssh` needs the system's ssh.",
        "Install openssh-client.",
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
}
