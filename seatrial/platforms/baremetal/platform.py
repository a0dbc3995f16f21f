"""The bare-metal platform: launch, teardown and leftovers of testbeds on hosts that are up."""

import json
import re
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.config.run import Run
from seatrial.model.errors import InputError, MissingError, SeatrialError
from seatrial.model.reason import Reason
from seatrial.model.testbed import Node, Testbed, dial_tcp
from seatrial.platforms import Rendered
from seatrial.platforms import state as states
from seatrial.platforms.baremetal import BaremetalPlatform, ThisMachinePlatform
from seatrial.platforms.baremetal.bringup import (
    Container,
    addresses_of,
    by_hand,
    container_name,
    container_of,
    ensure_images,
    image_missing,
    lifetime_s,
    node_folder,
    run_folder,
    start_nodes,
)
from seatrial.platforms.baremetal.hosts import (
    Answer,
    BaremetalState,
    HostAddress,
    Hosts,
    ssh_config,
)
from seatrial.platforms.openssh import is_before_login
from seatrial.platforms.state import RunsWithState
from seatrial.platforms.testbed import (
    MADE_LATER,
    node_script,
    nodes_of,
    testbed_of,
    trial_run,
    write_ports,
)
from seatrial.system.private import write_private
from seatrial.system.rawlog import write_log
from seatrial.text.printable import printable
from seatrial.text.redact import Secrets
from seatrial.text.words import some_of

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

_LOG_BYTES = 1024**2  # most bytes of each host's log


def deadline_of(folder: Path) -> float:
    """Return when the hosts end the run on their own at the latest, in seconds of the epoch by this
    clock; 0 if unknown.
    """
    # No such file: nothing was started
    return states.moment(states.read_json(folder, "deadline.json")) or 0.0


def _problem(answer: Answer | SeatrialError) -> str | None:
    if isinstance(answer, SeatrialError):
        return answer.reason.sentence
    if answer.remaining:
        return f"processes {some_of(map(str, answer.remaining))} do not end"
    if answer.container_left:
        return "the container of the run cannot be removed"
    return "the folder of the run is still there" if answer.folder_left else None


def blameless_reason(
    hosts: Hosts, folder: Path, settings: BaremetalPlatform, node: HostAddress
) -> Reason | None:
    """Explain a silent node by its deadline or its jump host; None: blame the node."""
    if time.time() > deadline_of(folder) - settings.start_timeout_s:
        return Reason.of("baremetal-deadline", deadline_s=settings.deadline_s)
    jump = hosts.first_jump(node.name) if node.proxied else None
    problem = hosts.why_silent(jump) if jump else None
    return Reason.of("baremetal-jump-silent", jump=jump, problem=problem) if problem else None


def _host_problems(
    host: str,
    answer: Answer | SeatrialError,
    settings: BaremetalPlatform,
    container: Container | None,
) -> Iterator[Reason]:
    if isinstance(answer, SeatrialError):
        yield answer.reason
        return
    if answer.missing:
        yield Reason.of(
            "baremetal-host-lacks", host=host, programs=printable(some_of(answer.missing))[:500]
        )
    if answer.image_missing and container:
        advice = (
            f"a run pulls it, or `{container.program} pull` does now"
            if container.name
            else "there is no such file"
        )
        yield image_missing(container, host, advice)
    problem = ""
    if not answer.writable:
        problem = "is not writable for the user who logs in"
    elif not answer.executable:
        problem = "does not let programs run (it is mounted noexec)"
    elif answer.free_bytes < 100 * 1024**2:
        problem = f"has {answer.free_bytes // 1024**2} MiB free"
    if problem:
        yield Reason.of(
            "baremetal-folder-unusable", host=host, folder=settings.folder, problem=problem
        )
    if answer.held is not None:
        yield Reason.of("baremetal-host-busy", host=host, holder=answer.held)


class Baremetal(RunsWithState[BaremetalState]):
    """Nodes as hosts that run one more sshd for the time of the run."""

    kind = "baremetal"
    leaves = "sshd on the hosts and the keys of a run whose process is gone"
    state_type = BaremetalState
    hosts_type = Hosts

    def __init__(self, cluster: "Cluster", settings: BaremetalPlatform) -> None:
        self._cluster = cluster
        self._settings = settings

    def render(self, run: Run) -> Rendered:
        folder = node_folder(self._settings, run.run_id)
        python = shlex.quote(self._settings.python)
        hosts = self._settings.hosts
        container = container_of(run, self._settings)
        port = run.cluster.ssh_port
        nodes = [
            HostAddress(name=host, address=host, port=port, user="root", proxied=False)
            for host in hosts
        ]
        state = BaremetalState(host_key="", nodes=tuple(nodes))
        return Rendered(
            {
                **({"container.sh": by_hand(container)} if container else {}),
                "ssh_config": ssh_config(self._settings),
                "commands": "".join(
                    f"ssh -F ssh_config {host} {python} -I -S -\n" for host in hosts
                ),
                "node.sh": node_script(run.run_id, port, MADE_LATER, MADE_LATER, folder),
            },
            self._testbed(run.run_id, state),
        )

    def launch(self, run: Run) -> Testbed:
        settings = self._settings
        folder, run_key, host_key = states.begin(run, self.kind)
        deadline = time.time() + lifetime_s(settings, run.cluster) + settings.start_timeout_s
        write_private(folder / "deadline.json", json.dumps(deadline))
        hosts = self.hosts_type(settings)
        if container := container_of(run, settings):
            # Nothing is started on any host yet: a failure here leaves teardown nothing to ask.
            write_private(folder / "untouched.json", json.dumps(settings.hosts))
            ensure_images(hosts, settings, container)
            (folder / "untouched.json").unlink()
        started = start_nodes(hosts, run, settings, run_key, host_key)
        untouched = [
            host
            for host, answer in started.items()
            if isinstance(answer, SeatrialError) and is_before_login(answer.reason)
        ]
        write_private(folder / "untouched.json", json.dumps(untouched))
        addresses = addresses_of(started, hosts, run.cluster.ssh_port)
        state = BaremetalState(host_key=host_key.public, nodes=addresses)
        testbed = self._testbed(run.run_id, state)
        state.save(folder, testbed)
        write_ports(testbed, run.cluster.ssh_port)
        return testbed

    def _is_up(self, run_id: str) -> bool:
        return (self._folder(run_id) / "nodes.json").exists()

    def _testbed(self, run_id: str, state: BaremetalState) -> Testbed:
        folder = self._folder(run_id)
        hosts = self.hosts_type(self._settings)
        addresses = {address.name: address for address in state.nodes}

        def dial(node: Node, timeout_s: float) -> socket.socket:
            proxied = addresses[node.name].proxied
            return (
                hosts.dial(node.name, node.port, timeout_s)
                if proxied
                else dial_tcp(node, timeout_s)
            )

        return testbed_of(
            self._cluster,
            run_id,
            [
                replace(node, user=addresses[node.name].user)
                for node in nodes_of(self._cluster, state)
            ],
            user=state.nodes[0].user,
            key_file=folder / states.KEY_FILE,
            dial=dial,
            workdir=f"{node_folder(self._settings, run_id)}/work",
            python=self._settings.python
            if self._settings.runtime == "none"
            else self._settings.container_python,
            blameless_reason=lambda node: blameless_reason(
                hosts, folder, self._settings, addresses[node.name]
            ),
            shared_cores=state.shared_cores,
        )

    def collect(self, run_id: str, folder: Path, timeout_s: float, secrets: Secrets) -> None:
        if not self._folder(run_id).exists():
            return  # nothing was started
        request = {"verb": "log", "folder": run_folder(self._settings, run_id), "bytes": _LOG_BYTES}
        hosts = self._settings.hosts
        answers = self.hosts_type(self._settings).ask_each(request, timeout_s, hosts)
        for host, answer in answers.items():
            text = f"{answer.reason}\n" if isinstance(answer, SeatrialError) else answer.log
            write_log(folder / "nodes" / f"{host}.log", text, secrets)

    def teardown(self, run_id: str) -> None:
        """End the run on its hosts.

        Raises SeatrialError if some remain before their deadline; `reap` tries again.
        """
        folder = self._folder(run_id)
        if not folder.exists():
            return
        settings = self._settings
        with suppress(InputError):
            at_launch = states.recall(folder).platform  # the cluster file may have changed since
            settings = at_launch if isinstance(at_launch, BaremetalPlatform) else settings
        request = {
            "verb": "stop",
            "run_id": run_id,
            "folder": run_folder(settings, run_id),
            "container": {"program": settings.runtime, "name": container_name(settings, run_id)},
        }
        hosts = self.hosts_type(settings)
        # Hosts that may hold something: all of them, if the launch was interrupted
        touched = settings.hosts if (folder / "deadline.json").exists() else ()
        untouched = states.read_json(folder, "untouched.json") or ()
        answers = hosts.ask_each(request, 25, [host for host in touched if host not in untouched])
        remaining = [problem for answer in answers.values() if (problem := _problem(answer))]
        deadline = deadline_of(folder)
        if not remaining or time.time() > deadline:
            states.remove_folder(folder)
            return
        (folder / states.KEY_FILE).unlink(missing_ok=True)
        raise SeatrialError.of(
            "baremetal-hosts-remain",
            count=len(remaining),
            hosts=len(settings.hosts),
            problems=some_of(remaining),
            until=f"{datetime.fromtimestamp(deadline, UTC):%Y-%m-%d %H:%M} UTC",
        )

    def missing(self) -> list[Reason]:
        """List everything that would keep a run from starting, on every host, without changing
        anything.
        """
        cluster = self._cluster
        settings = self._settings
        container = container_of(trial_run(cluster), settings)
        request = {
            "verb": "check",
            "mpirun": cluster.mpi.mpirun,
            "container": asdict(container) if container else None,
        }
        answers = self.hosts_type(settings).ask_each(request, 30, settings.hosts)
        if without_ssh := next(
            (answer for answer in answers.values() if isinstance(answer, MissingError)), None
        ):
            return [without_ssh.reason]
        return [
            reason
            for host, answer in answers.items()
            for reason in _host_problems(host, answer, settings, container)
        ]


class _Loopback(Hosts):
    """This machine as the only host, without a login."""

    listen = "127.0.0.1"

    def _login(self, host: str) -> list[str]:
        return []

    def options(self, host: str) -> dict[str, str]:
        return {"hostname": self.listen}


class ThisMachine(Baremetal):
    """One node: this machine, which runs one more sshd for the time of the run, on the loopback
    address.
    """

    kind = "this-machine"
    hosts_type = _Loopback

    def render(self, run: Run) -> Rendered:
        folder = node_folder(self._settings, run.run_id)
        script = node_script(
            run.run_id, run.cluster.ssh_port, MADE_LATER, MADE_LATER, folder, _Loopback.listen
        )
        return Rendered(
            {"commands": f"{shlex.quote(self._settings.python)} -I -S -\n", "node.sh": script}
        )


def platform(cluster: "Cluster") -> Baremetal:
    """Return the platform that the cluster file describes."""
    settings = cluster.platform
    if isinstance(settings, ThisMachinePlatform):
        host = socket.gethostname().partition(".")[0]
        is_legal = re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?", host)
        fields = {
            "hosts": [host if is_legal else ThisMachine.kind],
            "folder": settings.folder,
            "python": settings.python or sys.executable,
        }
        return ThisMachine(
            cluster, BaremetalPlatform.model_validate({"kind": "baremetal", **fields})
        )
    assert isinstance(settings, BaremetalPlatform)
    return Baremetal(cluster, settings)
