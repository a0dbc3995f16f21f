"""The nodes: containerd and a kubelet each, in namespaces of their own within the cluster's
machine.
"""

import json
import time
from pathlib import Path

from tests.e2e.kubernetes import cgroups, control, store
from tests.e2e.kubernetes.build import CNI
from tests.e2e.kubernetes.images import PAUSE
from tests.e2e.kubernetes.machine import Machine
from tests.site import PATIENCE_S

GPUS = 8
CONTAINERD = f"""\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{CNI}"
  conf_dir = "/run/cluster/{{node}}/cni"
"""


def start(machine: Machine, nodes: tuple[str, ...], images: Path) -> None:
    """Start all nodes, each with the images of that folder; the kubelets register a little
    later.
    """
    for index, node in enumerate(nodes):
        (machine.state / node / "cni").mkdir(parents=True)
        cgroups.make(f"{machine.cgroup}/{node}")
        _hold(machine, node, machine.address(10 + index))
        machine.run("ip", "route", "add", _pods(machine, index), "via", machine.address(10 + index))
        _write_configuration(machine, node, index)
        store.copy(images, machine.state / node / "lib" / "containerd")
        config = f"/run/cluster/{node}/containerd.toml"
        machine.spawn(f"containerd-{node}", "containerd", "--config", config, node=node)
    (machine.state / "resolv.conf").touch()  # what is outside is nobody's business
    for node in nodes:
        _wait_for_containerd(machine, node)
        start_kubelet(machine, node)


def start_kubelet(machine: Machine, node: str) -> None:
    index = int(node.rpartition("-")[2])
    machine.spawn(
        f"kubelet-{node}",
        "/run/tools/kubelet",
        f"--config=/run/cluster/{node}/kubelet.json",
        f"--kubeconfig={control.inside(control.kubeconfig(machine, f'system:node:{node}'))}",
        f"--hostname-override={node}",
        f"--node-ip={machine.address(10 + index)}",
        f"--node-labels={','.join(f'{key}={value}' for key, value in topology(index).items())}",
        node=node,
    )


def topology(index: int) -> dict[str, str]:
    """Labels as Google's GPU nodes have them: one block, a subblock for every two nodes, a host
    each.
    """
    prefix = "cloud.google.com/gce-topology-"
    return {
        f"{prefix}block": "block-0",
        f"{prefix}subblock": f"subblock-{index // 2}",
        f"{prefix}host": f"host-{index}",
    }


def gpus(count: int = GPUS) -> str:
    """What to patch into a node's status; the kubelet leaves it as it is."""
    resources = {"nvidia.com/gpu": str(count)}
    return json.dumps({"status": {"capacity": resources, "allocatable": resources}})


def _hold(machine: Machine, node: str, address: str) -> None:
    """Start what holds the node's namespaces, and connect it."""
    arguments = [node, f"{machine.cgroup}/{node}", address, machine.address(1)]
    machine.spawn(node, "bash", "/run/cluster/node.sh", *arguments)
    ready = machine.state / node / "ready"
    machine.wait_for(ready, node)
    number = (machine.state / "pids" / node).read_text().strip()
    machine.run("ip", "link", "add", node, "type", "veth", "peer", "name", "eth0", "netns", number)
    machine.run("ip", "link", "set", node, "master", "cluster0", "up")
    machine.wait_for(ready, node, "up")


def _pods(machine: Machine, index: int) -> str:
    return f"{machine.address(0, 16 + index)}/24"


def _write_configuration(machine: Machine, node: str, index: int) -> None:
    folder = machine.state / node
    (folder / "containerd.toml").write_text(CONTAINERD.format(node=node))
    (folder / "cni" / "10-pods.conflist").write_text(json.dumps(_network(machine, index)))
    (folder / "kubelet.json").write_text(json.dumps(_kubelet(machine)))


def _network(machine: Machine, index: int) -> dict[str, object]:
    """Pods on a bridge; what is for the other node goes by the machine's routes.

    No way out, and none needed.
    """
    ranges = [[{"subnet": _pods(machine, index)}]]
    bridge = {
        "type": "bridge",
        "bridge": "pods0",
        "isGateway": True,
        "ipam": {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]},
    }
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def _kubelet(machine: Machine) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "featureGates": {"KubeletInUserNamespace": True},
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "evictionHard": {
            "memory.available": "10Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        # The usual place would be the host's /usr/libexec
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "resolvConf": "/run/cluster/resolv.conf",
        "clusterDNS": [machine.address(1)],
        "clusterDomain": "cluster.local",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 20,
        "shutdownGracePeriod": "0s",
        "syncFrequency": "10s",
    }


def _wait_for_containerd(machine: Machine, node: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while "Server:" not in machine.run("ctr", "version", node=node, check=False):
        assert time.monotonic() < deadline, machine.log(f"containerd-{node}")
        time.sleep(0.05)
