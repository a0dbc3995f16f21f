"""A login node for the tests' Slurm: one more sshd of this machine, whose sessions know the
cluster.

It has an account that this machine does not have. A jump host is one more, whose sessions know
nothing.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.site import PATIENCE_S, free_port
from tests.slurm.cluster import SlurmCluster


@dataclass(frozen=True)
class LoginNode:
    """Where it listens, and the configuration of ssh that knows its host key."""

    port: int
    folder: Path

    def fields(self) -> dict[str, object]:
        """Of the section `platform`."""
        login = {"host": "127.0.0.1", "port": self.port, "key_file": str(self.folder / "user")}
        return {**login, "ssh_config": str(self.folder / "ssh_config")}

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()


@contextmanager
def login_node(slurm: SlurmCluster, folder: Path) -> Iterator[LoginNode]:
    """Up within the block."""
    _make_key(folder / "user")
    (folder / "authorized_keys").write_text((folder / "user.pub").read_text())
    (folder / "ssh_config").write_text(
        f"IdentityFile {folder}/user\nUserKnownHostsFile {folder}/known_hosts\n"
        "GlobalKnownHostsFile /dev/null\n"
    )
    variables = " ".join(f"{name}={value}" for name, value in slurm.env.items())
    with _sshd(folder, f"SetEnv {variables}\n", slurm.own_accounts) as node:
        _know(folder, node)
        yield node


@contextmanager
def jump_host(login: LoginNode, folder: Path) -> Iterator[LoginNode]:
    """Up within the block. It lets in whom the login node lets in."""
    (folder / "authorized_keys").write_text((login.folder / "user.pub").read_text())
    with _sshd(folder, "", ":") as jump:
        _know(login.folder, jump)
        yield jump


def _know(folder: Path, node: LoginNode) -> None:
    with (folder / "known_hosts").open("a") as file:
        file.write(
            f"[127.0.0.1]:{node.port},[localhost]:{node.port} "
            f"{(node.folder / 'host.pub').read_text()}"
        )


def _make_key(file: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)


@contextmanager
def _sshd(folder: Path, options: str, prepare: str) -> Iterator[LoginNode]:
    """`prepare` is a line for the shell, whose mounts nobody else sees."""
    node = LoginNode(free_port(), folder)
    _make_key(folder / "host")
    (folder / "sshd_config").write_text(f"""\
Port {node.port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile none
AuthorizedKeysCommand /bin/cat {folder}/authorized_keys
AuthorizedKeysCommandUser root
PasswordAuthentication no
StrictModes no
PidFile none
LogLevel VERBOSE
{options}""")
    Path("/run/sshd").mkdir(exist_ok=True)
    with (folder / "log").open("wb") as log:
        script = f"{prepare} && exec /usr/sbin/sshd -D -e -f {folder}/sshd_config"
        sshd = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while "Server listening" not in node.log:
            assert time.monotonic() < deadline, node.log
            assert sshd.poll() is None, node.log
            time.sleep(0.05)
        yield node
    finally:
        sshd.terminate()
        sshd.wait()
