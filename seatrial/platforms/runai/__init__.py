"""RunAI: nodes as the pods of one workload, by the command runai."""

from seatrial.model.reason import Explanation, register

REASONS = {
    "runai-command-missing": Explanation(
        "runai is missing on this machine",
        "RunAI's command, version 2, is not installed, or not on PATH.",
        "Install it from the RunAI user interface (Help, Researcher Command Line Interface), then run `runai login`.",
    ),
    "runai-command-failed": Explanation(
        "runai failed: {problem}",
        "A command of RunAI ended with an error. The end of the line has its words.",
        "Run `runai whoami` and `runai project list`. Log in again with `runai login` where they fail.",
    ),
    "runai-command-timeout": Explanation(
        "runai did not end within {timeout_s} s",
        "RunAI's control plane or the pod does not answer.",
        "Run `runai whoami`, and look at the workload in the RunAI user interface.",
    ),
    "runai-queued-too-long": Explanation(
        "workload {workload} did not run within {limit_s} s (queue_timeout_s): {phase}",
        "The workload was still waiting when its time was over. The end of the line has RunAI's words.",
        "Wait, raise `platform.queue_timeout_s`, or check the project's quota and the node pool.",
    ),
    "runai-workload-ended": Explanation(
        "workload {workload} {how}",
        "RunAI or a person ended or deleted the workload, or its pods failed. No node is to blame.",
        "Run `runai training list`, and look at the workload's events in the RunAI user interface.",
        formerly=("runai-workload-deleted",),
    ),
    "runai-workload-remains": Explanation(
        "workload {workload} is still there {limit_s} s after it was deleted",
        "RunAI took the deletion of the workload, and its pods have not ended. They may hold GPUs.",
        "Look at the workload in the RunAI user interface. `seatrial reap FILE` tries again.",
    ),
    "runai-node-failed": Explanation(
        "{pod}: {problem}",
        "The pod runs, and sshd could not be started in it.",
        "Do what the end of the line says. The image needs openssh-server, openssh-client, awk and Python 3.",
    ),
}

register(REASONS)
