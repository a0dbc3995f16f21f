"""The machine that a cluster lives in: namespaces of its own under one process, so that nothing can
outlive it.
"""

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.kubernetes import cgroups
from tests.e2e.kubernetes.build import CACHE, HERE
from tests.site import PATIENCE_S

NAMESPACES = ("--mount", "--net", "--pid", "--ipc", "--uts")
# Kubernetes' servers collect garbage less often: machines for tests have more memory than
# processors.
START = (
    'export GOGC=300; "$@" </dev/null >>"/run/cluster/logs/$0.log" 2>&1 & echo $! '
    '>"/run/cluster/pids/$0"'
)
# A node's processes are in its cgroup; the namespace alone would only rename what they see.
START_IN_NODE = f"""
if [ -e /sys/fs/cgroup/init ]; then echo 0 >/sys/fs/cgroup/init/cgroup.procs
else for hierarchy in /sys/fs/cgroup/*/; do echo 0 >"$hierarchy/cgroup.procs"; done; fi
{START}"""


@dataclass(frozen=True, slots=True)
class Machine:
    """The one of this number; every number has addresses, a folder and cgroups of its own.

    Inside, the folder is /run/cluster and the binaries lie in /run/tools.
    """

    number: int = 0

    @property
    def state(self) -> Path:
        return CACHE / f"cluster-{self.number}"

    @property
    def lock(self) -> Path:
        """Held by whoever uses the cluster that ends with him, or makes one that stays."""
        return self.state.with_suffix(".lock")

    @property
    def link(self) -> str:
        """The host's end of the cable."""
        return f"seatrial-k8s-{self.number}"

    @property
    def cgroup(self) -> str:
        return f"seatrial-kubernetes-{self.number}"

    def address(self, host: int, subnet: int = 0) -> str:
        """Subnet 0 is that of host, control plane (1) and nodes; each node has one for its pods."""
        return f"10.{213 + self.number}.{subnet}.{host}"

    @property
    def pid(self) -> int | None:
        """The host's number for its process 1; None when it does not run."""
        try:
            pid, started = (self.state / "machine.run").read_text().split()
            return int(pid) if _started(int(pid)) == started else None
        except (OSError, ValueError):
            return None

    def start(self, tools: Path, *, keep: bool) -> None:
        """Start it in an empty folder.

        Unless it is to be kept, it ends with the process that called this.
        """
        for folder in ("pids", "logs"):
            (self.state / folder).mkdir(parents=True)
        reading, writing = os.pipe()
        for script in ("machine.sh", "node.sh"):
            shutil.copy(HERE / script, self.state)
        command = [
            "bash",
            str(self.state / "machine.sh"),
            str(self.state),
            str(tools),
            self.address(1),
        ]
        with (self.state / "logs" / "machine.log").open("wb") as log:
            subprocess.run(
                [
                    "setsid",
                    "--fork",
                    "unshare",
                    *NAMESPACES,
                    "--fork",
                    "--propagation",
                    "private",
                    *command,
                ],
                stdin=reading,
                stdout=log,
                stderr=log,
                # Who holds this end keeps it alive: itself, or this process
                pass_fds=[writing] if keep else [],
                check=True,
            )
        os.close(reading)
        if keep:
            os.close(writing)
        self.wait_for(self.state / "machine.pid")
        pid = int((self.state / "machine.pid").read_text())
        (self.state / "machine.run").write_text(f"{pid} {_started(pid)}")
        self._plug_in(pid)

    def _plug_in(self, pid: int) -> None:
        ip = [
            "ip",
            "link",
            "add",
            self.link,
            "type",
            "veth",
            "peer",
            "name",
            "host",
            "netns",
            str(pid),
        ]
        subprocess.run(ip, check=True)
        self.run("ip", "link", "set", "host", "master", "cluster0", "up")
        subprocess.run(
            ["ip", "address", "add", self.address(254) + "/24", "dev", self.link], check=True
        )
        subprocess.run(["ip", "link", "set", self.link, "up"], check=True)

    def run(
        self,
        *command: str,
        node: str | None = None,
        stdin: Path = Path(os.devnull),
        check: bool = True,
    ) -> str:
        """Run a command inside, in a node if one is named; its standard output."""
        with stdin.open("rb") as file:
            whole = [*self._enter(node), *command]
            done = subprocess.run(
                whole,
                stdin=file,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                # What is started here shall not hear of an interrupt at the terminal
                start_new_session=True,
            )
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def spawn(self, name: str, *command: str, node: str | None = None) -> None:
        """Start a server inside; its output goes to logs/NAME.log."""
        self.run("bash", "-c", START_IN_NODE if node else START, name, *command, node=node)

    def signal(self, name: str, which: signal.Signals) -> None:
        """Send a signal to a server or a node's holder."""
        self.run("kill", f"-{which.value}", (self.state / "pids" / name).read_text().strip())

    def kill(self, name: str) -> None:
        """End a server at once, if it has not ended by itself, and wait until it is gone."""
        number = (self.state / "pids" / name).read_text().strip()
        self.run("kill", "-KILL", number, check=False)
        while self.run("sh", "-c", f"[ ! -e /proc/{number} ] || echo there"):
            time.sleep(0.02)
        (self.state / "pids" / name).unlink()

    def stop(self) -> None:
        """End it and everything in it, and remove what it had on the host.

        Does nothing when there is nothing.
        """
        if pid := self.pid:
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while self.pid:
            assert time.monotonic() < deadline, "its process 1 is still there"
            time.sleep(0.02)
        # Its other end goes with the namespace, which a busy kernel may take apart a minute later.
        subprocess.run(["ip", "link", "delete", self.link], capture_output=True, check=False)
        assert not Path("/sys/class/net", self.link).exists(), f"{self.link} is still there"
        cgroups.remove(self.cgroup)
        if self.state.exists():
            shutil.rmtree(self.state)

    def log(self, name: str, lines: int = 30) -> str:
        """The end of a server's output."""
        text = (self.state / "logs" / f"{name}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def _enter(self, node: str | None) -> list[str]:
        enter = ["nsenter", "--target", str(self.pid), *NAMESPACES, "--"]
        if node:
            holder = (self.state / "pids" / node).read_text().strip()
            enter += ["nsenter", "--target", holder, "--mount", "--net", "--uts", "--cgroup", "--"]
        return enter

    def wait_for(
        self, file: Path, log: str = "machine", text: str = "", timeout_s: float = PATIENCE_S
    ) -> None:
        """Until the file is there, has something in it, and has the text in it."""
        deadline = time.monotonic() + timeout_s
        while not file.exists() or not (content := file.read_text().strip()) or text not in content:
            assert time.monotonic() < deadline, f"no {file.name}: {self.log(log)}"
            time.sleep(0.01)


def _started(pid: int) -> str:
    """When the process started, in the kernel's ticks: a number that was given to another process
    has another time.
    """
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
