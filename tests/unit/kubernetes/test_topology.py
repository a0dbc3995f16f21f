"""What nodes are called, and where their peers reach them."""

from typing import Any

import pytest

from seatrial.model.testbed import Node
from seatrial.platforms.kubernetes.platform import LEVELS, address, topology_groups
from seatrial.remote.mpi import hostfile
from seatrial.remote.ssh import known_hosts, pinned_keys


def pod(**spec: str) -> dict[str, Any]:
    return {"metadata": {"name": "r1-0-x7x", "namespace": "trials"}, "spec": spec, "status": {"podIP": "10.0.0.1"}}


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({"hostname": "r1-0", "subdomain": "r1"}, "r1-0.r1.trials.svc"),
        ({}, "r1-0-x7x.trials.svc"),
        ({"hostname": "r1-0"}, "r1-0-x7x.trials.svc"),  # without a subdomain it is in no DNS
    ],
    ids=["job", "pytorchjob", "no-subdomain"],
)
def test_peers_reach_a_pod_by_address_or_by_name(spec: dict[str, str], name: str) -> None:
    assert address(pod(**spec), by_name=False) == "10.0.0.1"
    assert address(pod(**spec), by_name=True) == name


def test_a_name_is_in_the_hostfile_and_its_key_is_pinned() -> None:
    name = address(pod(hostname="r1-0", subdomain="r1"), by_name=True)
    node = Node("gke-0", name, 222, 8, "ssh-ed25519 AAAA")
    assert hostfile([node]) == "r1-0.r1.trials.svc slots=8 port=222\n"
    assert pinned_keys(known_hosts([node]))[name] == "ssh-ed25519 AAAA"


def test_nodes_of_a_zone_and_of_a_block_are_groups() -> None:
    """Blocks of different zones have the same label."""
    labels = {
        f"gke-{i}": {LEVELS[0]: "ab"[i // 2], LEVELS[1]: "1", "kubernetes.io/hostname": f"gke-{i}"} for i in range(4)
    }
    halves = frozenset({"gke-0", "gke-1"}), frozenset({"gke-2", "gke-3"})
    assert topology_groups(labels) == {"a": halves[0], "a/1": halves[0], "b": halves[1], "b/1": halves[1]}
    assert topology_groups({"gke-0": {}}) == {}
