"""Reasons of pods: why they do not come up, and how they ended."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "launch-timeout": Explanation(
        "not up within {limit_s} s (platform.{setting}): {story}",
        "Time is up; what it waited for last stands behind.",
        "The row of those words; or raise the limit that it names.",
    ),
    "object-deleted": Explanation(
        "somebody deleted the {kind} {plan} while it came up",
        "Not seatrial.",
        "Who else works in that namespace.",
    ),
    "pods-do-not-end": Explanation(
        "{pods} on {where}; are the kubelets alive?",
        "Pods do not end.",
        "Those nodes' kubelets; `seatrial reap CLUSTER`.",
    ),
    "teardown-unconfirmed": Explanation(
        "whether the pods of {run_id} are gone cannot be told: the API server does not answer",
        "Teardown did not hear from the API server.",
        "`seatrial reap CLUSTER` when it is back.",
    ),
    "port-forward-failed": Explanation(
        "the API server opens no stream to pod {pod}: {text}",
        "Port-forward does not work.",
        "The right `pods/portforward`; a proxy that cuts WebSockets; the node's kubelet.",
    ),
    "pod-gone": Explanation(
        "pod {name} is gone",
        "The pod failed, or somebody removed it.",
        "`logs/events.txt`, `kubectl describe`.",
    ),
    "pod-exited": Explanation(
        "pod {name} ended with status {exit_code}{cause}",
        "The container does not stay up.",
        "Its last words stand behind; is it an image with the entry point of `images/common`? 137 with "
        "OOMKilled: more memory.",
    ),
    "pod-failed": Explanation(
        "pod {name} has {phase}",
        "The pod failed, or somebody removed it.",
        "`logs/events.txt`, `kubectl describe`.",
    ),
    "deadline-exceeded": Explanation(
        "the run was over its time: {deadline}",
        "`deadline_s`.",
        "Raise it, or run a shorter suite.",
    ),
    "pod-preempted": Explanation(
        "pod {name} was taken away: {disrupted}",
        "Preemption, a drain, or a person.",
        "The line says by whom; `priority_class`, `queue_priority`.",
    ),
    "pod-deleted": Explanation(
        "pod {name} was deleted {why_deleted}",
        "Preemption, a drain, or a person.",
        "The line says by whom; `priority_class`, `queue_priority`.",
    ),
    "image-not-on-node": Explanation(
        "the image is not on the node, and image_pull_policy is Never",
        "The node cannot get the image.",
        "The registry's words stand behind: reference, `image_pull_secrets`, the node's way to the registry.",
    ),
    "image-name-invalid": Explanation(
        "the image's name is not legal",
        "The node cannot get the image.",
        "The registry's words stand behind: reference, `image_pull_secrets`, the node's way to the registry.",
    ),
    "container-config": Explanation(
        "the container's configuration cannot be made",
        "The kubelet cannot make the container.",
        "Its words stand behind: a missing Secret or key, a mount, a device.",
    ),
    "container-restarts": Explanation(
        "the container ends again and again",
        "The container does not stay up.",
        "Its last words stand behind; is it an image with the entry point of `images/common`? 137 with "
        "OOMKilled: more memory.",
    ),
    "container-exited": Explanation(
        "container {name} ended with status {exit_code}{cause}{hint}",
        "The container does not stay up.",
        "Its last words stand behind; is it an image with the entry point of `images/common`? 137 with "
        "OOMKilled: more memory.",
    ),
    "pods-unscheduled": Explanation(
        "{placed} of {requested} pods have a node{wait}",
        "The scheduler finds no node for the others, and says why.",
        "`seatrial doctor` names the nodes and what each lacks.",
    ),
    "nodes-not-ready": Explanation(
        "{ready} of {requested} nodes answer{wait}",
        "The pods have nodes, and not all are ready.",
        "The line says what most wait for: an image, a volume, sshd.",
    ),
    "image-pull": Explanation(
        "the image cannot be pulled",
        "The node cannot get the image.",
        "The registry's words stand behind: reference, `image_pull_secrets`, the node's way to the registry.",
    ),
    "image-unreadable": Explanation(
        "the image cannot be read",
        "The node cannot get the image.",
        "The registry's words stand behind: reference, `image_pull_secrets`, the node's way to the registry.",
    ),
    "container-create": Explanation(
        "the container cannot be created",
        "The kubelet cannot make the container.",
        "Its words stand behind: a missing Secret or key, a mount, a device.",
    ),
    "container-start": Explanation(
        "the container cannot be started",
        "The kubelet cannot make the container.",
        "Its words stand behind: a missing Secret or key, a mount, a device.",
    ),
    "sshd-not-ready": Explanation(
        "sshd does not answer yet",
        "The pods have nodes, and not all are ready.",
        "The line says what most wait for: an image, a volume, sshd.",
    ),
}
