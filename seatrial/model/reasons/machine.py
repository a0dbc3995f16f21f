"""Reasons of this machine, before anything starts."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "cluster-taken": Explanation(
        "{holds}; start it again later, or give it longer to wait (wait_s)",
        "Another check has the cluster; the line names it and since when.",
        "Wait for it, or end it; one check at a time.",
    ),
    "server-does-not-stay-up": Explanation(
        "{name} does not stay up (exit status {status}); its last words are above",
        "`seatrial serve`: the Prefect server or the runner dies again and again.",
        "What stands above: a database that cannot be opened, a port, memory.",
    ),
    "upload-package-missing": Explanation(
        "{cluster}: upload: {problem}",
        "The package for that kind of address is not installed.",
        "Install what it names (`gcsfs`, `s3fs`, `adlfs`).",
    ),
    "ssh-missing": Explanation(
        "ssh is missing: install openssh-client",
        "`seatrial ssh` needs the system's ssh.",
        "Install it.",
    ),
    "open-files": Explanation(
        "open files: {problem}",
        "The limit of the shell or the service that runs seatrial; with too few files it would blame nodes.",
        "The line ends with the command; in a service `LimitNOFILE=`.",
    ),
}
