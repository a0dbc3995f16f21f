"""Hosts of namespaces for the lanes: networks on one bridge, and a /tmp of their own.

Standard library only.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ISOLATED = ("unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_FEW = 16  # hosts whose neighbours the kernel finds by itself


class Network:
    """One network namespace per host, joined by a bridge that has this machine's own address, in
    10.N/16, N free.
    """

    def __init__(self, names: Sequence[str], number: int = 0) -> None:
        """With `number` one that is made already."""
        self.names, self.number = list(names), number

    @property
    def bridge(self) -> str:
        return f"hosts{self.number}"

    @property
    def head(self) -> str:
        """The address of this machine."""
        return f"10.{self.number}.0.1"

    def address(self, name: str) -> str:
        number = self.names.index(name) + 2
        return f"10.{self.number}.{number >> 8}.{number & 255}"

    def namespace(self, name: str) -> str:
        return f"{self.bridge}-{name}"

    def make(self) -> None:
        """Raises RuntimeError where a command fails."""
        free = (
            number
            for number in range(100, 210)
            if ip(f"link add hosts{number} type bridge", check=False)
        )
        self.number = next(free, 0)
        ip(f"addr add {self.head}/16 dev {self.bridge}")
        ip(f"link set {self.bridge} up")
        for index, name in enumerate(self.names):
            space = self.namespace(name)
            ip(f"netns add {space}")
            ip(f"link add {self.bridge}v{index} type veth peer name eth0 netns {space}")
            ip(f"-n {space} link set eth0 address {_mac(index)}")
            ip(f"link set {self.bridge}v{index} master {self.bridge} up")
            for command in (
                "link set lo up",
                f"addr add {self.address(name)}/16 dev eth0",
                "link set eth0 up",
            ):
                ip(f"-n {space} {command}")
        if len(self.names) > _FEW:
            self._set_neighbours()

    def _set_neighbours(self) -> None:
        """The kernel's one table of neighbours would be full; permanent entries do not count."""
        places = [(["-n", self.namespace(name)], "eth0") for name in self.names]
        for where, device in [*places, (list[str](), self.bridge)]:
            entries = (
                (
                    f"neigh replace {self.address(name)} lladdr {_mac(index)} nud permanent "
                    f"dev {device}\n"
                )
                for index, name in enumerate(self.names)
            )
            subprocess.run(
                ["ip", *where, "-batch", "-"], input="".join(entries), text=True, check=True
            )

    def remove(self) -> None:
        """May be called twice."""
        for index, name in enumerate(self.names):
            # A connection that is cut off keeps a namespace alive
            ip(f"link del {self.bridge}v{index}", check=False)
            ip(f"netns del {self.namespace(name)}", check=False)
        ip(f"link del {self.bridge}", check=False)

    def leftovers(self) -> set[str]:
        """What is there after `remove`."""
        namespaces = {path.name for path in Path("/run/netns").glob(f"{self.bridge}-*")}
        return namespaces | {
            str(path) for path in [Path("/sys/class/net", self.bridge)] if path.exists()
        }

    def set_link(self, name: str, state: str) -> None:
        ip(f"link set {self.bridge}v{self.names.index(name)} {state}")

    def hide(self, name: str) -> None:
        """From this machine: only the other hosts reach it."""
        ip(f"-n {self.namespace(name)} route add unreachable {self.head}/32")

    def inside(self, name: str, *argv: str) -> list[str]:
        """The argument vector of a command in namespaces of the host's own."""
        return ["nsenter", f"--net=/run/netns/{self.namespace(name)}", *ISOLATED, *argv]


def init_of(outer: int) -> int:
    """Process 1 of the host that this process of `Network.inside` holds."""
    return int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])


def private_tmp(kept: Path) -> str:
    """Lines for the shell that make /tmp empty, but for the tests' Python, which a clone may have
    there.

    `kept` is a folder elsewhere that may be made.
    """
    mount = "mount -t tmpfs tmpfs /tmp"
    python = Path(sys.prefix)
    if not python.is_relative_to("/tmp"):
        return mount
    return (
        f"mkdir -p {kept}\nmount --bind {python} {kept}\n{mount}\nmkdir -p {python}\nmount "
        f"--move {kept} {python}"
    )


def _mac(index: int) -> str:
    """A locally administered address, different for each host."""
    return f"02:00:00:01:{index >> 8:02x}:{index & 255:02x}"


def ip(arguments: str, *, check: bool = True) -> bool:
    done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"ip {arguments}: {done.stderr.strip()}")
    return done.returncode == 0
