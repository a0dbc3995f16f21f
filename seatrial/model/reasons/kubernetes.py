"""Reasons of the Kubernetes cluster, mostly found by `seatrial doctor` and before a launch."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "kind-not-served": Explanation(
        "{other}: install a release that serves it",
        "The cluster has that kind in another version.",
        "Install the release that the line names.",
    ),
    "api-server-silent": Explanation(
        "the API server {host} does not answer ({error})",
        "No answer from the API server.",
        "VPN, firewall, private endpoint; `kubectl version` shows the same.",
    ),
    "api-server-unreachable": Explanation(
        "cannot {doing}: {cause}: is it up, and may this host reach it?",
        "No answer from the API server.",
        "VPN, firewall, private endpoint; `kubectl version` shows the same.",
    ),
    "kind-unknown": Explanation(
        "the cluster does not know {kind} ({api_version}){install}",
        "The operator of that launcher, or Kueue, is not installed, or was removed.",
        "Install it, or choose another `launcher`.",
    ),
    "no-kubeconfig": Explanation(
        "no cluster to talk to: {problem}",
        "There is no kubeconfig, or it cannot be read.",
        "Set `KUBECONFIG`, or log in to the cluster once more.",
    ),
    "kubeconfig-unreadable": Explanation(
        "no cluster to talk to: the kubeconfig cannot be read: {error}",
        "There is no kubeconfig, or it cannot be read.",
        "Set `KUBECONFIG`, or log in to the cluster once more.",
    ),
    "no-cluster": Explanation(
        "{error} (KUBECONFIG, ~/.kube/config), and this is no pod",
        "There is no kubeconfig, or it cannot be read.",
        "Set `KUBECONFIG`, or log in to the cluster once more.",
    ),
    "kube-context-unknown": Explanation(
        "platform.context {context} is not in the kubeconfig; {known}",
        "The kubeconfig has no such context.",
        "One of those it lists, in `platform.context`.",
    ),
    "kube-context-missing": Explanation(
        "no context; {known}",
        "The kubeconfig has no such context.",
        "One of those it lists, in `platform.context`.",
    ),
    "too-few-fitting-nodes": Explanation(
        "{nodes} nodes are asked for, {fit} could take one if idle: {meant}{words}",
        "Too few nodes fit the run.",
        "The line names the nearest ones, and what each lacks: the next rows.",
    ),
    "node-not-ready": Explanation(
        "is not ready: {message}",
        "Why that node cannot take a pod.",
        "Mend the node, or ask for other nodes (`node_selector`, `tolerations`, `shared_memory`).",
    ),
    "node-cordoned": Explanation(
        "is cordoned",
        "Why that node cannot take a pod.",
        "Mend the node, or ask for other nodes (`node_selector`, `tolerations`, `shared_memory`).",
    ),
    "node-tainted": Explanation(
        "taint {key}{value}:{effect} is not in platform.tolerations",
        "Why that node cannot take a pod.",
        "Mend the node, or ask for other nodes (`node_selector`, `tolerations`, `shared_memory`).",
    ),
    "node-offers-too-little": Explanation(
        "offers {gpus} of {gpus_2} {resource}{hint}",
        "Why that node cannot take a pod.",
        "Mend the node, or ask for other nodes (`node_selector`, `tolerations`, `shared_memory`).",
    ),
    "node-too-few-cpus": Explanation(
        "offers {cpu} CPUs for {gpus} GPUs; each rank needs one of its own",
        "Why that node cannot take a pod.",
        "Mend the node, or ask for other nodes (`node_selector`, `tolerations`, `shared_memory`).",
    ),
    "node-too-little-memory": Explanation(
        "offers {memory} of memory, {problem}: lower platform.shared_memory",
        "Why that node cannot take a pod.",
        "Mend the node, or ask for other nodes (`node_selector`, `tolerations`, `shared_memory`).",
    ),
    "right-missing": Explanation(
        "may not {denied} {resource} {where}, needed to {cause}: {step}",
        "A right is missing.",
        "Have `deployments/kubernetes/role.yaml` applied (rights).",
    ),
    "gcs-fuse-missing": Explanation(
        "platform.volumes: gcs needs Cloud Storage FUSE, which the cluster does not have: {add}",
        "GKE's driver is off.",
        "The line ends with the command.",
    ),
    "pod-image-not-found": Explanation(
        "image: {reference}: its registry has no such name or tag: push it, or correct the cluster file",
        "The image was never pushed, or is called otherwise.",
        "Push it, or correct `image`.",
    ),
    "secret-wrong-type": Explanation(
        "{where}: Secret {name} is {kind}, with which nothing is pulled: {create}",
        "A Secret of `image_pull_secrets` or `secret_env` is missing, of another type, or lacks the key.",
        "The line ends with the command, or with the keys that there are.",
    ),
    "secret-missing": Explanation(
        "{where}: no Secret {name} in namespace {namespace}: {create}",
        "A Secret of `image_pull_secrets` or `secret_env` is missing, of another type, or lacks the key.",
        "The line ends with the command, or with the keys that there are.",
    ),
    "secret-key-missing": Explanation(
        "{where}: Secret {secret} has no key {key}; it has: {has}",
        "A Secret of `image_pull_secrets` or `secret_env` is missing, of another type, or lacks the key.",
        "The line ends with the command, or with the keys that there are.",
    ),
    "service-account-missing": Explanation(
        "platform.service_account: there is no {name} in namespace {namespace}: {create}",
        "What the cluster file names is not there.",
        "Create it, or correct the name.",
    ),
    "priority-class-missing": Explanation(
        "platform.priority_class: the cluster has no {name}; it has: {known}",
        "What the cluster file names is not there.",
        "Create it, or correct the name.",
    ),
    "volume-claim-unusable": Explanation(
        "platform.volumes: claim {claim} {wrong}",
        "A claim that the nodes cannot share, or that is not there.",
        "What the line says.",
    ),
    "claim-not-found": Explanation(
        "is not in namespace {namespace}: create it, or correct the name",
        "A claim that the nodes cannot share, or that is not there.",
        "What the line says.",
    ),
    "claim-not-bound": Explanation(
        "is {phase}, so no pod can have it: kubectl -n {namespace} describe pvc {claim}",
        "A claim that the nodes cannot share, or that is not there.",
        "What the line says.",
    ),
    "claim-for-one-node": Explanation(
        "is {modes}, for one node; {nodes} need one that is ReadWriteMany",
        "A claim that the nodes cannot share, or that is not there.",
        "What the line says.",
    ),
    "claim-read-only": Explanation(
        "is ReadOnlyMany: say read_only: true",
        "A claim that the nodes cannot share, or that is not there.",
        "What the line says.",
    ),
    "not-logged-in": Explanation(
        "cannot {doing}: the API server does not know us: log in again ({message})",
        "The credentials are over.",
        "Log in again.",
    ),
    "forbidden": Explanation(
        "may not {doing} in namespace {namespace}: {message}",
        "A right is missing.",
        "Have `deployments/kubernetes/role.yaml` applied (rights).",
    ),
    "kind-gone": Explanation(
        "cannot {doing}: the cluster does not know that kind any more",
        "The operator of that launcher, or Kueue, is not installed, or was removed.",
        "Install it, or choose another `launcher`.",
    ),
    "namespace-missing": Explanation(
        "cannot {doing}: {message}: kubectl create namespace {namespace}",
        "The namespace is not there.",
        "Create it, or correct `platform.namespace`.",
    ),
    "api-server-refused": Explanation(
        "cannot {doing}: {message}",
        "The API server refuses it.",
        "Its words stand behind: a policy, a quota, a field it does not know.",
    ),
}
