"""Hosts of a cluster file: what is legal, and the configuration of ssh that comes of it."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.platforms import platform_for
from seatrial.platforms.baremetal import BaremetalPlatform
from seatrial.platforms.baremetal.hosts import ssh_config
from seatrial.platforms.testbed import MADE_LATER, node_script
from tests.cluster_files import refusal

GOLDEN = Path(__file__).parents[2] / "golden" / "baremetal"
RUN_ID = "20260102-0304-abcde"
HOSTS = ["gpu-[01-03]", "big-1.example.com"]
OWN = {
    "gpu-[02-03]": {"port": 2222, "jump": "ops@bastion:2200,inner"},
    "big-1.example.com": {"user": "root"},
}


def settings(**fields: Any) -> BaremetalPlatform:
    return BaremetalPlatform.model_validate({"kind": "baremetal", "hosts": HOSTS, **fields})


def rendered() -> dict[str, str]:
    fields = {
        "user": "ubuntu",
        "key_file": "/keys/cluster key",
        "host_settings": OWN,
        "ssh_config": "/etc/site/ssh",
    }
    return render(fields)


def render(platform: dict[str, Any], **fields: Any) -> dict[str, str]:
    described = {
        "name": "test",
        "nodes": 4,
        "platform": {"kind": "baremetal", "hosts": HOSTS, **platform},
        **fields,
    }
    cluster = Cluster.model_validate(described)
    return dict(
        platform_for(cluster).render(Run(RUN_ID, cluster, load_suite("quick"), Path("out"))).files
    )


def options_of(config: str, host: str, folder: Path) -> dict[str, str]:
    """As the real ssh reads it."""
    (folder / "config").write_text(config)
    command = ["ssh", "-F", str(folder / "config"), "-G", host]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(line.partition(" ")[::2] for line in reversed(lines))


def test_rendered_files_match_the_golden_files() -> None:
    kept = {path.name: path.read_text() for path in GOLDEN.iterdir() if path.is_file()}
    script = node_script(RUN_ID, 222, MADE_LATER, MADE_LATER, f"/tmp/seatrial-{RUN_ID}/node")
    assert rendered() == kept | {"node.sh": script}


def test_ssh_reads_the_settings_of_each_host(tmp_path: Path) -> None:
    config = ssh_config(settings(user="ubuntu", host_settings=OWN))
    first, second, last = (
        options_of(config, host, tmp_path) for host in ("gpu-01", "gpu-03", "big-1.example.com")
    )
    assert (first["user"], first["port"], first.get("proxyjump")) == ("ubuntu", "22", None)
    assert (second["user"], second["port"], second["proxyjump"]) == (
        "ubuntu",
        "2222",
        "ops@bastion:2200,inner",
    )
    assert (last["user"], last["port"]) == ("root", "22")


def test_user_ssh_configuration_applies_but_cannot_disable_host_key_checking(
    tmp_path: Path,
) -> None:
    own = tmp_path / "own"
    own.write_text(
        "Host gpu-01\n  HostName 10.0.0.7\n  Port 2022\n  ProxyJump site\n  UserKnownHostsFile "
        "/site/known\n"
        "Host *\n  StrictHostKeyChecking no\n  UpdateHostKeys yes\n  ForwardAgent yes\n  "
        "BatchMode no\n"
        "  ControlMaster yes\n  KexAlgorithms ecdh-sha2-nistp256\n"
    )
    config = ssh_config(settings(ssh_config=str(own)))
    for host in ("gpu-01", "site"):  # the jump host is reached with the same file
        options = options_of(config, host, tmp_path)
        names = (
            "stricthostkeychecking",
            "updatehostkeys",
            "forwardagent",
            "batchmode",
            "controlmaster",
        )
        assert [options[name] for name in names] == ["true", "false", "no", "yes", "false"]
    options = options_of(config, "gpu-01", tmp_path)
    values = ("10.0.0.7", "2022", "site", "/site/known", "ecdh-sha2-nistp256")
    names = ("hostname", "port", "proxyjump", "userknownhostsfile", "kexalgorithms")
    assert tuple(options[name] for name in names) == values


def test_ssh_config_defaults_to_the_files_of_user_and_system() -> None:
    lines = ssh_config(settings()).splitlines()
    assert lines[-3:-1] == [
        f'    Include "{Path("~/.ssh/config").expanduser()}"',
        '    Include "/etc/ssh/ssh_config"',
    ]
    assert [
        line
        for line in ssh_config(settings(ssh_config="/site/ssh")).splitlines()
        if "Include" in line
    ] == ['    Include "/site/ssh"']


def test_many_hosts_have_lines_of_a_bounded_length() -> None:
    many = BaremetalPlatform.model_validate(
        {"kind": "baremetal", "hosts": ["gpu-[0001-9999]"], "user": "ubuntu"}
    )
    assert max(map(len, ssh_config(many).splitlines())) < 1000


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"host_settings": {"gpu-09": {}}}, "platform.host_settings: gpu-09 is not one of hosts"),
        ({"host_settings": {"gpu-[01-02]": {}, "gpu-02": {}}}, "host gpu-02 is there twice"),
        ({"host_settings": {"gpu-01": {"hostname": "x"}}}, "hostname"),
        ({"jump": "-oProxyCommand=reboot"}, "must be [USER@]HOST[:PORT]"),
        ({"jump": "a b"}, "must be [USER@]HOST[:PORT]"),
        ({"user": "-l root"}, "platform.user"),
        ({"ssh_config": 'a"\nProxyCommand x'}, "must be a path of letters"),
        ({"key_file": "a\nProxyCommand x"}, "must be a path of letters"),
        ({"folder": "tmp"}, "must be a full path"),
        ({"folder": "/tmp/../root"}, "must be a full path"),
        ({"port": 0}, "platform.port"),
        ({"deadline_s": 1}, "platform.deadline_s"),
        ({"hosts": ["-oProxyCommand=reboot"]}, "must be a host name"),
    ],
)
def test_bad_settings_are_one_line_with_file_and_field(
    tmp_path: Path, fields: dict[str, Any], problem: str
) -> None:
    assert problem in refusal(
        tmp_path, nodes=4, platform={"kind": "baremetal", "hosts": HOSTS, **fields}
    )


REFERENCE, FILE = "registry.example.com/acceptance:1", "/images/acceptance.sif"
MOUNTS = [
    {"source": "/data", "target": "/data"},
    {"source": "/s", "target": "/mnt/s", "read_only": False},
]
H100, AMD = {"hardware": "H100-SXM", "gpus_per_node": 8}, {"hardware": "MI300X", "gpus_per_node": 8}
FULL = {
    "mounts": MOUNTS,
    "devices": ["/dev/infiniband"],
    "ulimits": {"nofile": 65536, "stack": 67108864},
}
CONTAINERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "docker": ({"runtime": "docker", **FULL}, {"image": REFERENCE, **H100}),
    "podman": ({"runtime": "podman", **FULL}, {"image": REFERENCE, **H100}),
    "podman-amd": ({"runtime": "podman"}, {"image": REFERENCE, **AMD}),
    "podman-cpu": ({"runtime": "podman"}, {"image": REFERENCE}),
    "apptainer": (
        {"runtime": "apptainer", "mounts": MOUNTS, "folder": "/scratch"},
        {"image": FILE, **H100},
    ),
    "singularity-amd": ({"runtime": "singularity"}, {"image": FILE, **AMD}),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_container_commands_match_the_golden_file(name: str, tmp_path: Path) -> None:
    """`python -m tests.unit.baremetal.test_settings` writes the files anew; read what changed."""
    script = container_script(name)
    assert script == (GOLDEN / "containers" / f"{name}.sh").read_text()
    if shellcheck := shutil.which("shellcheck"):
        (tmp_path / "container.sh").write_text(script)
        subprocess.run([shellcheck, str(tmp_path / "container.sh")], check=True)


def container_script(name: str) -> str:
    platform, fields = CONTAINERS[name]
    return render(platform, **fields)["container.sh"]


@pytest.mark.parametrize(
    ("image", "fields", "problem"),
    [
        (None, {"runtime": "podman"}, "image: is required with platform.runtime podman"),
        (REFERENCE, {}, "platform.runtime: must say what starts the image: docker"),
        (FILE, {"runtime": "docker"}, "image: docker starts a reference such as repo/name:tag"),
        (REFERENCE, {"runtime": "apptainer"}, "image: apptainer starts a .sif file on the hosts"),
        ("/images/x.sqsh", {"runtime": "singularity"}, "image: singularity starts a .sif file"),
        (
            FILE,
            {"runtime": "apptainer", "ulimits": {"nofile": 1}},
            "platform.ulimits: has no use with",
        ),
        (
            FILE,
            {"runtime": "apptainer", "devices": ["/dev/fuse"]},
            "platform.devices: has no use with",
        ),
        (
            None,
            {"mounts": [{"source": "/a", "target": "/b"}]},
            "platform.mounts: has no use with platform.runtime none",
        ),
        (
            REFERENCE,
            {"runtime": "podman", "ulimits": {"nofile": True}},
            "must be a whole number, is true",
        ),
        (
            REFERENCE,
            {"runtime": "podman", "mounts": [{"source": "/a,b", "target": "/b"}]},
            "must be a full path",
        ),
        (REFERENCE, {"runtime": "crun"}, "platform.runtime"),
        ({"builder": "docker", "build": "cpu"}, {"runtime": "podman"}, "image: needs a repository"),
    ],
)
def test_container_fields_that_do_not_fit_are_refused_in_one_line(
    tmp_path: Path, image: object, fields: dict[str, Any], problem: str
) -> None:
    platform = {"kind": "baremetal", "hosts": HOSTS, **fields}
    assert problem in refusal(
        tmp_path, nodes=4, platform=platform, **({"image": image} if image else {})
    )


if __name__ == "__main__":
    for name in CONTAINERS:
        (GOLDEN / "containers").mkdir(exist_ok=True)
        (GOLDEN / "containers" / f"{name}.sh").write_text(container_script(name))
