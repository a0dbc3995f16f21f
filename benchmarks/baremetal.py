"""Many hosts that are up: `python benchmarks/baremetal.py 256 run`, and `...

256 fan-out [PYTHON_WITH_ASYNCSSH]`.

Namespaces with sshd of their own are the hosts, so all of them share this machine's cores. Measured
are the plain fan-out of `true` by seatrial, pdsh, clush and asyncssh, whichever are installed, and
then launch, connectivity and teardown of a run. Wall-clock seconds, and seconds of processor time
of all that takes part. Needs root, and version 1 of cgroups.
"""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from seatrial.checks.connectivity.check import connectivity
from seatrial.checks.contract import CheckContext
from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.platforms import openssh as ssh_client
from seatrial.platforms import platform_for
from seatrial.platforms.baremetal import BaremetalPlatform
from seatrial.platforms.baremetal.hosts import AT_ONCE, on_hosts, ssh_config
from seatrial.platforms.commands import run_bounded
from tests.baremetal.hosts import Hosts

_TRIES = 3
_GROUP = Path("/sys/fs/cgroup/cpuacct/seatrial-benchmark")
_ASYNCSSH = """\
import asyncio, asyncssh, sys
async def one(turns, host, config):
    async with turns:
        async with asyncssh.connect(host, config=[config]) as connection:
            await connection.run("true", check=True)
async def main(config, at_once, *hosts):
    turns = asyncio.Semaphore(int(at_once))
    await asyncio.gather(*(one(turns, host, config) for host in hosts))
asyncio.run(main(*sys.argv[1:]))
"""


@contextmanager
def own_group() -> Iterator[None]:
    """Everything that starts in here, hosts too, is counted apart from what else this machine does
    (cgroup v1).
    """
    _GROUP.mkdir()
    (_GROUP / "cgroup.procs").write_text("0")
    try:
        yield
    finally:
        (_GROUP.parent / "cgroup.procs").write_text("0")
        while (_GROUP / "cgroup.procs").read_text():
            time.sleep(0.1)
        _GROUP.rmdir()


def busy_s() -> float:
    """Seconds of processor time of this process and all that it started."""
    return int((_GROUP / "cpuacct.usage").read_text()) / 1e9


def measured(label: str, work: Callable[[], str | None]) -> None:
    wall, busy = time.perf_counter(), busy_s()
    remark = work() or ""
    print(
        (
            f"{label:32}{time.perf_counter() - wall:8.1f} s {busy_s() - busy:8.1f} s of "
            f"processors  {remark}"
        ),
        flush=True,
    )


def ran(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(command, env=environment, check=True)


def fan_out(hosts: Hosts, python: str | None) -> None:
    """The shortest of three tries is the best estimate on a machine that does other things."""
    names = ",".join(hosts.names)
    settings = BaremetalPlatform(
        kind="baremetal", hosts=tuple(hosts.names), ssh_config=str(hosts.folder / "ssh_config")
    )
    config = hosts.folder / "run_config"
    config.write_text(ssh_config(settings))

    def seatrial() -> None:
        answers = on_hosts(
            hosts.names,
            lambda host: run_bounded(
                ["ssh", "-F", str(config), host, "true"], ssh_client.environment(), 60
            ),
        )
        assert all(answer[0] == 0 for answer in answers.values() if isinstance(answer, tuple))

    commands = {
        "pdsh": ["pdsh", "-S", "-R", "ssh", "-f", str(AT_ONCE), "-w", names, "true"],
        "clush": ["clush", "-S", "-f", str(AT_ONCE), "-o", f"-F {config}", "-w", names, "true"],
        "asyncssh": [
            python or "",
            "-c",
            _ASYNCSSH,
            str(hosts.folder / "ssh_config"),
            str(AT_ONCE),
            *hosts.names,
        ],
    }
    environment = {**os.environ, "PDSH_SSH_ARGS": f"-2 -a -x -F {config} %h"}
    for _ in range(_TRIES):
        measured("fan-out, seatrial", seatrial)
        for name, command in commands.items():
            if shutil.which(command[0]):
                measured(f"fan-out, {name}", partial(ran, command, environment))


def whole_run(hosts: Hosts) -> None:
    platform = {
        "kind": "baremetal",
        "hosts": hosts.names,
        "ssh_config": str(hosts.folder / "ssh_config"),
        "python": sys.executable,
    }
    cluster = Cluster.model_validate(
        {"name": "bench", "nodes": len(hosts.names), "platform": platform}
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Run(f"bench-{secrets.token_hex(4)}", cluster, load_suite("quick"), Path(folder))
        bare = platform_for(cluster)
        testbeds = []
        try:
            measured("launch", lambda: testbeds.append(bare.launch(run)))
            measured("connectivity", lambda: _verdict(CheckContext(run, testbeds[0])))
        finally:
            measured("teardown", lambda: bare.teardown(run.run_id))


def _verdict(context: CheckContext) -> str:
    check = connectivity(context).check
    return f"{check.verdict}: {check.reason}"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    hosts = Hosts([f"gpu-{i}" for i in range(count)])
    with own_group():
        try:
            measured(f"start {count} hosts", hosts.start)
            print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
            if "fan-out" in sys.argv:
                fan_out(hosts, sys.argv[3] if len(sys.argv) > 3 else None)
            else:
                whole_run(hosts)
        finally:
            hosts.stop()


if __name__ == "__main__":
    main()
