"""Hosts that are up: network namespaces with host names, processes, /tmp, accounts and sshd of
their own.

The control host is this machine, at the first address of the bridge. Nothing of its own ssh is read
or changed: keys, known_hosts and the configuration of ssh lie in one folder.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from seatrial.remote.ssh import new_key_pair
from tests.site import PATIENCE_S
from tests.virtual_hosts import Network, init_of, private_tmp

SSHD = "/usr/sbin/sshd"
USER = "sailor"  # an account that only the hosts have
_TIED = ["setpriv", "--pdeathsig", "KILL"]  # whoever ends the tests by force ends the hosts

_SCRIPT = """\
set -eu
hostname {name}
{prepare}
mount --bind {folder}/hosts /etc/hosts
mount --bind {folder}/passwd /etc/passwd
mount --bind {folder}/group /etc/group
mkdir -p /run/sshd
mkdir -p {folder}/{name}.pyenv
[ ! -d /root/.pyenv ] || mount --bind /root/.pyenv {folder}/{name}.pyenv
mount -t tmpfs -o mode=755 tmpfs /root
mkdir -p /root/.pyenv /root/.ssh
mount --move {folder}/{name}.pyenv /root/.pyenv || :
mount -t tmpfs -o mode=755 tmpfs /home
mkdir -p /home/{user}/.ssh
cp {folder}/id.pub /root/.ssh/authorized_keys
cp {folder}/id.pub /home/{user}/.ssh/authorized_keys
chown -R 12345:12345 /home/{user}
{private_tmp}
mount -t tmpfs tmpfs /dev/shm
chmod 1777 /tmp /dev/shm
exec {sshd} -D -e -f {folder}/{name}.sshd_config
"""
_SSHD_CONFIG = """\
HostKey {folder}/{name}.key
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 200
{environment}
"""


class Hosts:
    """`names` hosts on one bridge; up when `start` returns, gone when `stop` does."""

    def __init__(self, names: Sequence[str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hosts-test-", dir="/var/tmp"))
        self.names = list(names)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._network = Network(names)

    def start(self) -> None:
        """Raises RuntimeError with the log of what did not come up."""
        try:
            self._network.make()
            self._write_files()
            for name in self.names:
                self.start_host(name)
            for name in self.names:
                self.wait_for_sshd(name)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the hosts with all that runs on them. May be called twice."""
        for name in list(self._running):
            self.kill_host(name)
        self._network.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self, name: str) -> dict[str, str]:
        """What sessions on a host have beside what sshd gives them."""
        return {}

    def prepare(self, name: str) -> str:
        """Lines for the shell that makes a host, before it hides the homes of this machine."""
        return ":"

    def start_host(self, name: str) -> None:
        script = self.folder / f"{name}.sh"
        with (self.folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                [*_TIED, *self._network.inside(name, "sh", str(script))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_for_sshd(self, name: str) -> None:
        """Of a host that was started last."""
        deadline = time.monotonic() + PATIENCE_S
        while "Server listening" not in (log := (self.folder / f"{name}.log").read_text()):
            if time.monotonic() > deadline or self._running[name].poll() is not None:
                raise RuntimeError(f"{name} does not come up: {log[-2000:]}")
            time.sleep(0.02)

    def kill_host(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def on(self, name: str, *argv: str) -> str:
        """What a command prints on a host."""
        init = str(init_of(self._running[name].pid))
        variables = [f"{key}={value}" for key, value in self.environment(name).items()]
        command = ["nsenter", "--target", init, "--all", "env", *variables, *argv]
        return subprocess.run(
            command, capture_output=True, errors="replace", check=True, timeout=300
        ).stdout

    def set_link(self, name: str, state: str) -> None:
        self._network.set_link(name, state)

    def hide(self, name: str) -> None:
        """From this machine: only the other hosts reach it."""
        self._network.hide(name)

    def address(self, name: str) -> str:
        return self._network.address(name)

    def left(self) -> set[str]:
        """What runs have left on the hosts that are up: processes beside the host's own sshd, and
        files.
        """
        return {f"{name}: {left}" for name in self._running for left in self.left_on(name)}

    def left_on(self, name: str) -> set[str]:
        processes = {
            line.strip() for line in self.on(name, "ps", "-ww", "-eo", "args=").splitlines()
        }
        own = (f"sshd: {SSHD} -D -e -f {self.folder}", "sh /", "ps ", "nsenter ")
        files = set(self.on(name, "find", "/tmp", "-mindepth", "1", "-maxdepth", "1").split())
        return {line for line in processes if not line.startswith(own)} | files - set(
            map(str, Path(sys.prefix).parents)
        )

    def certify(self, name: str) -> str:
        """Let a host prove itself by a certificate alone; the public key of its authority."""
        authority = new_key_pair()
        _private(self.folder / "authority", authority.private)
        key = self.folder / f"{name}.key.pub"
        key.write_text(f"{self.keys[name]}\n")
        sign = [
            "ssh-keygen",
            "-q",
            "-s",
            str(self.folder / "authority"),
            "-I",
            name,
            "-h",
            "-n",
            self.address(name),
        ]
        subprocess.run([*sign, str(key)], check=True)
        self.kill_host(name)
        with (self.folder / f"{name}.sshd_config").open("a") as file:
            file.write(f"HostCertificate {self.folder}/{name}.key-cert.pub\n")
        self.start_host(name)
        self.wait_for_sshd(name)
        return authority.public

    def new_host_key(self, name: str) -> str:
        """Give a host that is down another key; its public half."""
        pair = new_key_pair()
        _private(self.folder / f"{name}.key", pair.private)
        return pair.public

    def know(self, keys: dict[str, str]) -> None:
        """Write known_hosts anew."""
        (self.folder / "known_hosts").write_text(
            "".join(f"{name} {key}\n" for name, key in keys.items())
        )

    def _write_files(self) -> None:
        self.folder.chmod(0o755)
        pair = new_key_pair()
        _private(self.folder / "id", pair.private)
        (self.folder / "id.pub").write_text(f"{pair.public}\n")
        lines = "".join(f"{self.address(name)} {name}\n" for name in self.names)
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{lines}")
        passwd = Path("/etc/passwd").read_text() + f"{USER}:x:12345:12345::/home/{USER}:/bin/sh\n"
        (self.folder / "passwd").write_text(passwd)
        (self.folder / "group").write_text(Path("/etc/group").read_text() + f"{USER}:x:12345:\n")
        self.keys = {name: self._write_host(name) for name in self.names}
        self.know({self.address(name): key for name, key in self.keys.items()})
        names = "".join(f"Host {name}\n  HostName {self.address(name)}\n" for name in self.names)
        (self.folder / "ssh_config").write_text(
            f"Host *\n  IdentityFile {self.folder}/id\n  IdentitiesOnly yes\n  User root\n"
            f"  UserKnownHostsFile {self.folder}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
            f"{names}"
        )

    def _write_host(self, name: str) -> str:
        variables = " ".join(f"{key}={value}" for key, value in self.environment(name).items())
        (self.folder / f"{name}.sshd_config").write_text(
            _SSHD_CONFIG.format(
                folder=self.folder,
                name=name,
                environment=f"SetEnv {variables}" if variables else "",
            )
        )
        (self.folder / f"{name}.sh").write_text(
            _SCRIPT.format(
                name=name,
                folder=self.folder,
                user=USER,
                sshd=SSHD,
                prepare=self.prepare(name),
                private_tmp=private_tmp(self.folder / f"{name}.python"),
            )
        )
        return self.new_host_key(name)


def lacking() -> str:
    """The Debian packages that are not installed, in one line; empty when all are."""
    programs = {
        SSHD: "openssh-server",
        "ssh": "openssh-client",
        "ip": "iproute2",
        "mpirun": "openmpi-bin",
    }
    return " ".join(package for program, package in programs.items() if not shutil.which(program))


def _private(path: Path, text: str) -> None:
    path.touch(0o600)
    path.write_text(text)
