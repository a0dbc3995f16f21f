"""The cluster itself: what a test finds in it, and that it can be broken and leaves nothing."""

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kubernetes import testbed
from tests.e2e.kubernetes.cluster import Cluster, leftovers, up
from tests.e2e.kubernetes.conftest import until
from tests.e2e.kubernetes.images import PAUSE
from tests.e2e.kubernetes.machine import Machine

SECOND = Machine(1)  # besides the one that all tests share


def is_ready(cluster: Cluster, node: str) -> bool:
    path = "{.status.conditions[?(@.type=='Ready')].status}"
    return cluster.kubectl("get", "node", node, "--output", f"jsonpath={path}") == "True"


def test_two_nodes_are_ready_with_eight_gpus_each(own_cluster: Cluster) -> None:
    items = json.loads(own_cluster.kubectl("get", "nodes", "--output", "json"))["items"]
    real = {item["metadata"]["name"]: item for item in items if item["metadata"]["name"] in own_cluster.nodes}
    assert len(real) == 2
    for name, item in real.items():
        assert is_ready(own_cluster, name)
        assert item["status"]["allocatable"]["nvidia.com/gpu"] == "8"
        assert item["metadata"]["labels"]["kubernetes.io/hostname"] == name
        assert item["metadata"]["labels"]["cloud.google.com/gce-topology-block"]


def test_a_job_gets_one_pod_a_node_and_mpi_goes_across(gpu_cluster: Cluster, namespace: str) -> None:
    cluster, keys = gpu_cluster, testbed.new_keys()
    started = time.monotonic()
    testbed.apply(cluster, namespace, testbed.objects(cluster, 2, keys))
    pods = testbed.wait_for_pods(cluster, namespace, 2)
    print(f"applied to ready: {time.monotonic() - started:.1f} s")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    head = pods[0]["metadata"]["name"]
    for index, pod in enumerate(pods):
        name = pod["metadata"]["name"]
        assert testbed.ssh(cluster, namespace, name, keys, "hostname") == f"bed-{index}\n"
    hosts = ",".join(pod["status"]["podIP"] for pod in pods)
    output = testbed.ssh(cluster, namespace, head, keys, f"mpirun -host {hosts} -np 2 hostname 2>&1")
    assert sorted(output.split()) == ["bed-0", "bed-1"]


def test_a_pods_link_can_be_made_slow(own_cluster: Cluster, namespace: str) -> None:
    cluster = own_cluster
    cluster.kubectl("run", "quiet", "-n", namespace, "--image", PAUSE, "--image-pull-policy", "Never")
    cluster.kubectl("wait", "-n", namespace, "--for", "condition=Ready", "pod/quiet", "--timeout=30s")
    node, link = cluster.host_veth_of("quiet", namespace)
    shape = ("tbf", "rate", "200mbit", "burst", "32kbit", "latency", "400ms")
    cluster.on_node(node, "tc", "qdisc", "add", "dev", link, "root", *shape)
    assert "200Mbit" in cluster.on_node(node, "tc", "qdisc", "show", "dev", link)


def test_a_silent_node_is_noticed_and_comes_back(own_cluster: Cluster) -> None:
    own_cluster.stop_kubelet("node-1")
    try:
        until(lambda: not is_ready(own_cluster, "node-1"))
        assert is_ready(own_cluster, "node-0")
    finally:
        own_cluster.resume_kubelet("node-1")
    until(lambda: is_ready(own_cluster, "node-1"))


def test_everything_lives_through_a_restart_of_the_api_server(own_cluster: Cluster, namespace: str) -> None:
    own_cluster.restart_apiserver()
    own_cluster.kubectl("run", "after", "-n", namespace, "--image", PAUSE, "--image-pull-policy", "Never")
    own_cluster.kubectl("wait", "-n", namespace, "--for", "condition=Ready", "pod/after", "--timeout=60s")
    assert all(is_ready(own_cluster, node) for node in own_cluster.nodes)


def test_a_user_without_rights_is_known_and_refused(own_cluster: Cluster) -> None:
    nobody = own_cluster.kubeconfig_without_rights
    assert own_cluster.token_without_rights() in nobody.read_text()
    assert '"nobody"' in own_cluster.kubectl("auth", "whoami", "--output", "json", kubeconfig=nobody)
    with pytest.raises(AssertionError, match=r'User "nobody" cannot list resource "pods"'):
        own_cluster.kubectl("get", "pods", kubeconfig=nobody)


def test_a_cluster_that_is_taken_down_leaves_nothing(own_cluster: Cluster) -> None:
    before = this_machine()
    with up(SECOND.number, ("node-0",), with_image=False) as second:
        second.kubectl("run", "quiet", "--image", PAUSE, "--image-pull-policy", "Never")
        second.kubectl("wait", "--for", "condition=Ready", "pod/quiet", "--timeout=60s")
        assert len(leftovers(SECOND)) > 10
        world = namespaces(SECOND)
        assert len(inhabitants(world)) > 10
    assert leftovers(SECOND) == []
    assert inhabitants(world) == []
    assert this_machine() == before


def test_a_cluster_ends_with_the_process_that_made_it_even_if_it_is_killed(own_cluster: Cluster) -> None:
    before = this_machine()
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as owner:
        assert owner.stdout
        assert owner.stdout.readline() == "up\n"
        world = namespaces(SECOND)
        owner.kill()
    until(lambda: inhabitants(world) == [])
    SECOND.stop()
    assert leftovers(SECOND) == []
    assert this_machine() == before


OWNER = """
import time
from tests.e2e.kubernetes.cluster import up

with up(1, ("node-0",), with_image=False):
    print("up", flush=True)
    time.sleep(600)
"""


def this_machine() -> dict[str, object]:
    """What a kubelet, containerd or the CNI plugins could change on the host: mounts, links, settings of the kernel."""
    mounts = Path("/proc/mounts").read_text().splitlines()
    links = [path.name for path in Path("/sys/class/net").iterdir()]
    settings = (
        "kernel/panic",
        "kernel/panic_on_oops",
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "net/ipv4/ip_forward",
    )
    return {
        "mounts": {line for line in mounts if not OTHERS.search(line)},
        "links": {name for name in links if not OTHERS.search(name)},
        "settings": [Path("/proc/sys", name).read_text() for name in settings],
        "folders": [Path(name).exists() for name in ("/var/lib/kubelet", "/var/log/pods", "/run/containerd")],
    }


# What other tests may make and remove on the same machine meanwhile: podman's, and the nodes of local runs.
OTHERS = re.compile(r"/seatrial/images/|/run/netns|podman|^veth|^seatrial-(?!k8s-[01])")


def namespaces(machine: Machine) -> set[str]:
    """Every namespace that processes of the machine are in, and the host is not."""
    process_1 = Path(f"/proc/{machine.pid}/ns/pid").readlink()
    mine = {link for link in links_of_processes() if link[1] == "pid" and link[2] == str(process_1)}
    pids = {pid for pid, _, _ in mine}
    host = {str(path.readlink()) for path in Path("/proc/self/ns").iterdir()}
    return {target for pid, _, target in links_of_processes() if pid in pids} - host


def inhabitants(of: set[str]) -> list[str]:
    return sorted({pid for pid, _, target in links_of_processes() if target in of})


def links_of_processes() -> Iterator[tuple[str, str, str]]:
    """Process, kind and namespace, for all processes of this machine."""
    for folder in Path("/proc").glob("[0-9]*/ns"):
        for kind in ("pid", "net", "mnt", "uts", "ipc", "cgroup"):
            with contextlib.suppress(OSError):  # it has ended
                yield folder.parent.name, kind, str((folder / kind).readlink())
