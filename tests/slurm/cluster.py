"""A private Slurm cluster: slurmctld, munged and one slurmd per network namespace, all children of
this process.

Nothing of it is shared with a Slurm of this machine: configuration, key, sockets, state and logs
lie in one folder, and every node has a host name, an address, processes, /tmp and /dev/shm of its
own.
"""

import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.site import PATIENCE_S, free_port
from tests.slurm.accounting import Accounting
from tests.slurm.containers import Containers
from tests.virtual_hosts import Network, init_of, private_tmp

USER = "sailor"  # an account that the nodes and the login node have
PACKAGES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
}
_PYTHON = Path(sys.prefix)
_TIED = ["setpriv", "--pdeathsig", "KILL"]  # whoever ends the tests by force ends the cluster

# A job that is requeued starts again when its credentials have expired.
_SLURM_CONF = """\
ClusterName=seatrial
SlurmctldHost={host}({head})
SlurmctldPort={port}
SlurmdPort=6818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=20
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
KillWait=60
MessageTimeout=60
GresTypes=gpu
SlurmdParameters=config_overrides
PlugStackConfig={folder}/plugstack.conf
{nodes}
PartitionName=batch Nodes=ALL Default=YES MaxTime=02:00:00 State=UP
PartitionName=down Nodes=ALL MaxTime=02:00:00 State=DOWN
"""

# Jobs of the partition `scavenge` end as soon as one of another partition wants their nodes.
_PREEMPTION = """\
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=scavenge Nodes=ALL MaxTime=02:00:00 State=UP PriorityTier=1
PartitionName=work Nodes=ALL MaxTime=02:00:00 State=UP PriorityTier=10
TaskProlog={folder}/task-prolog
"""
# A node whose file is there computes another result each time: seatrial/remote/probes/devices.py.
_TASK_PROLOG = """\
#!/bin/sh
[ ! -e {folder}/fault-$SLURMD_NODENAME ] || echo export SEATRIAL_COMPUTE_FAULT=unstable:
"""


def lacking() -> str:
    """The Debian packages that are not installed, in one line; empty when all are."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    return " ".join(
        package for program, package in PACKAGES.items() if not shutil.which(program, path=path)
    )


class SlurmCluster:
    """`nodes` virtual nodes n0, n1, ...; up when `start` returns, gone when `stop` does."""

    def __init__(
        self, nodes: int = 4, *, accounting: bool = False, preemption: bool = False
    ) -> None:
        self._preemption = preemption
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-test-", dir="/var/tmp"))
        self.shared = self.folder / "shared"  # what a shared home is on a real cluster
        self.names = [f"n{i}" for i in range(nodes)]
        self.containers = Containers(self.folder / "images")
        # Slurmctld listens on all addresses, beside that of another cluster
        self._port = free_port()
        self._accounting = Accounting(self.folder) if accounting else None
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._network = Network(self.names)

    @property
    def env(self) -> Mapping[str, str]:
        """What makes Slurm's commands talk to this cluster."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        """Raises RuntimeError with the log of what did not come up."""
        try:
            self._network.make()
            self._configure()
            self._start("munged", ["/usr/sbin/munged", *self._munge_options()])
            self._wait("munged", (self.folder / "munge.socket").exists)
            self._start_accounting()
            slurmctld = f"{self.own_accounts} && exec slurmctld -D -f {self.folder}/slurm.conf"
            self._start("slurmctld", ["unshare", "--mount", "sh", "-c", slurmctld])
            for name in self.names:
                self.start_node(name)
            self._wait("slurmctld", self._all_idle)
        except BaseException:
            self.stop()
            raise

    def _start_accounting(self) -> None:
        if self._accounting is None:
            return
        self._accounting.prepare()
        self._start("mariadbd", self._accounting.database_argv())
        self._wait("mariadbd", self._accounting.is_up)
        self._start("slurmdbd", ["/usr/sbin/slurmdbd", "-D"])
        self._wait(
            "slurmdbd", lambda: self._answers("sacctmgr", "-in", "add", "cluster", "seatrial")
        )

    def _answers(self, *argv: str) -> bool:
        with suppress(subprocess.SubprocessError):
            self.command(*argv)
            return True
        return False

    def stop(self) -> None:
        """End every daemon and job, and remove the network. May be called twice."""
        with suppress(OSError, subprocess.SubprocessError):
            self.command("scancel", "--user", str(os.getuid()))
        for name in list(self._daemons):
            self._end(name)
        self._network.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, *argv: str, timeout_s: float = 300) -> str:
        """What one of Slurm's commands prints, on the login node, which is this machine."""
        done = subprocess.run(
            argv,
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise subprocess.SubprocessError(f"{shlex.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def start_node(self, name: str) -> None:
        script = self.folder / f"{name}.sh"
        self._start(name, self._network.inside(name, "sh", str(script)))

    def kill(self, name: str) -> None:
        """A node, as if somebody pulled its power cord, or a daemon of the cluster itself."""
        self._end(name)

    def in_node(self, name: str, *argv: str) -> str:
        """What a command prints that runs beside the node's slurmd."""
        init = self._init_of(name)
        done = subprocess.run(
            ["nsenter", "--target", str(init), "--all", *argv],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        return done.stdout

    @contextmanager
    def started_in(self, name: str, *argv: str) -> Iterator["subprocess.Popen[bytes]"]:
        """A command that runs beside the node's slurmd until the end of the block."""
        command = [
            *_TIED,
            "nsenter",
            "--target",
            str(self._init_of(name)),
            "--all",
            "--no-fork",
            *argv,
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def left(self) -> set[str]:
        """Jobs in the queue, and what runs have left on the nodes that are up and in the shared
        folder.
        """
        jobs = {
            f"job {line}"
            for line in self.command("squeue", "--noheader", "--format=%i %j %T").splitlines()
        }
        files = {str(path) for path in self.shared.glob("runs/*")}
        return (
            jobs
            | files
            | {f"{name}: {left}" for name in self.names for left in self._left_on(name)}
        )

    def _left_on(self, name: str) -> set[str]:
        if name not in self._daemons:
            return set()
        processes = {line.strip() for line in self.in_node(name, "ps", "-eo", "args=").splitlines()}
        own = ("sh /", "slurmd ", "ps ", "nsenter ")
        files = self.in_node(name, "find", "/tmp", "-mindepth", "1", "-maxdepth", "1").split()
        left = {file for file in files if not _PYTHON.is_relative_to(file)}
        return {line for line in processes if not line.startswith(own)} | left

    def wait_until_idle(self) -> None:
        """Until every node is free again; raises AssertionError where one is not, and cancels its
        job.
        """
        deadline = time.monotonic() + PATIENCE_S
        while not self._all_idle():
            if time.monotonic() > deadline:
                queue = self.command("squeue", "--states=all")
                self.command("scancel", "--user", str(os.getuid()))
                raise AssertionError(queue)
            time.sleep(0.1)

    def wait_until_clean(self) -> None:
        """Until nothing is left: slurmstepd leaves a second after the step that it ran.

        Raises AssertionError with what is left; the folders of it are removed, which the next test
        would find.
        """
        deadline = time.monotonic() + PATIENCE_S
        while left := self.left():
            if time.monotonic() > deadline:
                for name in self._daemons.keys() & set(self.names):
                    self.in_node(name, "sh", "-c", "rm -rf /tmp/seatrial-*")
                raise AssertionError(left)
            time.sleep(0.1)

    def leftovers(self) -> set[str]:
        """What of this cluster is there after `stop`."""
        return self._network.leftovers() | ({str(self.folder)} if self.folder.exists() else set())

    def _init_of(self, name: str) -> int:
        return init_of(self._daemons[name].pid)

    def _configure(self) -> None:
        (self.folder / "state").mkdir()
        self.shared.mkdir()
        self.folder.chmod(0o755)
        self.shared.chmod(0o1777)
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o400)
        hosts = "127.0.0.1 localhost\n" + "".join(
            f"{self._network.address(name)} {name}\n" for name in self.names
        )
        (self.folder / "hosts").write_text(hosts)
        accounts = Path("/etc/passwd").read_text()
        (self.folder / "etc").mkdir()
        (self.folder / "etc/passwd").write_text(
            f"{accounts}{USER}:x:12346:12346::/var/tmp:/bin/sh\n"
        )
        nodes = "\n".join(
            (
                f"NodeName={name} NodeAddr={self._network.address(name)} CPUs=8 Gres=gpu:2 "
                "State=UNKNOWN"
            )
            for name in self.names
        )
        host = socket.gethostname().partition(".")[0]
        text = _SLURM_CONF.format(
            host=host, head=self._network.head, port=self._port, folder=self.folder, nodes=nodes
        )
        (self.folder / "slurm.conf").write_text(
            text
            + self._preemption_conf()
            + (self._accounting.slurm_conf if self._accounting else "")
        )
        for number in range(2):  # Slurm wants a file for each GPU that it hands out
            os.mknod(self.folder / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-1]\n")
        self.containers.prepare()
        (self.folder / "plugstack.conf").write_text(self.containers.plugstack)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        for name in self.names:
            (self.folder / f"spool-{name}").mkdir()
            (self.folder / f"{name}.sh").write_text(self._node_script(name))

    def _preemption_conf(self) -> str:
        """Further lines of slurm.conf, and the script that they name."""
        if not self._preemption:
            return ""
        prolog = self.folder / "task-prolog"
        prolog.write_text(_TASK_PROLOG.format(folder=self.folder))
        prolog.chmod(0o755)
        return _PREEMPTION.format(folder=self.folder)

    def _node_script(self, name: str) -> str:
        return f"""\
set -eu
hostname {name}
{self.own_accounts}
mount --bind {self.folder}/hosts /etc/hosts
{private_tmp(self.folder / f"python-{name}")}
mount -t tmpfs tmpfs /dev/shm
mkdir -p /run/sshd
chmod 1777 /tmp /dev/shm
slurmd -D -N {name} -f {self.folder}/slurm.conf &
wait $!
"""

    @property
    def own_accounts(self) -> str:
        """A line for the shell.

        A bind mount would go as soon as somebody replaces this machine's /etc/passwd.
        """
        return f"mount -t overlay -o lowerdir={self.folder}/etc:/etc overlay /etc"

    def _munge_options(self) -> list[str]:
        files = {"key": "key", "pid": "pid", "log": "log", "seed": "seed"}
        return [
            "--foreground",
            "--force",
            f"--socket={self.folder}/munge.socket",
            *(f"--{option}-file={self.folder}/munge.{suffix}" for option, suffix in files.items()),
        ]

    def _start(self, name: str, argv: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            environment = {
                **os.environ,
                "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
                **self.env,
            }
            self._daemons[name] = subprocess.Popen(
                [*_TIED, *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def _end(self, name: str) -> None:
        daemon = self._daemons.pop(name)
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()

    def _all_idle(self) -> bool:
        with suppress(subprocess.SubprocessError):
            return set(self.command("sinfo", "-h", "-p", "batch", "-o", "%T").split()) == {"idle"}
        return False

    def _wait(self, daemon: str, is_up: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_up():
            if time.monotonic() > deadline or self._daemons[daemon].poll() is not None:
                logs = "\n".join(
                    f"{log.name}: {log.read_text()[-2000:]}" for log in self.folder.glob("*.log")
                )
                raise RuntimeError(f"{daemon} does not come up\n{logs}")
            time.sleep(0.05)
