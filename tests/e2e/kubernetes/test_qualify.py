"""Nodes in and out of service on real kubelets: tests give way, the gate opens and stays shut,
nothing is left.
"""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import Console, until
from tests.e2e.kubernetes.cluster import Cluster
from tests.e2e.kubernetes.kinds import OURS, left
from tests.e2e.kubernetes.test_after import with_fields
from tests.e2e.kubernetes.test_rights import may
from tests.site import PATIENCE_S

QUALIFY_YAML = Path(__file__).parents[3] / "deployments" / "kubernetes" / "qualify.yaml"
WHOLE = "example.com/whole-node"  # of which each node has one, and a test and a job want it
STARTS_WITHIN_S = 10.0
GATE, CONDITION = "seatrial/gate", "SeatrialQualified"


@pytest.fixture
def rights(least_rights: None, cluster: Cluster, namespace: str) -> Iterator[str]:
    """The rights that ship for runs and for `qualify`, under the test's own names: the name of its
    class.
    """
    own = f"{namespace}-qualify"
    document = QUALIFY_YAML.read_text().replace("seatrial-qualify", own)
    document = document.replace("namespace: seatrial-runs}", f"namespace: {namespace}}}")
    cluster.kubectl("apply", "--filename", "-", stdin=document)
    yield own
    cluster.kubectl("delete", "--ignore-not-found", "--filename", "-", stdin=document)


@pytest.fixture
def file(trial: Callable[..., Path], rights: str, own_cluster: Cluster) -> Iterator[Path]:
    """A cluster file with `qualify`; each node has one of WHOLE, and afterwards no taint and no
    condition of ours.
    """
    at = f"/status/capacity/{WHOLE.replace('/', '~1')}"
    for node in own_cluster.nodes:
        patch_status(own_cluster, node, op="add", path=at, value="1")
        until(partial(has_whole, own_cluster, node))
    yield with_fields(
        trial(resources={WHOLE: 1}), qualify={"dry_run": False, "priority_class": rights}
    )
    for node in own_cluster.nodes:
        own_cluster.kubectl(
            "patch", "node", node, "--patch", '{"spec": {"taints": null, "unschedulable": null}}'
        )
        patch_status(own_cluster, node, op="remove", path=at)
        kinds = [each["type"] for each in own_cluster.get("node", node)["status"]["conditions"]]
        if CONDITION in kinds:
            patch_status(
                own_cluster, node, op="remove", path=f"/status/conditions/{kinds.index(CONDITION)}"
            )


def patch_status(cluster: Cluster, node: str, **operation: str) -> None:
    patch = json.dumps([operation])
    cluster.kubectl("patch", "node", node, "--subresource=status", "--type=json", "--patch", patch)


def has_whole(cluster: Cluster, node: str) -> bool:
    return WHOLE in cluster.get("node", node)["status"]["allocatable"]


def qualified(cluster: Cluster, node: str) -> tuple[str, str]:
    """Status and reason of the condition SeatrialQualified."""
    conditions = cluster.get("node", node)["status"]["conditions"]
    condition: dict[str, str] = next((each for each in conditions if each["type"] == CONDITION), {})
    return condition.get("status", ""), condition.get("reason", "")


def taints(cluster: Cluster, node: str) -> list[str]:
    return [taint["key"] for taint in cluster.get("node", node)["spec"].get("taints", ())]


def until_testing(console: Console, process: "subprocess.Popen[str]") -> None:
    """Until the checks of a test have begun."""

    def has_begun() -> bool:
        logs = [log.read_text() for log in console.folder.glob("runs/*/logs/run.log")]
        return any("devices ..." in text for text in logs) or process.poll() is not None

    until(has_begun)
    assert process.poll() is None, process.communicate()


def under_test(
    console: Console, file: Path, cluster: Cluster
) -> "tuple[str, subprocess.Popen[str]]":
    """Put a node to the gate, and start a pass that tests it."""
    node = cluster.nodes[0]
    cluster.kubectl("taint", "node", node, f"{GATE}=new:NoSchedule")
    process = console.start("qualify", file, "--gated")
    until_testing(console, process)
    return node, process


def pod(cluster: Cluster, namespace: str, node: str) -> dict[str, Any]:
    """A user's, called train, that needs a whole node and has no priority in particular."""
    container = {
        "name": "train",
        "image": cluster.image,
        "imagePullPolicy": cluster.pull_policy,
        "command": ["sleep", "300"],
        "resources": {"limits": {WHOLE: 1}},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "restartPolicy": "Never",
        "containers": [container],
    }
    metadata = {"name": "train", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_qualify_test_yields_to_a_pending_pod_and_blames_no_node(
    console: Console, file: Path, own_cluster: Cluster, namespace: str
) -> None:
    node, other = own_cluster.nodes[:2]
    process = console.start("qualify", file, node, other, "--at-once", "2")
    until_testing(console, process)
    began = time.monotonic()
    own_cluster.apply(pod(own_cluster, namespace, node))
    own_cluster.kubectl(
        "wait",
        "-n",
        namespace,
        "--for=jsonpath={.status.phase}=Running",
        "pod/train",
        "--timeout=60s",
    )
    waited_s = time.monotonic() - began
    out, err = process.communicate(timeout=PATIENCE_S)
    print(f"the pod ran after {waited_s:.1f} s")
    assert process.returncode == 3, f"{out}\n{err}"
    for name in (node, other):
        assert re.search(rf"^{name}: inconclusive \(gave-way\), run ", out, re.MULTILINE), out
    (document,) = [path.read_text() for path in console.folder.glob("runs/*/run.json")]
    assert f"gave way to pod {namespace}/train" in document
    assert own_cluster.get("pod", "train", "-n", namespace)["status"]["phase"] == "Running"
    assert (taints(own_cluster, node), qualified(own_cluster, node)) == ([], ("", ""))
    assert left(own_cluster, namespace) == ""
    assert waited_s < STARTS_WITHIN_S


def test_gate_admits_a_node_that_passes_unless_somebody_else_cordoned_it(
    console: Console, file: Path, own_cluster: Cluster, namespace: str
) -> None:
    node, other = own_cluster.nodes[:2]
    for _ in range(3):  # a pass that is compared with nothing opens no gate
        finished = console.run("qualify", file, node)
        assert finished.status == 0, finished.output
    for name in (node, other):
        own_cluster.kubectl("taint", "node", name, f"{GATE}=new:NoSchedule")
    own_cluster.kubectl("cordon", other)  # by somebody else
    finished = console.run("qualify", file, "--gated")
    assert finished.status == 0, finished.output
    assert f"{node}: let in, it has passed" in finished.out
    assert (taints(own_cluster, node), qualified(own_cluster, node)) == ([], ("True", "Passed"))
    assert GATE in taints(own_cluster, other)
    assert qualified(own_cluster, other) == ("", "")
    assert left(own_cluster, namespace) == ""


def test_the_gate_keeps_out_a_node_that_dies_under_test(
    console: Console, file: Path, own_cluster: Cluster, namespace: str
) -> None:
    node, process = under_test(console, file, own_cluster)
    (own,) = own_cluster.kubectl(
        "get", "pods", "-n", namespace, "-l", OURS, "--output", "name"
    ).split()
    with suppress(AssertionError):  # what runs this ends with the rest
        own_cluster.kubectl("exec", "-n", namespace, own, "--", "sh", "-c", "kill -9 -1")
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, f"{out}\n{err}"
    kept = re.search(rf"^{node}: kept out, fail \(([a-z-]+)\) in run (\S+)$", out, re.MULTILINE)
    assert kept, out
    assert taints(own_cluster, node) == [GATE]
    assert qualified(own_cluster, node) == ("False", kept[1].title().replace("-", ""))
    messages = [each["message"] for each in own_cluster.get("node", node)["status"]["conditions"]]
    assert f"{kept[1]} in run {kept[2]}" in messages
    assert console.run("explain", kept[1]).status == 0  # what to do next
    assert console.run("qualify", file, "--gated").out.startswith("pass: no node was tested")
    assert left(own_cluster, namespace) == ""


def test_a_job_that_is_deleted_leaves_nothing_and_blames_nobody(
    console: Console, file: Path, own_cluster: Cluster, namespace: str
) -> None:
    node, process = under_test(console, file, own_cluster)
    own_cluster.kubectl("delete", "jobs", "-n", namespace, "-l", OURS)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3, f"{out}\n{err}"
    assert re.search(rf"^{node}: inconclusive ", out, re.MULTILINE), out
    assert left(own_cluster, namespace) == ""
    assert (taints(own_cluster, node), qualified(own_cluster, node)) == ([GATE], ("", ""))


def test_a_node_where_the_test_stays_pending_is_not_blamed(
    console: Console, file: Path, own_cluster: Cluster, namespace: str
) -> None:
    node = own_cluster.nodes[0]
    own_cluster.kubectl("taint", "node", node, f"{GATE}=new:PreferNoSchedule")
    own_cluster.apply(pod(own_cluster, "kube-system", node))  # where pods make no node busy
    try:
        ready = "--for=jsonpath={.status.phase}=Running"
        own_cluster.kubectl("wait", "-n", "kube-system", ready, "pod/train", "--timeout=60s")
        finished = console.run("qualify", file, node)
        assert finished.status == 3, finished.output
        assert re.search(rf"^{node}: inconclusive ", finished.out, re.MULTILINE), finished.out
        assert left(own_cluster, namespace) == ""
        assert (taints(own_cluster, node), qualified(own_cluster, node)) == ([GATE], ("", ""))
        status = console.run("status", file)
        assert re.search(
            rf"^{node}  at the gate  never passed, last test inconclusive ",
            status.out,
            re.MULTILINE,
        ), status.out
    finally:
        own_cluster.kubectl("delete", "pod", "train", "-n", "kube-system", "--grace-period=1")


def test_role_grants_exactly_the_rights_that_the_gate_needs(
    console: Console, file: Path, own_cluster: Cluster, namespace: str
) -> None:
    account = f"system:serviceaccount:{namespace}:seatrial"
    rules = next(
        each
        for each in yaml.safe_load_all(QUALIFY_YAML.read_text())
        if each["kind"] == "ClusterRole"
    )
    granted = {
        (verb, name)
        for rule in rules["rules"]
        for name in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == {
        ("list", "nodes"),
        ("patch", "nodes"),
        ("patch", "nodes/status"),
        ("list", "pods"),
    }
    assert may(own_cluster, account, "kube-system", "list", "pods")
    for verb, resource in (
        ("delete", "nodes"),
        ("update", "nodes"),
        ("get", "pods"),
        ("delete", "pods"),
        ("list", "secrets"),
    ):
        assert not may(own_cluster, account, "kube-system", verb, resource), (verb, resource)
    doctor = console.run("doctor", file)
    assert doctor.status == 0, doctor.output
    without = with_fields(file, qualify={"dry_run": False, "priority_class": "no-such-class"})
    doctor = console.run("doctor", without)
    assert "qualify.priority_class: the cluster has no no-such-class" in doctor.out, doctor.output
