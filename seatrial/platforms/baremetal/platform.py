"""The bare-metal platform: launch, teardown and leftovers of testbeds on hosts that are up."""

import json
import shlex
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.config.run import Run
from seatrial.model.errors import InputError, SeatrialError
from seatrial.model.testbed import Node, Testbed, dial_tcp
from seatrial.platforms import Leftover, Rendered
from seatrial.platforms import state as states
from seatrial.platforms.baremetal.bringup import (
    addresses_of,
    by_hand,
    container_of,
    ensure_images,
    lifetime_s,
    node_folder,
    run_folder,
    start_nodes,
)
from seatrial.platforms.baremetal.config import BaremetalPlatform
from seatrial.platforms.baremetal.ending import all_untouched, blameless_reason, remember_untouched, stop_run
from seatrial.platforms.baremetal.hosts import BaremetalState, HostAddress, Hosts, on_hosts, ssh_config
from seatrial.platforms.sshd import MADE_LATER, node_script, tell_ports
from seatrial.platforms.testbed import node_of, testbed_of
from seatrial.system.rawlog import write_log
from seatrial.text.redact import Secrets

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

_LOG_BYTES = 1024**2  # of each host


class Baremetal:
    """Nodes as hosts that run one more sshd for the time of the run."""

    kind = "baremetal"
    hosts_type = Hosts

    def __init__(self, cluster: "Cluster", settings: BaremetalPlatform) -> None:
        self._cluster, self._settings = cluster, settings

    def render(self, run: Run) -> Rendered:
        folder = node_folder(self._settings, run.run_id)
        python = shlex.quote(self._settings.python)
        container = container_of(run, self._settings, run_folder(self._settings, run.run_id))
        return Rendered(
            {
                **({"container.sh": by_hand(container)} if container else {}),
                "ssh_config": ssh_config(self._settings),
                "commands": "".join(f"ssh -F ssh_config {host} {python} -I -S -\n" for host in self._settings.hosts),
                "node.sh": node_script(run.run_id, run.cluster.ssh_port, MADE_LATER, MADE_LATER, folder),
            }
        )

    def launch(self, run: Run) -> Testbed:
        folder, run_key, host_key = states.begin(run, self.kind)
        deadline = time.time() + lifetime_s(self._settings, run.cluster) + self._settings.start_timeout_s
        states.write_private(folder / "ssh_config", ssh_config(self._settings))
        states.write_private(folder / "deadline.json", json.dumps(deadline))
        hosts = self._hosts(folder)
        if container := container_of(run, self._settings, run_folder(self._settings, run.run_id)):
            with all_untouched(folder, self._settings.hosts):
                ensure_images(hosts, self._settings, container)
        started = start_nodes(hosts, run, self._settings, run_key, host_key)
        remember_untouched(folder, started)
        addresses = addresses_of(started, hosts, run.cluster.ssh_port)
        state = BaremetalState(host_key=host_key.public, nodes=addresses)
        testbed = self._testbed(run.run_id, state)
        state.save(folder, testbed)
        tell_ports(testbed, run.cluster.ssh_port)
        return testbed

    def _hosts(self, folder: Path) -> Hosts:
        return self.hosts_type(self._settings, folder / "ssh_config")

    def attach(self, run_id: str) -> Testbed:
        folder = states.run_folder(run_id, self.kind)
        if not folder.exists():
            raise InputError(f"run {run_id}: is over")
        return self._testbed(run_id, BaremetalState.load(folder))

    def _testbed(self, run_id: str, state: BaremetalState) -> Testbed:
        folder = states.run_folder(run_id, self.kind)
        hosts, addresses = self._hosts(folder), {address.name: address for address in state.nodes}

        def dial(node: Node, timeout_s: float) -> socket.socket:
            proxied = addresses[node.name].proxied
            return hosts.dial(node.name, node.port, timeout_s) if proxied else dial_tcp(node, timeout_s)

        testbed = testbed_of(
            self._cluster,
            run_id,
            [self._node(address, state.host_key) for address in state.nodes],
            user=state.nodes[0].user,
            key_file=folder / states.KEY_FILE,
            dial=dial,
            workdir=f"{node_folder(self._settings, run_id)}/work",
            python=self._settings.python if self._settings.runtime == "none" else self._settings.container_python,
            network=None,
            blameless_reason=lambda node: blameless_reason(hosts, folder, self._settings, addresses[node.name]),
        )
        return replace(testbed, shared_cores=state.shared_cores)

    def _node(self, at: HostAddress, host_key: str) -> Node:
        return replace(node_of(self._cluster, at.name, at.address, host_key, at.port), user=at.user)

    def collect(self, run_id: str, folder: Path, timeout_s: float, secrets: Secrets) -> None:
        state = states.run_folder(run_id, self.kind)
        if not state.exists():
            return  # nothing was started
        for host, text in self._logs(state, run_id, timeout_s).items():
            write_log(folder / "nodes" / f"{host}.log", text, secrets)

    def _logs(self, state: Path, run_id: str, timeout_s: float) -> dict[str, str]:
        hosts, there = self._hosts(state), run_folder(self._settings, run_id)
        request = {"verb": "log", "folder": there, "bytes": _LOG_BYTES}
        answers = on_hosts(
            self._settings.hosts,
            lambda host: hosts.ask(host, request, timeout_s, proxied=hosts.is_proxied(host)),
        )
        return {
            host: f"{answer.reason}\n" if isinstance(answer, SeatrialError) else answer.log
            for host, answer in answers.items()
        }

    def keep(self, run_id: str, seconds: float) -> bool:
        folder = states.run_folder(run_id, self.kind)
        if not (folder / "nodes.json").exists():
            return False
        states.keep(folder, seconds)
        return True

    def teardown(self, run_id: str) -> None:
        folder = states.run_folder(run_id, self.kind)
        if folder.exists():
            stop_run(run_id, folder, self._settings, self.hosts_type)

    def leftovers(self) -> list[Leftover]:
        return states.leftovers(self.kind, "sshd on the hosts and the keys of a run whose process is gone")

    def missing(self) -> list[str]:
        from seatrial.platforms.baremetal.doctor import problems

        return problems(self._cluster, self._settings, self.hosts_type)


def platform(cluster: "Cluster") -> Baremetal:
    """The platform that the cluster file describes."""
    assert isinstance(cluster.platform, BaremetalPlatform)
    return Baremetal(cluster, cluster.platform)
