"""`seatrial init`: what a site answers becomes a cluster file that loads and renders."""

import os
import re
import resource
import socket
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from seatrial.checks.suites import load_suite
from seatrial.cli.init import init
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.run import Run
from seatrial.model.errors import InputError, LaunchError, MissingError, SeatrialError
from seatrial.platforms import platform_for
from seatrial.platforms.kubernetes.api import UnknownKindError
from seatrial.platforms.kubernetes.plan import Kind

SINFO = """\
debug|up|2|idle|30:00|1-2|(null)
gpu*|up|5|mix|2-00:00:00|1-infinite|gpu:h100:8(S:0-1),nvme:1
gpu*|up|1|alloc|2-00:00:00|1-infinite|gpu:h100:8(S:0-1),nvme:1
gpu*|up|2|down*|2-00:00:00|1-infinite|gpu:h100:8(S:0-1)
gpu*|up|1|drain|2-00:00:00|1-infinite|gpu:h100:8(S:0-1)
gpu*|up|1|idle|2-00:00:00|1-infinite|gpu:a100:8
closed|down|64|idle|infinite|1-infinite|gpu:h100:8
sinfo: error: something else
"""
PRODUCT = "nvidia.com/gpu.product"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, and no cluster, unless a test brings one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    (tmp_path / "bin").mkdir()
    os.symlink("/bin/cat", "bin/cat")


def answering(command: str, *answers: tuple[str, str]) -> None:
    """Put a command on PATH that prints an answer by the first arguments that fit."""
    cases = []
    for i, (arguments, output) in enumerate(answers):
        Path(f"{command}.{i}").write_text(output)
        cases.append(
            f'case "$*" in *"{arguments}"*) cat {Path.cwd()}/{command}.{i}; exit 0;; esac\n'
        )
    script = Path("bin", command)
    script.write_text(f"#!/bin/sh\n{''.join(cases)}exit 1\n")
    script.chmod(0o755)


def written(*arguments: str, answers: str = "") -> tuple[Cluster, Result]:
    """The cluster of the file that was written, which renders."""
    done = CliRunner().invoke(
        init, ["site.yaml", *arguments], input=answers, catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    cluster = load_cluster(Path("site.yaml"))
    platform_for(cluster).render(Run("r", cluster, load_suite("quick"), Path("out")))
    return cluster, done


class Site:
    """An API server that has these nodes, queues and kinds."""

    def __init__(
        self,
        *nodes: dict[str, Any],
        queues: tuple[str, ...] = (),
        kinds: tuple[str, ...] = ("Job",),
    ) -> None:
        self._nodes, self._queues, self._kinds = nodes, queues, kinds

    def __call__(self, settings: Any) -> "Site":
        return self

    def list(self, kind: Kind) -> Any:
        return (
            self._nodes
            if kind.kind == "Node"
            else [{"metadata": {"name": name}} for name in self._queues]
        )

    def knows(self, kind: Kind) -> None:
        if kind.kind not in self._kinds:
            raise UnknownKindError(f"no {kind.kind}")


def node(
    labels: dict[str, str], offers: dict[str, str], *taints: dict[str, str], ready: str = "True"
) -> dict[str, Any]:
    return {
        "metadata": {"name": "n", "labels": labels},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": offers, "conditions": [{"type": "Ready", "status": "True"}]},
    }


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Callable[[Site], None]:
    import_module("seatrial.platforms.kubernetes.platform")  # or it would keep the stand-in
    return lambda site: monkeypatch.setattr("seatrial.platforms.kubernetes.api.Api", site)


def test_init_writes_a_cluster_file_for_a4_nodes_with_a_queue(site: Callable[[Site], None]) -> None:
    labels = {
        "cloud.google.com/gke-accelerator": "nvidia-b200",
        "cloud.google.com/gce-topology-block": "b1",
    }
    gpu = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    a4 = node(labels, {"nvidia.com/gpu": "8", "networking.gke.io.networks/rdma-0": "1"}, gpu)
    small = node({}, {"cpu": "4"})
    site(Site(a4, a4, small, queues=("a4-high", "a4-low"), kinds=("Job", "JobSet")))
    _, done = written("--platform", "kubernetes", "--namespace", "trials", "--yes")
    text = Path("site.yaml").read_text()
    assert yaml.safe_load(text) == {
        "name": "kubernetes",
        "nodes": 2,
        "gpus_per_node": 8,
        "hardware": "B200-SXM",
        "fabric": "RoCE-8x400G",
        "image": "registry.example.com/seatrial/acceptance:1",
        "platform": {
            "kind": "kubernetes",
            "namespace": "trials",
            "launcher": "jobset",
            "machine": "a4",
            "queue": "a4-high",
        },
    }
    assert "  # topology: {preferred: cloud.google.com/gce-topology-block}\n" in text
    assert done.stdout.splitlines()[1] == "to fill in: image"


def test_init_names_gpus_of_amd_by_their_label(site: Callable[[Site], None]) -> None:
    label = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}
    other = node({PRODUCT: "NVIDIA-L4"}, {"nvidia.com/gpu": "1"})
    site(Site(*[node(label, {"amd.com/gpu": "8"})] * 2, other))
    cluster, done = written("--platform", "kubernetes", "--yes")
    assert (cluster.nodes, cluster.gpus, cluster.hardware.name) == (2, 8, "MI300X")
    assert yaml.safe_load(Path("site.yaml").read_text())["platform"]["node_selector"] == label
    assert done.stdout.splitlines()[1] == "to fill in: fabric, image"


def test_init_writes_a_cluster_file_for_tainted_p5_nodes_with_efa(
    site: Callable[[Site], None],
) -> None:
    team = {"key": "team", "value": "ml", "effect": "NoSchedule"}
    labels = {PRODUCT: "NVIDIA-H100-80GB-HBM3", "node.kubernetes.io/instance-type": "p5.48xlarge"}
    p5 = node(
        labels, {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32", "rdma/shared": "1000"}, team
    )
    p5["status"]["images"] = [
        {"names": ["r.example.com/seatrial/efa@sha256:0", "r.example.com/seatrial/efa:2"]}
    ]
    other = node({PRODUCT: "NVIDIA-L4"}, {"nvidia.com/gpu": "1"})
    site(Site(p5, p5, lost(p5), other))
    cluster, done = written("--platform", "kubernetes", "--yes")
    document = yaml.safe_load(Path("site.yaml").read_text())
    assert (cluster.nodes, cluster.gpus, cluster.hardware.name, cluster.fabric) == (
        2,
        8,
        "H100-SXM",
        "EFA-3200G",
    )
    assert document["image"] == "r.example.com/seatrial/efa:2"
    assert document["platform"] == {
        "kind": "kubernetes",
        "namespace": "default",
        "launcher": "job",
        "node_selector": {PRODUCT: "NVIDIA-H100-80GB-HBM3"},
        "tolerations": [{**team, "operator": "Equal"}],
        "resources": {"vpc.amazonaws.com/efa": 32, "rdma/shared": 1},
    }
    assert "to fill in" not in done.output


def lost(of: dict[str, Any]) -> dict[str, Any]:
    return {
        **of,
        "status": {**of["status"], "conditions": [{"type": "Ready", "status": "Unknown"}]},
    }


def test_hostile_node_labels_cannot_add_fields_to_the_cluster_file(
    site: Callable[[Site], None],
) -> None:
    site(Site(node({PRODUCT: "X\nfaults: []\x1b[2J" + "y" * 9_000}, {"nvidia.com/gpu": "4"})))
    with pytest.raises(InputError, match=r"site\.yaml: line \d+: hardware"):
        written("--platform", "kubernetes", "--yes")
    site(Site(node({PRODUCT: "NVIDIA X9 faults: []"}, {"nvidia.com/gpu": "4"})))
    cluster, _ = written("--platform", "kubernetes", "--yes")
    assert (cluster.hardware.name, cluster.gpus, cluster.faults) == ("NVIDIA X9 faults: []", 4, ())


def test_init_chooses_the_slurm_partition_with_most_gpus() -> None:
    answering("sinfo", ("--noheader", SINFO))
    _, done = written("--platform", "slurm", "--yes")
    text = Path("site.yaml").read_text()
    assert yaml.safe_load(text) == {
        "name": "slurm",
        "nodes": 6,
        "gpus_per_node": 8,
        "hardware": "H100-SXM",
        "platform": {"kind": "slurm", "partition": "gpu"},
    }
    assert "there are gpu, debug" in text
    assert done.stdout.splitlines()[1] == "to fill in: hardware, fabric"  # H100-SXM or H100-NVL


def test_missing_fields_are_asked_for_until_the_answer_is_legal() -> None:
    answering("sinfo", ("--noheader", SINFO))
    answering("srun", ("--help", "  --container-image=[USER@]... pyxis"))
    cluster, done = written("--platform", "slurm", answers="debug\nIB-8x400\n\n")
    assert (cluster.nodes, cluster.gpus, cluster.fabric) == (2, 0, None)
    assert cluster.platform.model_dump()["time_limit"] == "30:00"
    assert "fabric: unknown fabric 'IB-8x400'; nearest: IB-8x400G" in done.stderr
    assert "  # runtime: pyxis\n" in Path("site.yaml").read_text()
    os.remove("site.yaml")
    cluster, done = written("--platform", "slurm", answers="gpu\nH100-SXM\nIB-8x400G\n")
    assert (cluster.hardware.name, cluster.fabric) == ("H100-SXM", "IB-8x400G")
    assert "to fill in" not in done.stdout


def test_a_project_of_runai_is_chosen_and_the_usual_gpus_are_taken() -> None:
    projects = (
        '{"projects": [{"name": "infra", "clusterId": "c"}, {"name": "Not Legal"}, '
        '{"metadata": {"name": "ml"}}]}'
    )
    answering(
        "runai",
        ("project list", projects),
        ("nodepool list", '[{"name": "default"}, {"name": "gh200"}]'),
    )
    image = "registry.example.com/x:1"
    cluster, _ = written(
        "--platform", "runai", answers=f"ml\nmany\n3\nGH200\nIB-4x400G\nUPPER\n{image}\n"
    )
    assert (cluster.nodes, cluster.hardware.name, cluster.gpus, cluster.fabric) == (
        3,
        "GH200",
        4,
        "IB-4x400G",
    )
    assert cluster.platform.model_dump()["project"] == "ml"
    os.remove("site.yaml")
    cluster, done = written("--platform", "runai", "--yes")
    assert cluster.platform.model_dump()["project"] == "infra"
    assert done.stdout.splitlines()[1] == "to fill in: nodes, hardware, fabric, image"


def test_init_can_fall_back_to_this_machine_without_a_scheduler() -> None:
    answering("nvidia-smi", ("--query-gpu", "NVIDIA H100 80GB HBM3\n" * 2))
    answering("sinfo")
    with pytest.raises(
        SeatrialError,
        match=r"^slurm: sinfo on this machine failed.*; --platform this-machine passes over",
    ):
        written("--yes")
    cluster, done = written(answers="slurm\nthis-machine\n")
    assert "not slurm: sinfo on this machine failed" in done.stderr
    assert (cluster.platform.kind, cluster.hardware.name, cluster.gpus) == (
        "this-machine",
        "H100-SXM",
        2,
    )


def test_init_without_input_names_the_question_and_the_yes_option() -> None:
    answering("sinfo", ("--noheader", SINFO))
    with pytest.raises(
        InputError, match=r"^platform.partition: standard input has no answer; --yes asks nothing$"
    ):
        written("--platform", "slurm")
    assert not Path("site.yaml").exists()


def test_init_never_overwrites_a_file() -> None:
    Path("site.yaml").write_text("mine")
    with pytest.raises(InputError, match=r"site\.yaml: is there already"):
        written("--platform", "this-machine", "--yes")
    os.remove("site.yaml")
    os.symlink("nowhere", "site.yaml")
    with pytest.raises(InputError, match=r"site\.yaml: is there already"):
        written("--platform", "this-machine", "--yes")


def test_init_leaves_no_empty_file_on_a_full_disk() -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    try:
        with pytest.raises(InputError, match=r"^site\.yaml: cannot be written: File too large$"):
            written("--platform", "this-machine", "--yes")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not Path("site.yaml").exists()


def test_init_writes_no_file_when_the_kubernetes_api_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        config = {
            "current-context": "gke",
            "contexts": [{"name": "gke", "context": {"cluster": "gke", "user": "me"}}],
            "clusters": [
                {
                    "name": "gke",
                    "cluster": {"server": f"http://127.0.0.1:{closed.getsockname()[1]}"},
                }
            ],
            "users": [{"name": "me", "user": {"token": "t"}}],
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        with pytest.raises(
            SeatrialError, match=r"^kubernetes: .*; --platform this-machine passes over it$"
        ):
            written("--yes")
    assert not Path("site.yaml").exists()


def test_an_unreadable_kubeconfig_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubeconfig").write_text("contexts: nonsense")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    with pytest.raises(SeatrialError, match=r"^kubernetes: "):
        written("--yes")
    assert not Path("site.yaml").exists()


def test_init_writes_local_nodes_and_the_schema() -> None:
    cluster, done = written("--platform", "local", "--yes")
    assert (cluster.platform.kind, cluster.nodes, cluster.gpus) == ("local", 4, 0)
    assert "# yaml-language-server: $schema=cluster.schema.json\n" in Path("site.yaml").read_text()
    assert yaml.safe_load(Path("cluster.schema.json").read_text())["title"] == "Cluster"
    assert "to fill in" not in done.stdout


def test_hosts_of_bare_metal_have_the_gpus_of_the_first() -> None:
    answering("ssh", ("gpu-01 nvidia-smi --query-gpu=name", "NVIDIA H100 80GB HBM3\n" * 8))
    cluster, done = written("--platform", "baremetal", "--host", "gpu-[01-04]", "--yes")
    document = yaml.safe_load(Path("site.yaml").read_text())
    assert document["platform"] == {"kind": "baremetal", "hosts": ["gpu-[01-04]"]}
    assert (cluster.nodes, cluster.gpus, cluster.hardware.name) == (4, 8, "H100-SXM")
    assert done.stdout.splitlines()[1] == "to fill in: fabric"


@pytest.mark.parametrize(
    ("script", "error", "message"),
    [
        (
            "echo 'ssh: connect to host gpu-1 port 22: No route to host' >&2; exit 255",
            LaunchError,
            "gpu-1: no login",
        ),
        ("exit 9", LaunchError, "gpu-1: nvidia-smi ended with status 9"),
    ],
)
def test_an_unreachable_host_is_reported(script: str, error: type[Exception], message: str) -> None:
    Path("bin/ssh").write_text(f"#!/bin/sh\n{script}\n")
    Path("bin/ssh").chmod(0o755)
    with pytest.raises(error, match=message):
        written("--platform", "baremetal", "--host", "gpu-1", "--yes")
    assert not Path("site.yaml").exists()


def test_a_host_without_gpus_has_processors() -> None:
    Path("bin/ssh").write_text("#!/bin/sh\nexit 127\n")
    Path("bin/ssh").chmod(0o755)
    cluster, _ = written("--platform", "baremetal", "--host", "a", "--host", "b", "--yes")
    assert (cluster.hardware.name, cluster.nodes) == ("cpu", 2)


def test_a_host_without_nvidia_smi_has_the_gpus_of_amd() -> None:
    names = "AMD Instinct MI300X OAM\\n" * 8
    Path("bin/ssh").write_text(
        f'#!/bin/sh\ncase "$*" in *"gpu-1 cat /sys/"*) printf "{names}"; exit;; esac\nexit 127\n'
    )
    Path("bin/ssh").chmod(0o755)
    cluster, _ = written("--platform", "baremetal", "--host", "gpu-[1-2]", "--yes")
    assert (cluster.hardware.name, cluster.gpus, cluster.nodes) == ("MI300X", 8, 2)


def test_init_asks_slurm_through_its_login_node() -> None:
    answering("ssh", ("sinfo", SINFO))
    cluster, _ = written("--host", "login.example.com", "--yes")
    settings = cluster.platform.model_dump()
    assert (settings["kind"], settings["host"], settings["partition"]) == (
        "slurm",
        "login.example.com",
        "gpu",
    )
    assert (cluster.name, cluster.nodes, cluster.gpus) == ("login", 6, 8)


def test_a_silent_docker_host_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    with pytest.raises(MissingError, match="no Docker daemon answers"):
        written("--platform", "docker", "--yes")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--platform", "baremetal"), "--host: bare metal needs its hosts"),
        (
            ("--platform", "kubernetes", "--host", "a"),
            "--host: has no use with --platform kubernetes; legal: slurm, ",
        ),
        (("--host", "-oProxyCommand=x"), "--host '-oProxyCommand=x': must be a host"),
        (
            ("--platform", "slurm", "--host", "a", "--host", "b"),
            "--host: Slurm needs one login node",
        ),
        (("--platform", "baremetal", "--host", "gpu-[4-1]"), "--host: "),
    ],
)
def test_init_refuses_invalid_host_options(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        written(*words, "--yes")
