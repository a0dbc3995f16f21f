"""A testbed by a real Helm on a real Kubernetes, as people have it: by hand, and with a
launcher.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from seatrial.remote.ssh import KeyPair
from tests.e2e.conftest import Console, until
from tests.e2e.kubernetes import testbed
from tests.e2e.kubernetes.chart import RELEASE, Object
from tests.e2e.kubernetes.cluster import Cluster
from tests.e2e.kubernetes.kinds import known
from tests.unit.kubernetes.chart import CHART

SELECT = f"app.kubernetes.io/instance={RELEASE}"
HEAD = f"{SELECT},batch.kubernetes.io/job-completion-index=0"


@pytest.fixture
def install(
    gpu_cluster: Cluster, helm: Callable[..., str], namespace: str, tmp_path: Path
) -> Iterator[Callable[..., str]]:
    """Installs the release on two nodes of images/cpu, with keys of its own, and uninstalls it;
    what Helm says.
    """
    keys = subprocess.run(
        [CHART / "new-keys"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    (tmp_path / "keys.yaml").write_text(keys)
    image = {"image": gpu_cluster.image, "imagePullPolicy": gpu_cluster.pull_policy}
    workload = {**image, "gpus": 4, "nodes": 2}
    (tmp_path / "values.json").write_text(
        json.dumps({"launcher": "job", "machine": "generic", "workload": workload})
    )
    files = [f"--values={tmp_path / name}" for name in ("keys.yaml", "values.json")]

    def run(*arguments: str) -> str:
        return helm("install", RELEASE, str(CHART), "--namespace", namespace, *files, *arguments)

    try:
        yield run
    finally:
        with suppress(AssertionError):  # the test may have uninstalled it
            helm("uninstall", RELEASE, "--namespace", namespace)


def pods(cluster: Cluster, namespace: str) -> list[Object]:
    """Of the release, by index."""
    listing = json.loads(
        cluster.kubectl("-n", namespace, "get", "pods", "--selector", SELECT, "--output", "json")
    )
    by_index: list[Object] = sorted(listing["items"], key=lambda pod: str(pod["metadata"]["name"]))
    return by_index


def wait_until_ready(cluster: Cluster, namespace: str) -> list[Object]:
    until(lambda: len(pods(cluster, namespace)) == 2)
    cluster.kubectl(
        "-n",
        namespace,
        "wait",
        "--for=condition=Ready",
        "pod",
        "--selector",
        SELECT,
        "--timeout=90s",
    )
    return pods(cluster, namespace)


def untouched(pod: Object) -> tuple[object, ...]:
    """What changes where somebody ends or replaces a pod, or what runs in it; the kubelet's own
    reports may change.
    """
    (container,) = pod["status"]["containerStatuses"]
    ending = pod["metadata"].get("deletionTimestamp")
    return (
        pod["metadata"]["uid"],
        ending,
        pod["spec"],
        pod["status"]["phase"],
        container["containerID"],
    )


def left(cluster: Cluster, namespace: str) -> set[str]:
    kinds = ",".join([*known(cluster), "configmaps"])
    names = cluster.kubectl("get", kinds, "-n", namespace, "--output", "name").split()
    return set(names) - {"configmap/kube-root-ca.crt"}


def commands(notes: str, after: str) -> str:
    """The indented lines that follow that line of NOTES.txt."""
    lines = notes.partition(f"{after}\n\n")[2].splitlines()
    return "\n".join(line for line in lines[: lines.index("")])


def test_testbed_installed_by_helm_comes_up_and_uninstalls_completely(
    install: Callable[..., str],
    helm: Callable[..., str],
    cluster: Cluster,
    namespace: str,
    console: Console,
    tmp_path: Path,
) -> None:
    notes = install()
    head, other = wait_until_ready(cluster, namespace)
    assert head["spec"]["nodeName"] != other["spec"]["nodeName"]

    keys = yaml.safe_load((tmp_path / "keys.yaml").read_text())["keys"]
    host = KeyPair(keys["ssh_host_ed25519_key"], keys["known_hosts"].removeprefix("* ").strip())
    own = testbed.Keys(KeyPair(keys["id_ed25519"], keys["authorized_keys"].strip()), host)
    for pod in (head, other):  # port 222, from outside
        output = testbed.ssh(
            cluster, namespace, pod["metadata"]["name"], own, "hostname; ssh bed-1.bed hostname"
        )
        assert output == f"{pod['spec']['hostname']}\nbed-1\n"

    script = commands(notes, "In there, a hostfile, and mpirun over all nodes:")
    name = head["metadata"]["name"]
    output = cluster.kubectl(
        "-n", namespace, "exec", "-i", name, "--", "ssh", "localhost", stdin=script
    )
    assert sorted(output.split()) == ["bed-0", "bed-0", "bed-1", "bed-1"]

    console.environment["KUBECONFIG"] = str(cluster.kubeconfig)
    file = console.cluster(
        2, platform={"kind": "kubernetes", "namespace": namespace}, image=cluster.image
    )
    reap = console.run("reap", file)
    assert reap.status == 0, reap.output
    assert [untouched(pod) for pod in pods(cluster, namespace)] == [
        untouched(head),
        untouched(other),
    ]

    helm("uninstall", RELEASE, "--namespace", namespace, "--wait", "--timeout", "60s")
    until(lambda: not left(cluster, namespace))


def run_launcher(install: Callable[..., str], folder: Path, script: str, *more: str) -> str:
    (folder / "run.sh").write_text(script)
    setting = "network.ncclSettings[0].name=NCCL_IB_TC,network.ncclSettings[0].value=53"
    return install(
        "--set-file", f"workload_launcher={folder / 'run.sh'}", "--set-string", setting, *more
    )


def job_ends(cluster: Cluster, namespace: str, condition: str) -> Object:
    cluster.kubectl(
        "-n", namespace, "wait", f"--for=condition={condition}", f"job/{RELEASE}", "--timeout=90s"
    )
    until(
        lambda: all(
            pod["status"]["phase"] in ("Succeeded", "Failed") for pod in pods(cluster, namespace)
        )
    )
    status: Object = json.loads(
        cluster.kubectl("-n", namespace, "get", "job", RELEASE, "--output", "json")
    )["status"]
    return status


LAUNCHER = """#!/bin/bash
set -euo pipefail
mpirun --hostfile "$HOSTFILE" --map-by ppr:1:node --bind-to none --mca orte_keep_fqdn_hostnames 1 $MPI_EXPORTS \\
    bash -c 'echo "index $JOB_COMPLETION_INDEX of $NNODES on $(hostname)," \\
        "world of $WORLD_SIZE at $MASTER_ADDR, traffic class $NCCL_IB_TC"'
"""


def test_a_launcher_runs_once_all_nodes_answer_and_the_testbed_ends_with_it(
    install: Callable[..., str],
    helm: Callable[..., str],
    cluster: Cluster,
    namespace: str,
    tmp_path: Path,
) -> None:
    run_launcher(install, tmp_path, LAUNCHER)
    assert job_ends(cluster, namespace, "Complete")["completedIndexes"] == "0"
    log = cluster.kubectl("-n", namespace, "logs", "--selector", HEAD, "--tail=-1")
    assert sorted(line for line in log.splitlines() if line.startswith("index")) == [
        f"index {index} of 2 on bed-{index}, world of 4 at bed-0.bed, traffic class 53"
        for index in range(2)
    ]
    helm("uninstall", RELEASE, "--namespace", namespace, "--wait", "--timeout", "60s")
    until(lambda: not left(cluster, namespace))


def test_a_jobset_ends_with_its_launcher(
    install: Callable[..., str], jobset: None, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    run_launcher(install, tmp_path, LAUNCHER, "--set=launcher=jobset")
    cluster.kubectl(
        "-n", namespace, "wait", "--for=condition=Completed", f"jobset/{RELEASE}", "--timeout=90s"
    )
    log = cluster.kubectl("-n", namespace, "logs", "--selector", HEAD, "--tail=-1")
    world = "world of 4 at bed-node-0-0.bed, traffic class 53"
    assert sorted(line for line in log.splitlines() if line.startswith("index")) == [
        f"index {index} of 2 on bed-node-0-{index}, {world}" for index in range(2)
    ]


def test_a_launcher_that_fails_fails_the_job_and_frees_every_node(
    install: Callable[..., str], cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    run_launcher(install, tmp_path, "#!/bin/bash\necho broken >&2\nexit 3\n")
    assert job_ends(cluster, namespace, "Failed")["failed"] >= 1
    assert "broken" in cluster.kubectl("-n", namespace, "logs", "--selector", HEAD, "--tail=-1")
