"""Hosts of a cluster file: what is legal, and the configuration of ssh that comes of it."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.run import Run
from seatrial.model.errors import InputError
from seatrial.platforms import platform_for
from seatrial.platforms.baremetal.config import BaremetalPlatform
from seatrial.platforms.baremetal.ssh_config import ssh_config

GOLDEN = Path(__file__).parents[2] / "golden" / "baremetal"
RUN_ID = "20260102-0304-abcde"
HOSTS = ["gpu-[01-03]", "big-1.example.com"]
OWN = {"gpu-[02-03]": {"port": 2222, "jump": "ops@bastion:2200,inner"}, "big-1.example.com": {"user": "root"}}


def settings(**fields: Any) -> BaremetalPlatform:
    return BaremetalPlatform.model_validate({"kind": "baremetal", "hosts": HOSTS, **fields})


def rendered() -> dict[str, str]:
    fields = {"user": "ubuntu", "key_file": "/keys/cluster key", "host_settings": OWN, "ssh_config": "/etc/site/ssh"}
    platform = {"kind": "baremetal", "hosts": HOSTS, **fields}
    cluster = Cluster.model_validate({"name": "test", "nodes": 4, "platform": platform})
    return dict(platform_for(cluster).render(Run(RUN_ID, cluster, load_suite("quick"), Path("out"))).files)


def options_of(config: str, host: str, folder: Path) -> dict[str, str]:
    """As the real ssh reads it."""
    (folder / "config").write_text(config)
    command = ["ssh", "-F", str(folder / "config"), "-G", host]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(line.partition(" ")[::2] for line in reversed(lines))


def test_files_are_as_they_were() -> None:
    assert rendered() == {path.name: path.read_text() for path in GOLDEN.iterdir()}


def test_ssh_reads_the_settings_of_each_host(tmp_path: Path) -> None:
    config = ssh_config(settings(user="ubuntu", host_settings=OWN))
    first, second, last = (options_of(config, host, tmp_path) for host in ("gpu-01", "gpu-03", "big-1.example.com"))
    assert (first["user"], first["port"], first.get("proxyjump")) == ("ubuntu", "22", None)
    assert (second["user"], second["port"], second["proxyjump"]) == ("ubuntu", "2222", "ops@bastion:2200,inner")
    assert (last["user"], last["port"]) == ("root", "22")


def test_the_users_configuration_counts_but_cannot_weaken_host_keys(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text(
        "Host gpu-01\n  HostName 10.0.0.7\n  Port 2022\n  ProxyJump site\n  UserKnownHostsFile /site/known\n"
        "Host *\n  StrictHostKeyChecking no\n  UpdateHostKeys yes\n  ForwardAgent yes\n  BatchMode no\n"
        "  ControlMaster yes\n  KexAlgorithms ecdh-sha2-nistp256\n"
    )
    config = ssh_config(settings(ssh_config=str(own)))
    for host in ("gpu-01", "site"):  # the jump host is reached with the same file
        options = options_of(config, host, tmp_path)
        names = ("stricthostkeychecking", "updatehostkeys", "forwardagent", "batchmode", "controlmaster")
        assert [options[name] for name in names] == ["true", "false", "no", "yes", "false"]
    options = options_of(config, "gpu-01", tmp_path)
    values = ("10.0.0.7", "2022", "site", "/site/known", "ecdh-sha2-nistp256")
    names = ("hostname", "port", "proxyjump", "userknownhostsfile", "kexalgorithms")
    assert tuple(options[name] for name in names) == values


def test_the_files_of_ssh_are_those_of_the_user_unless_one_is_named() -> None:
    lines = ssh_config(settings()).splitlines()
    assert lines[-3:-1] == [f'    Include "{Path("~/.ssh/config").expanduser()}"', '    Include "/etc/ssh/ssh_config"']
    assert [line for line in ssh_config(settings(ssh_config="/site/ssh")).splitlines() if "Include" in line] == [
        '    Include "/site/ssh"'
    ]


def test_many_hosts_have_lines_of_a_bounded_length() -> None:
    many = BaremetalPlatform.model_validate({"kind": "baremetal", "hosts": ["gpu-[0001-9999]"], "user": "ubuntu"})
    assert max(map(len, ssh_config(many).splitlines())) < 1000


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"host_settings": {"gpu-09": {}}}, "platform.host_settings: gpu-09 is not one of hosts"),
        ({"host_settings": {"gpu-[01-02]": {}, "gpu-02": {}}}, "host gpu-02 is there twice"),
        ({"host_settings": {"gpu-01": {"hostname": "x"}}}, "hostname"),
        ({"jump": "-oProxyCommand=reboot"}, r"must be \[USER@\]HOST\[:PORT\]"),
        ({"jump": "a b"}, r"must be \[USER@\]HOST\[:PORT\]"),
        ({"user": "-l root"}, "platform.baremetal.user"),
        ({"ssh_config": 'a"\nProxyCommand x'}, "must be a path of letters"),
        ({"key_file": "a\nProxyCommand x"}, "must be a path of letters"),
        ({"folder": "tmp"}, "must be a full path"),
        ({"folder": "/tmp/../root"}, "must be a full path"),
        ({"port": 0}, "platform.baremetal.port"),
        ({"deadline_s": 1}, "platform.baremetal.deadline_s"),
        ({"hosts": ["-oProxyCommand=reboot"]}, "must be a host name"),
    ],
)
def test_bad_settings_are_one_line_with_file_and_field(tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    import yaml

    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump({"nodes": 4, "platform": {"kind": "baremetal", "hosts": HOSTS, **fields}}))
    with pytest.raises(InputError, match=rf"^[^\n]*cluster\.yaml[^\n]*{problem}[^\n]*$"):
        load_cluster(path)


def test_an_image_has_no_use(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes: 1\nslots_per_node: 2\nimage: registry/x:1\nplatform: {kind: baremetal, hosts: [gpu-1]}\n")
    with pytest.raises(InputError, match="image: has no use on platform baremetal"):
        load_cluster(path)
