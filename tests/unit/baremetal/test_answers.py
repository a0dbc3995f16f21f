"""What ssh and the hosts print: the causes that are told apart, and answers that are hostile or
broken.
"""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from seatrial.model.errors import SeatrialError
from seatrial.platforms import state as states
from seatrial.platforms.baremetal import BaremetalPlatform
from seatrial.platforms.baremetal.hosts import BaremetalState, HostAddress, Hosts
from seatrial.platforms.openssh import is_before_login, is_silent, reason_of

CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
Offending ED25519 key in /site/known_hosts:7
Host key for [10.0.0.7]:2222 has changed and you have requested strict checking.
Host key verification failed.
"""
UNKNOWN = (
    "No ED25519 host key is known for gpu-1 and you have requested strict checking.\nHost key "
    "verification failed.\n"
)


@pytest.mark.parametrize(
    ("errors", "code", "silent", "never_in"),
    [
        (CHANGED, "baremetal-host-key-changed", False, True),
        (UNKNOWN, "baremetal-host-key-unknown", False, True),
        (
            "The ED25519 host key for gpu-1 is marked as revoked.\n",
            "baremetal-host-key-revoked",
            False,
            True,
        ),
        (
            "root@gpu-1: Permission denied (publickey,password).\n",
            "baremetal-login-refused",
            False,
            True,
        ),
        (
            "ssh: connect to host 10.0.0.7 port 22: Connection refused\n",
            "baremetal-unreachable",
            True,
            True,
        ),
        (
            "ssh: connect to host 10.0.0.7 port 22: No route to host\n",
            "baremetal-unreachable",
            True,
            True,
        ),
        (
            "ssh: Could not resolve hostname gpu-1: Name or service not known\n",
            "baremetal-unreachable",
            True,
            True,
        ),
        (
            "Connection to 10.0.0.7 closed by remote host.\n",
            "baremetal-connection-lost",
            True,
            False,
        ),
        (
            "kex_exchange_identification: Connection reset by peer\n",
            "baremetal-connection-lost",
            True,
            False,
        ),
        ("", "baremetal-connection-lost", True, False),
        ("Bad configuration option: x\n", "baremetal-ssh-failed", False, False),
    ],
)
def test_causes_of_failed_logins_are_distinguished(
    errors: str, code: str, silent: bool, never_in: bool
) -> None:
    reason = reason_of(
        "gpu-1", errors, lambda: {"userknownhostsfile": "/site/known_hosts", "user": "root"}
    )
    assert (reason.code, is_silent(reason), is_before_login(reason)) == (code, silent, never_in)


def test_a_changed_host_key_names_host_file_and_command() -> None:
    reason = reason_of("gpu-1", CHANGED, dict)
    assert reason.sentence == (
        "gpu-1: [10.0.0.7]:2222 answers with another host key than /site/known_hosts has; "
        "compare with `ssh-keygen -lF [10.0.0.7]:2222 -f /site/known_hosts`"
    )


def test_what_ssh_prints_is_one_bounded_line_without_control_characters() -> None:
    reason = reason_of("gpu-1", "\x1b[31mboom\n" + "x" * 100_000, dict)
    assert len(reason.sentence) < 1000
    assert reason.sentence.isprintable()


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """With a command `ssh` that prints what `answer` has, and ends as it says."""
    command = tmp_path / "bin" / "ssh"
    command.parent.mkdir()
    command.write_text(
        f"#!/bin/sh\ncat >/dev/null\ncat {tmp_path}/answer\nexit $(cat {tmp_path}/status)\n"
    )
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{command.parent}:/usr/bin:/bin")
    (tmp_path / "status").write_text("0")
    monkeypatch.setattr(states, "root_folder", lambda kind: tmp_path / kind)
    return Hosts(BaremetalPlatform(kind="baremetal", hosts=("gpu-1",)))


def answer_of(hosts: Hosts, folder: Path, text: str) -> Any:
    (folder / "answer").write_text(text)
    return hosts.ask("gpu-1", {"verb": "check"}, 10)


def test_login_banner_before_the_answer_is_ignored(hosts: Hosts, tmp_path: Path) -> None:
    answer = answer_of(
        hosts,
        tmp_path,
        'Welcome!\nseatrial-host: {"port": 222, "user": "root", "address": "10.0.0.7"}\n',
    )
    assert (answer.port, answer.user, answer.address) == (222, "root", "10.0.0.7")


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        '{"port": 0}',
        '{"port": "222"}',
        '{"user": "root; reboot"}',
        '{"address": "$(reboot)"}',
        '{"log": 1}',
        '{"held": {"run": 5}}',
        '{"other": 1}',
        '{"free_bytes": NaN}',
        "[" * 100_000,
    ],
)
def test_a_broken_answer_is_refused(hosts: Hosts, tmp_path: Path, content: str) -> None:
    with pytest.raises(SeatrialError, match="gpu-1: its answer is not what the program prints"):
        answer_of(hosts, tmp_path, f"seatrial-host: {content}\n")


def test_a_problem_is_shown_without_control_characters(hosts: Hosts, tmp_path: Path) -> None:
    with pytest.raises(SeatrialError) as caught:
        answer_of(
            hosts,
            tmp_path,
            "seatrial-host: " + json.dumps({"problem": "a\x1b]0;x\x07\n" + "b" * 5000}) + "\n",
        )
    assert caught.value.reason.sentence.isprintable()
    assert len(caught.value.reason.sentence) < 1000


def test_host_without_python3_is_named(hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "status").write_text("127")
    with pytest.raises(SeatrialError, match="gpu-1: python3 missing or cannot be run"):
        answer_of(hosts, tmp_path, "")


def test_missing_ssh_client_is_reported(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SeatrialError, match="ssh is missing"):
        answer_of(hosts, tmp_path, "")


def address(name: str, kernel: str) -> HostAddress:
    return HostAddress(
        name=name, address="10.0.0.7", port=222, user="root", proxied=False, kernel=kernel, cores=2
    )


def state(*nodes: HostAddress) -> BaremetalState:
    return BaremetalState(host_key="ssh-ed25519 AAAA", nodes=nodes)


def test_hosts_that_report_the_same_kernel_share_cores() -> None:
    assert state(address("a", "1-2"), address("b", "1-2")).shared_cores == 2
    assert state(address("a", "1-2"), address("b", "3-4")).shared_cores is None
    assert state(address("a", ""), address("b", "")).shared_cores is None
    assert state(address("a", "1-2")).shared_cores is None
