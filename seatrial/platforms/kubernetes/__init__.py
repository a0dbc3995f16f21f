"""Nodes as pods of a Kubernetes cluster: one pod per node, each with the image's own sshd.

`launchers`, `pod` and `machines` describe what is submitted, without side effects; `api` is the only module that talks
to the cluster, `waiting` explains why pods are not ready, and `forward` reaches their sshd.
"""

from seatrial.model.reason import Explanation, register

REASONS = {
    "api-server-unreachable": Explanation(
        "cannot {doing}: the API server {host} does not answer ({error}): is it up, and may this host reach it?",
        "The API server of the cluster did not answer.",
        "Check the VPN, the firewall and private endpoints. `kubectl version` shows the same error.",
        formerly=("api-server-silent",),
    ),
    "kind-unknown": Explanation(
        "{problem}{install}",
        "The operator of the launcher, or Kueue, is not installed on the cluster, or in another version.",
        "Install it as the end of the line says, or choose another `launcher`.",
        formerly=("kind-not-served", "kind-gone"),
    ),
    "no-kubeconfig": Explanation(
        "no cluster to talk to: {problem}",
        "There is no kubeconfig, and seatrial does not run in a pod; or the kubeconfig cannot be read.",
        "Set `KUBECONFIG`, correct the file, or log in to the cluster again.",
        formerly=("kubeconfig-unreadable", "no-cluster"),
    ),
    "login-plugin-missing": Explanation(
        "the kubeconfig logs in by the program {program}, which this machine does not have",
        "GKE, EKS and AKS log in by `gke-gcloud-auth-plugin`, `aws` and `kubelogin`: docs/kubernetes.md#access.",
        "Install it, or use a token of `kubectl create token`. In a pod no kubeconfig is needed.",
    ),
    "login-plugin-failed": Explanation(
        "the program by which the kubeconfig logs in failed: {problem}",
        "The program is there and gives no login: its own has expired, or its settings are wrong.",
        "Log in again (`gcloud auth login`, `aws sso login`, `az login`), and run `kubectl get nodes` to try it.",
    ),
    "kube-context-unknown": Explanation(
        "no cluster to talk to: {problem}; {known}",
        "The kubeconfig does not have the context of the cluster file, or no current context.",
        "Set `platform.context` to one of the contexts that the line lists.",
        formerly=("kube-context-missing",),
    ),
    "too-few-fitting-nodes": Explanation(
        "{nodes} nodes are asked for, {fit} could take one if idle: {meant}",
        "Too few nodes of the cluster can take a pod of the run.",
        "The line names the nearest nodes and what each lacks. Change the nodes, or `node_selector` and `tolerations`.",
    ),
    "node-unfit": Explanation(
        "{lack}",
        "A node cannot take a pod of the run: it is not ready or cordoned, has a taint, or offers too little.",
        "`kubectl describe node` has more. Repair it or `kubectl uncordon` it, check its device plugin, add its taint"
        " to `platform.tolerations`, or lower `gpus_per_node`, `slots_per_node`, `platform.resources` or"
        " `platform.shared_memory`.",
        formerly=(
            "node-not-ready",
            "node-cordoned",
            "node-tainted",
            "node-offers-too-little",
            "node-too-few-cpus",
            "node-too-little-memory",
        ),
    ),
    "fabric-device-not-requested": Explanation(
        "nodes offer {devices}, and the run asks for none of it, so NCCL would use sockets;"
        " say how many under platform.resources",
        "The nodes have devices of the fabric, and pods get only those that they ask for.",
        "Add the device to `platform.resources`; whether the count is 1 or one per NIC is up to the device plugin.",
    ),
    "kubernetes-object-missing": Explanation(
        "{where}: {problem}: {step}",
        "A Secret, the service account, the priority class or the driver for buckets that the cluster file names does"
        " not exist, or cannot be used for that.",
        "Create the object that the end of the line names, or correct the name.",
        formerly=(
            "secret-missing",
            "secret-wrong-type",
            "service-account-missing",
            "priority-class-missing",
            "gcs-fuse-missing",
        ),
    ),
    "secret-key-missing": Explanation(
        "{where}: Secret {secret} has no key {key}; it has: {has}",
        "A Secret of `secret_env` does not have the key.",
        "Use one of the keys that the line lists, or add the key to the Secret.",
    ),
    "volume-claim-unusable": Explanation(
        "platform.volumes: claim {claim} {wrong}",
        "The nodes cannot use a claim of `platform.volumes`: it is not there, has no volume, or has another access"
        " mode.",
        "Run `kubectl describe pvc NAME`, and correct the claim or its storage class.",
        formerly=("claim-not-found", "claim-not-bound", "claim-for-one-node", "claim-read-only"),
    ),
    "not-logged-in": Explanation(
        "cannot {doing}: the API server does not know us: log in again ({message})",
        "The credentials have expired, or the API server does not accept them.",
        "Get new credentials (`gcloud container clusters get-credentials`, `aws eks update-kubeconfig`, `az aks"
        " get-credentials`) until `kubectl auth whoami` works.",
    ),
    "forbidden": Explanation(
        "may not {doing}: {problem}",
        "The account lacks a right that a run needs.",
        "Run `seatrial examples kubernetes --out .`, and have its `role.yaml` applied in the namespace.",
        formerly=("right-missing",),
    ),
    "namespace-missing": Explanation(
        "cannot {doing}: {message}: kubectl create namespace {namespace}",
        "The namespace does not exist.",
        "Create it with the command in the line, or correct `platform.namespace`.",
    ),
    "api-server-refused": Explanation(
        "cannot {doing}: {message}",
        "The API server refused the request. The end of the line has its words.",
        "Run `seatrial render CLUSTER | kubectl apply --dry-run=server -f -`: it names the policy, quota or field.",
    ),
    "queue-not-found": Explanation(
        "queue {queue}: no such LocalQueue in namespace {namespace}; {there}",
        "The queue does not exist in the namespace of the run.",
        "Set `platform.queue` to one of the queues that the line lists.",
    ),
    "queue-inactive": Explanation(
        "queue {queue}: is not active ({reason}): {message}",
        "The queue is stopped, or its ClusterQueue cannot admit anything.",
        "Ask Kueue's administrator. The end of the line has Kueue's message.",
    ),
    "never-admitted": Explanation(
        "will never be admitted: {message}{hint}",
        "The queue can never admit this run as it is; docs/kubernetes.md#in-a-queue explains each message.",
        "Compare the run with the quota of the ClusterQueue: `kubectl describe clusterqueue`.",
    ),
    "queued": Explanation(
        "queued: {checks}",
        "The run waits in its queue. Kueue's words at the end of the line are in docs/kubernetes.md#in-a-queue.",
        "Wait, or raise `queue_timeout_s` or `queue_priority`.",
        formerly=("quota-in-use", "quota-reserved"),
    ),
    "queue-not-looked-at": Explanation(
        "{what}: Kueue has not looked at it yet: does its controller run?",
        "Kueue has not handled the object or the queue yet: it is slow, or it does not run.",
        "Check that Kueue's controller runs, and read its log.",
        formerly=("queue-unseen", "queue-not-reconciled"),
    ),
    "admission-check-pending": Explanation(
        "quota is reserved; waiting for admission check {words}",
        "The quota is reserved. An admission check, such as that of an autoscaler, decides.",
        "Run `kubectl describe admissioncheck`, and restart the controller that it names.",
    ),
    "no-workload": Explanation(
        "Kueue made no Workload of the {kind} within {unmanaged_s} s: {asked}",
        "Kueue does not manage this kind of object, or not in this namespace.",
        "Check `integrations` and the namespace selector of Kueue, and the priority class.",
    ),
    "evicted": Explanation(
        "{event}: {words}",
        "Kueue took the nodes: for another workload, by a check that refused, with the queue, or as a node failed.",
        "The line says which. Wait, or run it again with a higher `queue_priority`. No node is blamed.",
        formerly=("evicted-by-check", "evicted-queue-stopped", "evicted-node-failed"),
    ),
    "evicted-pods-not-ready": Explanation(
        "{event}: {words}",
        "The run's own pods were not ready within the time that Kueue gives them (`waitForPodsReady`).",
        "Look at the pods: `logs/events.txt` says what they waited for. A slow pull needs a longer `waitForPodsReady`.",
    ),
    "workload-deactivated": Explanation(
        "Kueue {did}: {words}",
        "Kueue gave the run up, or considers it finished although it is not.",
        "Run `kubectl describe workload NAME` for why, change what it names, then submit the run again.",
        formerly=("workload-finished",),
    ),
    "launch-timeout": Explanation(
        "not up within {limit_s} s (platform.{setting}): {story}",
        "The nodes were not up in time. The end of the line says what they waited for last.",
        "Run `kubectl describe pod` for that reason, or raise the time limit that the line names.",
    ),
    "object-deleted": Explanation(
        "somebody deleted the {kind} {plan} while it came up",
        "Somebody deleted the run's object while its nodes came up. It was not seatrial.",
        "Run `kubectl get events -n NAMESPACE` for who deleted it, and use a namespace of its own.",
    ),
    "pods-do-not-end": Explanation(
        "{pods} on {where}; are the kubelets alive?",
        "The pods of the run were deleted and do not end.",
        "Check the kubelets of the nodes that the line names, then run `seatrial reap CLUSTER`.",
    ),
    "teardown-unconfirmed": Explanation(
        "whether the pods of {run_id} are gone is unknown: the API server does not answer",
        "The API server did not answer during teardown, so pods may be left.",
        "Run `seatrial reap CLUSTER` when the API server is back.",
    ),
    "port-forward-failed": Explanation(
        "the API server opens no stream to pod {pod}: {text}",
        "The API server opened no stream to the pod.",
        "Check the right `pods/portforward`, a proxy that blocks WebSockets, and the node's kubelet.",
    ),
    "pod-failed": Explanation(
        "{how}", "The pod ended, or does not exist any more.", "Read `logs/events.txt`, or run `kubectl describe pod`."
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
        "Run `kubectl get events -n NAMESPACE` for who deleted it, then run it again. No node is blamed.",
    ),
    "container-exited": Explanation(
        "{what} ended with status {exit_code}{cause}",
        "The container of a pod ended.",
        "Run `kubectl logs POD --previous`. Install openssh-server in the image; for status 137 with OOMKilled"
        " give it more memory.",
        formerly=("pod-exited",),
    ),
    "pods-unscheduled": Explanation(
        "{placed} of {requested} pods have a node{wait}",
        "The scheduler finds no node for some pods, and says why.",
        "Run `seatrial doctor CLUSTER`: it names the nodes and what each lacks.",
    ),
    "nodes-not-ready": Explanation(
        "{ready} of {requested} nodes answer{wait}",
        "All pods have a node, and not all of them answer.",
        "Run `kubectl describe pod`: it says what each waits for, an image, a volume, or sshd.",
    ),
    "image-pull": Explanation(
        "{problem} ({waiting}): {message}",
        "The node does not get the image: its name is not legal, the registry refuses it, or it may not be pulled.",
        "Check `image`, `image_pull_secrets`, and the way from the node to the registry; with `image_pull_policy:"
        " Never` load the image on the node.",
        formerly=("image-not-on-node", "image-name-invalid", "image-unreadable"),
    ),
    "container-start": Explanation(
        "{problem} ({waiting}): {message}",
        "The kubelet cannot start the container, often for a missing Secret or key, or it ends again and again.",
        "Check Secrets and their keys, the entry point, mounts and devices; read `logs/events.txt` and the pod's log.",
        formerly=("container-config", "container-create", "container-restarts"),
    ),
    "sshd-not-ready": Explanation(
        "sshd does not answer yet",
        "The container runs, and its sshd does not answer yet.",
        "Wait. If it stays so, read the pod's log.",
    ),
}

register(REASONS)
