"""The login on another machine: its settings, and the configuration of ssh that they make."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.model.errors import LaunchError, MissingError, SeatrialError
from seatrial.platforms import state as states
from seatrial.platforms.commands import Finished
from seatrial.platforms.slurm import SlurmPlatform
from seatrial.platforms.slurm import login as logins
from seatrial.platforms.slurm.login import RemoteLogin, login_of
from tests.cluster_files import refusal


def test_login_settings_precede_those_of_the_user_ssh_config() -> None:
    settings = SlurmPlatform(
        kind="slurm",
        host="login",
        user="alice",
        port=2222,
        jump="gate:22,inner",
        key_file="/k",
        ssh_config="/c",
    )
    login = login_of(settings)
    assert isinstance(login, RemoteLogin)
    lines = [line.strip() for line in login.config().splitlines()]
    block = lines[lines.index("Host login") :]
    assert block[1:6] == [
        "User alice",
        "Port 2222",
        "ProxyJump gate:22,inner",
        'IdentityFile "/k"',
        "Match all",
    ]
    assert 'Include "/c"' in block
    assert "StrictHostKeyChecking yes" in lines[: lines.index("Host login")]


def test_slurm_commands_run_locally_without_a_login_host() -> None:
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
def test_invalid_settings_are_one_line(tmp_path: Path, platform: str, problem: str) -> None:
    assert problem in refusal(tmp_path, **yaml.safe_load(f"platform: {{kind: slurm, {platform}}}"))


class Ssh:
    """Programs of this machine, each of which ends as it is told."""

    def __init__(self, ends: Finished | Exception) -> None:
        self.ends, self.calls, self.limits = ends, list[list[str]](), list[float]()

    def __call__(self, argv: Sequence[str], env: object, timeout_s: float, **_: Any) -> Finished:
        self.calls.append(list(argv))
        self.limits.append(timeout_s)
        if isinstance(self.ends, Exception):
            raise self.ends
        return self.ends


REMOTE = SlurmPlatform(kind="slurm", host="login", login_timeout_s=7)


def test_commands_go_through_ssh_with_the_configuration_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "root_folder", lambda kind: tmp_path / kind)
    ssh = Ssh(Finished(0, "alice\n", ""))
    monkeypatch.setattr(logins, "run_bounded", ssh)
    login = login_of(REMOTE)
    assert (login.user, login.place, login.lost_status) == ("alice", "login", 255)
    assert ssh.limits == [67]  # the login takes its own time
    *start, config, host, command = ssh.calls[0]
    assert (start, host) == (["ssh", "-F"], "login")
    assert "Host *" in Path(config).read_text()
    assert command.endswith("id -un")
    login_of(REMOTE).run(["true"])
    assert ssh.calls[-1][2] == config


@pytest.mark.parametrize(
    ("settings", "ends", "error", "code"),
    [
        (REMOTE, Finished(255, "", "ssh: Connection refused"), LaunchError, "baremetal-unreachable"),
        (REMOTE, FileNotFoundError(), MissingError, "ssh-missing"),
        (REMOTE, Finished(127, "", ""), MissingError, "slurm-command-missing"),
        (SlurmPlatform(kind="slurm"), FileNotFoundError(), MissingError, "slurm-command-missing"),
        (SlurmPlatform(kind="slurm"), PermissionError(13, "Denied"), LaunchError, "slurm-command-failed"),
        (SlurmPlatform(kind="slurm"), subprocess.TimeoutExpired("x", 60), LaunchError, "slurm-command-failed"),
        (SlurmPlatform(kind="slurm"), Finished(255, "", "no"), LaunchError, "slurm-command-failed"),
    ],
)  # fmt: skip
def test_each_way_a_command_fails_has_an_error_type_and_code(
    settings: SlurmPlatform,
    ends: Finished | Exception,
    error: type[SeatrialError],
    code: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logins, "run_bounded", Ssh(ends))
    with pytest.raises(error) as raised:
        login_of(settings).run(["squeue"])
    assert raised.value.reason.code == code
