"""A stand-in for the command `runai` on a real cluster: a submit becomes a PyTorchJob or an MPIJob,
as RunAI makes one.

    python -m tests.e2e.kubernetes.runai KUBECTL NAMESPACE ARGUMENTS OF RUNAI...

Its options are those of RunAI's documentation that seatrial uses; any other ends it with status 1.
RunAI's scheduler is not there: a node pool is a label of nodes. What it is called with is appended
to the file RUNAI_STANDIN_CALLS.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

RESOURCES = {"pytorch": "pytorchjobs.kubeflow.org", "mpi": "mpijobs.kubeflow.org"}
POOL_LABEL = "runai/node-pool"
LEGAL = {
    "submit": {
        "project", "image", "image-pull-policy", "workers", "gpu-devices-request", "slots-per-worker", "node-pools",
        "large-shm", "capability", "extended-resource", "command",
    },
    "describe": {"project", "output"},
    "exec": {"project", "pod", "stdin", "pod-running-timeout"},
    "logs": {"project", "pod", "tail"},
    "port-forward": {"project", "pod", "port"},
    "delete": {"project"},
    "list": {"project", "json"},
}  # fmt: skip
PHASES = {
    "Created": "Pending", "Running": "Running", "Restarting": "Running", "Suspended": "Stopped",
    "Succeeded": "Completed", "Failed": "Failed",
}  # fmt: skip

Options = dict[str, list[str]]


class Kubectl:
    """kubectl in the namespace of the project."""

    def __init__(self, program: str, namespace: str) -> None:
        self.argv = [program, "--namespace", namespace]

    def run(self, *words: str, stdin: str = "") -> str:
        """What it prints. Ends this program where it fails, with its words."""
        done = subprocess.run(
            [*self.argv, *words], input=stdin, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"Error: {done.stderr.strip()}")
        return done.stdout

    def become(self, *words: str) -> NoReturn:
        os.execv(self.argv[0], [*self.argv, *words])


def options_of(verb: str, words: list[str]) -> Options:
    options: Options = {}
    for word in words:
        name, _, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in LEGAL[verb]:
            sys.exit(f"Error: unknown flag: {word}")
        options.setdefault(name, []).append(value)
    return options


def job(framework: str, name: str, options: Options, command: list[str]) -> dict[str, Any]:
    """The workload as Kubeflow's object: a PyTorch master is a node like the others, an MPI
    launcher has no GPUs.
    """
    workers, gpus = int(options["workers"][0]), options.get("gpu-devices-request", [""])[0]
    node = _template("pytorch" if framework == "pytorch" else "mpi", options, command, gpus)
    spec: dict[str, Any]
    if framework == "pytorch":
        replicas = {
            "Master": _replicas(1, node),
            **({"Worker": _replicas(workers, node)} if workers else {}),
        }
        kind, version, spec = "PyTorchJob", "kubeflow.org/v1", {"pytorchReplicaSpecs": replicas}
        spec["nprocPerNode"] = gpus or "1"
    else:
        launcher = _template(
            "mpi", {"image": options["image"], **_pull_policy(options)}, command, ""
        )
        replicas = {"Launcher": _replicas(1, launcher), "Worker": _replicas(workers, node)}
        kind, version, spec = "MPIJob", "kubeflow.org/v2beta1", {"mpiReplicaSpecs": replicas}
        spec["slotsPerWorker"] = int(options["slots-per-worker"][0])
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _replicas(count: int, template: dict[str, Any]) -> dict[str, Any]:
    return {"replicas": count, "restartPolicy": "Never", "template": template}


def _pull_policy(options: Options) -> Options:
    return {"image-pull-policy": options.get("image-pull-policy", ["Always"])}


def _template(container: str, options: Options, command: list[str], gpus: str) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    limits |= dict(resource.split("=", 1) for resource in options.get("extended-resource", []))
    shm = "large-shm" in options
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": container,
                "image": options["image"][0],
                "imagePullPolicy": _pull_policy(options)["image-pull-policy"][0],
                "command": command,
                "resources": {"limits": limits},
                "securityContext": {"capabilities": {"add": options.get("capability", [])}},
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}] if shm else [],
            }
        ],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}] if shm else [],
    }
    if pool := options.get("node-pools"):
        spec["nodeSelector"] = {POOL_LABEL: pool[0]}
    return {"spec": spec}


def described(document: dict[str, Any], events: list[dict[str, Any]]) -> dict[str, Any]:
    """As `describe --output=json` prints it, as far as anybody reads it."""
    conditions = document.get("status", {}).get("conditions") or []
    held = [condition["type"] for condition in conditions if condition["status"] == "True"]
    phase = (
        "Deleting"
        if document["metadata"].get("deletionTimestamp")
        else PHASES[held[-1]]
        if held
        else "Creating"
    )
    messages = [{"message": event.get("message", "")} for event in events]
    return {"name": document["metadata"]["name"], "actualPhase": phase, "events": messages}


def main(kubectl: Kubectl, arguments: list[str]) -> None:
    if arguments[1] == "list":
        items = json.loads(kubectl.run("get", ",".join(RESOURCES.values()), "--output=json"))[
            "items"
        ]
        print(json.dumps([described(item, []) for item in items]))
        return
    _, framework, verb, name, *rest = arguments
    cut = rest.index("--") if "--" in rest else len(rest)
    options, command = options_of(verb, rest[:cut]), rest[cut + 1 :]
    resource = RESOURCES[framework]
    if verb == "submit":
        kubectl.run(
            "create", "--filename=-", stdin=json.dumps(job(framework, name, options, command))
        )
    elif verb == "describe":
        document = json.loads(kubectl.run("get", resource, name, "--output=json"))
        selector = f"--field-selector=involvedObject.name={name}"
        print(
            json.dumps(
                described(
                    document, json.loads(kubectl.run("get", "events", selector, "-o=json"))["items"]
                )
            )
        )
    elif verb == "delete":
        # It is there as long as its pods
        kubectl.run("delete", resource, name, "--wait=false", "--cascade=foreground")
    else:
        _in_pod(kubectl, verb, options, command)


def _in_pod(kubectl: Kubectl, verb: str, options: Options, command: list[str]) -> NoReturn:
    pod = options["pod"][0]
    if timeout := options.get("pod-running-timeout"):
        kubectl.run(
            "wait",
            "--for=jsonpath={.status.phase}=Running",
            f"pod/{pod}",
            f"--timeout={timeout[0]}",
        )
    if verb == "exec":
        kubectl.become("exec", *(["--stdin"] if "stdin" in options else []), pod, "--", *command)
    if verb == "logs":
        kubectl.become("logs", pod, f"--tail={options.get('tail', ['-1'])[0]}")
    kubectl.become("port-forward", f"pod/{pod}", options["port"][0])


if __name__ == "__main__":
    if calls := os.environ.get("RUNAI_STANDIN_CALLS"):
        with Path(calls).open("a") as file:
            file.write(json.dumps(sys.argv[3:]) + "\n")
    main(Kubectl(sys.argv[1], sys.argv[2]), sys.argv[3:])
