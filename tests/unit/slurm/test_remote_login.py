"""The login on another machine: its settings, and the configuration of ssh that they make."""

from pathlib import Path

import pytest
import yaml

from seatrial.platforms.slurm.config import SlurmPlatform
from seatrial.platforms.slurm.login import RemoteLogin, login_of
from tests.cluster_files import refusal


def test_the_settings_of_the_login_come_before_the_users_own() -> None:
    settings = SlurmPlatform(
        kind="slurm", host="login", user="alice", port=2222, jump="gate:22,inner", key_file="/k", ssh_config="/c"
    )
    login = login_of(settings)
    assert isinstance(login, RemoteLogin)
    lines = [line.strip() for line in login.config().splitlines()]
    block = lines[lines.index("Host login") :]
    assert block[1:6] == ["User alice", "Port 2222", "ProxyJump gate:22,inner", 'IdentityFile "/k"', "Match all"]
    assert 'Include "/c"' in block
    assert "StrictHostKeyChecking yes" in lines[: lines.index("Host login")]


def test_without_a_host_commands_run_here() -> None:
    assert login_of(SlurmPlatform(kind="slurm")).place == "this machine"


@pytest.mark.parametrize(
    ("platform", "problem"),
    [
        ("user: alice", "platform.user: is for the login on platform.host"),
        ("ssh_config: /c", "platform.ssh_config: is for the login"),
        ("host: -oProxyCommand=x", "platform.host: "),
        ("host: login, jump: 'a b'", "platform.jump: must be"),
        ("host: login, key_file: 'k;rm'", "platform.key_file: must be a path"),
        ("host: login, port: 70000", "platform.port: "),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, platform: str, problem: str) -> None:
    assert problem in refusal(tmp_path, **yaml.safe_load(f"platform: {{kind: slurm, {platform}}}"))
