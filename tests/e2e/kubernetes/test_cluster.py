"""The cluster of the tests leaves nothing on this machine, whatever ends it."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.conftest import until
from tests.e2e.kubernetes.cluster import Cluster, leftovers, up
from tests.e2e.kubernetes.images import PAUSE
from tests.e2e.kubernetes.machine import Machine

SECOND = Machine(1)  # besides the one that all tests share


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
