"""Reasons of the Kubernetes cluster, mostly found by `seatrial doctor` and before a launch."""

from seatrial.model.reasons.explanation import Explanation

REASONS = {
    "kind-not-served": Explanation(
        "{other}: install a release that serves it",
        "The cluster serves that kind only in another API version.",
        "Install the release that the line names.",
    ),
    "api-server-silent": Explanation(
        "the API server {host} does not answer ({error})",
        "The API server of the cluster did not answer.",
        "Check the VPN, the firewall and private endpoints. `kubectl version` shows the same error.",
    ),
    "api-server-unreachable": Explanation(
        "cannot {doing}: {cause}: is it up, and may this host reach it?",
        "The API server of the cluster did not answer.",
        "Check the VPN, the firewall and private endpoints. `kubectl version` shows the same error.",
    ),
    "kind-unknown": Explanation(
        "the cluster does not know {kind} ({api_version}){install}",
        "The operator of the launcher, or Kueue, is not installed on the cluster.",
        "Install it as the end of the line says, or choose another `launcher`.",
    ),
    "no-kubeconfig": Explanation(
        "no cluster to talk to: {problem}",
        "There is no usable kubeconfig.",
        "Set `KUBECONFIG`, or log in to the cluster again.",
    ),
    "kubeconfig-unreadable": Explanation(
        "no cluster to talk to: the kubeconfig cannot be read: {error}",
        "The kubeconfig exists and cannot be read.",
        "Correct the file, or log in to the cluster again.",
    ),
    "no-cluster": Explanation(
        "{error} (KUBECONFIG, ~/.kube/config), and this is no pod",
        "There is no kubeconfig, and seatrial does not run in a pod.",
        "Set `KUBECONFIG`, or log in to the cluster again.",
    ),
    "kube-context-unknown": Explanation(
        "platform.context {context} is not in the kubeconfig; {known}",
        "The kubeconfig does not have the context of the cluster file.",
        "Set `platform.context` to one of the contexts that the line lists.",
    ),
    "kube-context-missing": Explanation(
        "no context; {known}",
        "The kubeconfig has no current context.",
        "Set `platform.context` to one of the contexts that the line lists.",
    ),
    "too-few-fitting-nodes": Explanation(
        "{nodes} nodes are asked for, {fit} could take one if idle: {meant}{words}",
        "Too few nodes of the cluster can take a pod of the run.",
        "The line names the nearest nodes and what each lacks. Change the nodes, or `node_selector` and `tolerations`.",
    ),
    "node-not-ready": Explanation(
        "is not ready: {message}",
        "The kubelet reports that the node is not ready.",
        "Run `kubectl describe node`, then repair the node or select other nodes.",
    ),
    "node-cordoned": Explanation(
        "is cordoned",
        "Somebody marked the node as unschedulable.",
        "Run `kubectl uncordon` if the node may be used again.",
    ),
    "node-tainted": Explanation(
        "taint {key}{value}:{effect} is not in platform.tolerations",
        "The node has a taint that the pods do not tolerate.",
        "Add the taint to `platform.tolerations`, or select other nodes.",
    ),
    "node-offers-too-little": Explanation(
        "offers {offered} of {requested} {resource}{hint}",
        "The node has fewer devices than a pod asks for.",
        "Check the device plugin and the devices of the node, or lower `gpus_per_node` or `platform.resources`.",
    ),
    "fabric-device-not-requested": Explanation(
        "nodes offer {devices}, and the run asks for none of it, so NCCL would use sockets;"
        " say how many under platform.resources",
        "The nodes have devices of the fabric, and pods get only those that they ask for.",
        "Add the device to `platform.resources`; whether the count is 1 or one per NIC is up to the device plugin.",
    ),
    "node-too-few-cpus": Explanation(
        "offers {cpu} CPUs for {gpus} GPUs; each rank needs one of its own",
        "The node offers fewer CPUs than ranks.",
        "Select larger nodes, or lower `slots_per_node`.",
    ),
    "node-too-little-memory": Explanation(
        "offers {memory} of memory, {problem}: lower platform.shared_memory",
        "The node offers less memory than the pod may use for /dev/shm.",
        "Lower `platform.shared_memory`, or select larger nodes.",
    ),
    "right-missing": Explanation(
        "may not {denied} {resource} {where}, needed to {cause}: {step}",
        "The account lacks a right that a run needs.",
        "Have `deployments/kubernetes/role.yaml` applied.",
    ),
    "gcs-fuse-missing": Explanation(
        "platform.volumes: gcs needs Cloud Storage FUSE, which the cluster does not have: {add}",
        "The cluster does not have GKE's driver for Cloud Storage.",
        "Run the command at the end of the line.",
    ),
    "pod-image-not-found": Explanation(
        "image: {reference}: its registry has no such name or tag: push it, or correct the cluster file",
        "The image was never pushed, or its name is wrong.",
        "Push the image, or correct `image` in the cluster file.",
    ),
    "secret-wrong-type": Explanation(
        "{where}: Secret {name} is {kind}, with which nothing is pulled: {create}",
        "A Secret of `image_pull_secrets` is not a pull secret.",
        "Run the command at the end of the line.",
    ),
    "secret-missing": Explanation(
        "{where}: no Secret {name} in namespace {namespace}: {create}",
        "A Secret of `image_pull_secrets` or `secret_env` does not exist.",
        "Run the command at the end of the line.",
    ),
    "secret-key-missing": Explanation(
        "{where}: Secret {secret} has no key {key}; it has: {has}",
        "A Secret of `secret_env` does not have the key.",
        "Use one of the keys that the line lists, or add the key to the Secret.",
    ),
    "service-account-missing": Explanation(
        "platform.service_account: there is no {name} in namespace {namespace}: {create}",
        "The service account of the cluster file does not exist.",
        "Run the command at the end of the line, or correct the name.",
    ),
    "priority-class-missing": Explanation(
        "platform.priority_class: the cluster has no {name}; it has: {known}",
        "The priority class of the cluster file does not exist.",
        "Use one of the classes that the line lists, or create it.",
    ),
    "volume-claim-unusable": Explanation(
        "platform.volumes: claim {claim} {wrong}",
        "The nodes cannot use a claim of `platform.volumes`.",
        "Do what the end of the line says.",
    ),
    "claim-not-found": Explanation(
        "is not in namespace {namespace}: create it, or correct the name",
        "The claim does not exist in the namespace of the run.",
        "Create the claim, or correct its name.",
    ),
    "claim-not-bound": Explanation(
        "is {phase}, so no pod can have it: kubectl -n {namespace} describe pvc {claim}",
        "The claim has no volume.",
        "Run the command in the line; it shows why no volume was bound.",
    ),
    "claim-for-one-node": Explanation(
        "is {modes}, for one node; {nodes} need one that is ReadWriteMany",
        "The claim can be mounted on one node only.",
        "Use a claim with the access mode ReadWriteMany.",
    ),
    "claim-read-only": Explanation(
        "is ReadOnlyMany: say read_only: true",
        "The claim can be mounted for reading only.",
        "Set `read_only: true` for that volume.",
    ),
    "not-logged-in": Explanation(
        "cannot {doing}: the API server does not know us: log in again ({message})",
        "The credentials have expired, or the API server does not accept them.",
        "Log in to the cluster again.",
    ),
    "forbidden": Explanation(
        "may not {doing} in namespace {namespace}: {message}",
        "The account may not do this in the namespace.",
        "Have `deployments/kubernetes/role.yaml` applied.",
    ),
    "kind-gone": Explanation(
        "cannot {doing}: the cluster does not know that kind any more",
        "The operator of the launcher, or Kueue, was removed from the cluster.",
        "Install it again, or choose another `launcher`.",
    ),
    "namespace-missing": Explanation(
        "cannot {doing}: {message}: kubectl create namespace {namespace}",
        "The namespace does not exist.",
        "Create it with the command in the line, or correct `platform.namespace`.",
    ),
    "api-server-refused": Explanation(
        "cannot {doing}: {message}",
        "The API server refused the request. The end of the line has its words.",
        "Look for an admission policy, a quota, or a field that this cluster does not know.",
    ),
}
