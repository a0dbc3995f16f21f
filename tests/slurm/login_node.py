"""A login node for the tests' Slurm: one more sshd of this machine, whose sessions know the cluster."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.site import free_port
from tests.slurm.cluster import SlurmCluster

_SECONDS = 30.0


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
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    node = LoginNode(free_port(), folder)
    (folder / "authorized_keys").write_text((folder / "user.pub").read_text())
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{node.port} {(folder / 'host.pub').read_text()}")
    (folder / "ssh_config").write_text(f"UserKnownHostsFile {folder}/known_hosts\nGlobalKnownHostsFile /dev/null\n")
    variables = " ".join(f"{name}={value}" for name, value in slurm.env.items())
    (folder / "sshd_config").write_text(f"""\
Port {node.port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized_keys
PasswordAuthentication no
StrictModes no
PidFile none
SetEnv {variables}
LogLevel VERBOSE
""")
    Path("/run/sshd").mkdir(exist_ok=True)
    with (folder / "log").open("wb") as log:
        sshd = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    try:
        deadline = time.monotonic() + _SECONDS
        while "Server listening" not in node.log:
            assert time.monotonic() < deadline, node.log
            assert sshd.poll() is None, node.log
            time.sleep(0.05)
        yield node
    finally:
        sshd.terminate()
        sshd.wait()
