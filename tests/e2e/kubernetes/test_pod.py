"""What a pod gives its ranks on a real kubelet: memory to pin and to share, volumes; what is said
of one missing.
"""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster as ClusterFile
from seatrial.config.run import Run
from seatrial.model.errors import LaunchError
from seatrial.model.testbed import Testbed
from seatrial.platforms import platform_for
from seatrial.platforms.container import CAPABILITIES
from seatrial.platforms.kubernetes.machines import MACHINES, Machine
from seatrial.remote.command import run_command
from seatrial.remote.mpi import variables
from seatrial.remote.ssh import connected
from tests.conftest import RUN_PREFIX
from tests.e2e.kubernetes.cluster import Cluster

Launch = Callable[..., AbstractContextManager[Testbed]]

# 64 MiB, with the limit of this process at a sixteenth of that: only the capability lets it be
# pinned.
PIN = """
import ctypes, mmap, resource
resource.setrlimit(resource.RLIMIT_MEMLOCK, (4 << 20, 4 << 20))
size = 64 << 20
memory = mmap.mmap(-1, size)
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
print(ctypes.CDLL(None, use_errno=True).mlock(ctypes.c_void_p(at), ctypes.c_size_t(size)))
"""


@pytest.fixture
def launched(
    cluster: Cluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Launch:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))

    @contextmanager
    def launch(**fields: Any) -> Iterator[Testbed]:
        more = fields.pop("platform", {})
        settings = {
            "kind": "kubernetes",
            "namespace": namespace,
            "image_pull_policy": cluster.pull_policy,
            **more,
        }
        asked = ClusterFile.model_validate(
            {"name": "test", "nodes": 1, "image": cluster.image, "platform": settings, **fields}
        )
        platform = platform_for(asked)
        run = Run(f"{RUN_PREFIX}{secrets.token_hex(4)}", asked, load_suite("quick"), tmp_path)
        try:
            yield platform.launch(run)
        finally:
            platform.teardown(run.run_id)

    return launch


def output_of(testbed: Testbed, command: str) -> str:
    with connected(testbed, testbed.head, 30) as head:
        done = run_command(head, command, timeout_s=60)
    assert done.exit_status == 0, done.output
    return done.output


def test_ranks_may_pin_memory_beyond_the_limit_and_share_it(
    launched: Launch, own_cluster: Cluster
) -> None:
    with launched(gpus_per_node=8, hardware={"name": "test"}) as testbed:
        assert output_of(testbed, f"python3 -c '{PIN}'").split() == ["0"]
        kilobytes = int(output_of(testbed, "df --output=size /dev/shm | tail -n 1"))
    assert kilobytes > 1 << 20  # what a container has without a volume there is 64 MiB
    with launched() as testbed:  # without GPUs there is nothing to pin for
        assert output_of(testbed, f"python3 -c '{PIN}'").split() == ["-1"]


@pytest.mark.parametrize("gpus", [0, 8])
def test_ranks_cannot_gain_privileges_and_have_only_needed_capabilities(
    launched: Launch, own_cluster: Cluster, gpus: int
) -> None:
    """Processes that sshd starts as root cannot gain privileges and have only the capabilities that
    a node needs.
    """
    more = {"gpus_per_node": gpus, "hardware": {"name": "test"}} if gpus else {}
    with launched(**more) as testbed:
        lines = output_of(testbed, "cat /proc/self/status").splitlines()
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert int(status["CapBnd"], 16).bit_count() == len(CAPABILITIES) + (gpus > 0)


def test_nodes_without_gpus_come_up_where_pods_keep_within_the_baseline(
    launched: Launch, own_cluster: Cluster, namespace: str
) -> None:
    enforced = "pod-security.kubernetes.io/enforce=baseline"
    own_cluster.kubectl("label", "namespace", namespace, enforced)
    with launched(nodes=2) as testbed:
        assert output_of(testbed, f"ssh {testbed.nodes[1].address} id -un") == "root"
    more = {"gpus_per_node": 8, "hardware": {"name": "test"}, "platform": {"start_timeout_s": 10}}
    with pytest.raises(LaunchError, match=r"violates PodSecurity.*IPC_LOCK"), launched(**more):
        pass


def test_the_cluster_file_wins_over_machine_family_script_and_defaults(
    launched: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster file, then the machine family, then the script that it names, then what holds
    without that.
    """
    settings = {"VERSION_ID": "default", "NCCL_CROSS_NIC": "0"}
    profile = Machine(source="/etc/os-release", defaults=settings, env={"NCCL_NET": "Socket"})
    monkeypatch.setitem(MACHINES, "generic", profile)
    with launched(env={"ID": "mine"}) as testbed:
        words = [line.partition("=") for line in output_of(testbed, "env").splitlines()]
    ranks = {name: value for name, _, value in words} | variables(testbed, {})
    assert (ranks["ID"], ranks["NCCL_NET"], ranks["NCCL_CROSS_NIC"]) == ("mine", "Socket", "0")
    assert ranks["VERSION_ID"] == "12"  # the script's, of Debian 12


def test_files_on_a_claim_are_visible_and_read_only_in_nodes(
    launched: Launch, own_cluster: Cluster, namespace: str
) -> None:
    common = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": namespace},
        "spec": {
            **common,
            "capacity": {"storage": "1Mi"},
            "hostPath": {"path": "/usr/share"},
            "claimRef": {"namespace": namespace, "name": "shared"},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "shared", "namespace": namespace},
        "spec": {**common, "volumeName": namespace, "resources": {"requests": {"storage": "1Mi"}}},
    }
    objects = {"apiVersion": "v1", "kind": "List", "items": [volume, claim]}
    own_cluster.kubectl("create", "--filename", "-", stdin=json.dumps(objects))
    try:
        mount = {"kind": "pvc", "mount": "/data", "claim": "shared", "read_only": True}
        with launched(platform={"volumes": [mount]}) as testbed:
            assert output_of(
                testbed, "ls -d /data/doc; touch /data/x 2>&1 || true"
            ).splitlines() == [
                "/data/doc",
                "touch: cannot touch '/data/x': Read-only file system",
            ]
    finally:
        own_cluster.kubectl("delete", "persistentvolume", namespace, "--wait=false")


def test_launch_error_names_the_volume_that_cannot_be_mounted(
    launched: Launch, own_cluster: Cluster
) -> None:
    disks = {"kind": "local-ssd", "mount": "/ssd"}
    with (
        pytest.raises(
            LaunchError,
            match=r"start_timeout_s\): 0 of 1 nodes answer; waiting: MountVolume.* is not a dir",
        ),
        launched(platform={"volumes": [disks], "start_timeout_s": 10}),
    ):
        pass
