"""One network namespace per node, joined by a bridge, which has this machine's own address."""

import subprocess
from collections.abc import Sequence


class Network:
    """Addresses in 10.N.0.0/24, where N is free. `make` once, `remove` as often as one likes."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self.bridge = ""
        self._prefix = ""

    def make(self) -> None:
        """Raises RuntimeError where a command fails."""
        for number in range(100, 200):
            if _ip(f"link add slurmtest{number} type bridge", check=False):
                self.bridge, self._prefix = f"slurmtest{number}", f"10.{number}.0"
                break
        else:
            raise RuntimeError("no free name for a bridge")
        _ip(f"addr add {self.head}/24 dev {self.bridge}")
        _ip(f"link set {self.bridge} up")
        for i, name in enumerate(self._names):
            _ip(f"netns add {self.namespace(name)}")
            _ip(f"link add {self.bridge}{name} type veth peer name eth0 netns {self.namespace(name)}")
            _ip(f"link set {self.bridge}{name} master {self.bridge} up")
            for command in ("link set lo up", f"addr add {self.address(i)}/24 dev eth0", "link set eth0 up"):
                _ip(f"-n {self.namespace(name)} {command}")

    def remove(self) -> None:
        for name in self._names:
            _ip(f"netns del {self.namespace(name)}", check=False)
        if self.bridge:
            _ip(f"link del {self.bridge}", check=False)

    @property
    def head(self) -> str:
        """The address of this machine."""
        return f"{self._prefix}.1"

    def address(self, index: int) -> str:
        return f"{self._prefix}.{index + 2}"

    def namespace(self, name: str) -> str:
        return f"{self.bridge or 'slurmtest-none'}-{name}"


def _ip(arguments: str, *, check: bool = True) -> bool:
    done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"ip {arguments}: {done.stderr.strip()}")
    return done.returncode == 0
