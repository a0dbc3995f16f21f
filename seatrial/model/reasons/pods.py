"""Reasons of pods: why they do not come up, and how they ended."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "launch-timeout": Explanation(
        "not up within {limit_s} s (platform.{setting}): {story}",
        "The nodes were not up in time. The end of the line says what they waited for last.",
        "Look up that reason, or raise the time limit that the line names.",
    ),
    "object-deleted": Explanation(
        "somebody deleted the {kind} {plan} while it came up",
        "Somebody deleted the run's object while its nodes came up. It was not seatrial.",
        "Find out who else works in that namespace.",
    ),
    "pods-do-not-end": Explanation(
        "{pods} on {where}; are the kubelets alive?",
        "The pods of the run were deleted and do not end.",
        "Check the kubelets of the nodes that the line names, then run `seatrial reap CLUSTER`.",
    ),
    "teardown-unconfirmed": Explanation(
        "whether the pods of {run_id} are gone cannot be told: the API server does not answer",
        "The API server did not answer during teardown, so pods may be left.",
        "Run `seatrial reap CLUSTER` when the API server is back.",
    ),
    "port-forward-failed": Explanation(
        "the API server opens no stream to pod {pod}: {text}",
        "The API server opened no stream to the pod.",
        "Check the right `pods/portforward`, a proxy that blocks WebSockets, and the node's kubelet.",
    ),
    "pod-gone": Explanation(
        "pod {name} is gone",
        "The pod does not exist any more.",
        "Read `logs/events.txt`.",
    ),
    "pod-exited": Explanation(
        "pod {name} ended with status {exit_code}{cause}",
        "The container of the pod ended.",
        "Read its last words at the end of the line. Status 137 with OOMKilled means that it needs more memory.",
    ),
    "pod-failed": Explanation(
        "pod {name} has {phase}",
        "The pod ended.",
        "Read `logs/events.txt`, or run `kubectl describe pod`.",
    ),
    "deadline-exceeded": Explanation(
        "the run was over its time: {deadline}",
        "The run took longer than `deadline_s` of the platform.",
        "Raise `deadline_s`, or run a shorter suite.",
    ),
    "pod-preempted": Explanation(
        "pod {name} was taken away: {disrupted}",
        "Kubernetes took the pod away: preemption, a drain, or an eviction.",
        "The line says by whom. Raise `priority_class` or `queue_priority`. No node is blamed.",
    ),
    "pod-deleted": Explanation(
        "pod {name} was deleted {why_deleted}",
        "Somebody deleted the pod.",
        "The line says when and how. No node is blamed.",
    ),
    "image-not-on-node": Explanation(
        "the image is not on the node, and image_pull_policy is Never",
        "The pull policy is Never, and the node does not have the image.",
        "Load the image on the node, or change `image_pull_policy`.",
    ),
    "image-name-invalid": Explanation(
        "the image's name is not legal",
        "The reference of the image is malformed.",
        "Correct `image` in the cluster file.",
    ),
    "container-config": Explanation(
        "the container's configuration cannot be made",
        "The kubelet could not make the container's configuration, often for a missing Secret or key.",
        "Read `logs/events.txt`.",
    ),
    "container-restarts": Explanation(
        "the container ends again and again",
        "The container ends again and again.",
        "Check that the image has the entry point of `images/common`, and read the pod's log.",
    ),
    "container-exited": Explanation(
        "container {name} ended with status {exit_code}{cause}{hint}",
        "The container ended before its sshd answered.",
        "Check that the image has the entry point of `images/common`. Status 137 with OOMKilled needs more memory.",
    ),
    "pods-unscheduled": Explanation(
        "{placed} of {requested} pods have a node{wait}",
        "The scheduler finds no node for some pods, and says why.",
        "Run `seatrial doctor CLUSTER`: it names the nodes and what each lacks.",
    ),
    "nodes-not-ready": Explanation(
        "{ready} of {requested} nodes answer{wait}",
        "All pods have a node, and not all of them answer.",
        "The line says what most wait for: an image, a volume, or sshd.",
    ),
    "image-pull": Explanation(
        "the image cannot be pulled",
        "The node could not pull the image. The registry's words follow.",
        "Check the reference, `image_pull_secrets`, and the way from the node to the registry.",
    ),
    "image-unreadable": Explanation(
        "the image cannot be read",
        "The node could not read the image.",
        "Pull the image on the node by hand.",
    ),
    "container-create": Explanation(
        "the container cannot be created",
        "The kubelet could not create the container. Its words follow.",
        "Check Secrets, mounts and devices.",
    ),
    "container-start": Explanation(
        "the container cannot be started",
        "The kubelet could not start the container. Its words follow.",
        "Check the entry point, mounts and devices.",
    ),
    "sshd-not-ready": Explanation(
        "sshd does not answer yet",
        "The container runs, and its sshd does not answer yet.",
        "Wait. If it stays so, read the pod's log.",
    ),
}
