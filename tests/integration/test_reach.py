"""What nodes say of each other, on real namespaces and real sshd."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seatrial.checks.connectivity.check import connectivity
from seatrial.checks.contract import CheckContext
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.node_setup import NodeConnection, set_up_node
from seatrial.remote.peers import log_in_to_peers, reach_peers
from tests.integration.conftest import LocalTestbed
from tests.suspects import kinds_and_names


def in_node(testbed: Testbed, name: str, *command: str) -> None:
    subprocess.run(
        ["ip", "netns", "exec", f"seatrial-{testbed.run_id}-{name}", *command], check=True
    )


@contextmanager
def contact_of_head(testbed: Testbed) -> Iterator[NodeConnection]:
    contact = set_up_node(testbed, testbed.head, 30)
    try:
        yield contact
    finally:
        contact.transport.close()


def test_refused_timed_out_and_unreachable_peers_get_different_codes(
    local_testbed: LocalTestbed,
) -> None:
    faults = [
        {"node": "node-1", "sshd": "stopped"},
        {"link": ["node-0", "node-3"], "state": "down"},
    ]
    with local_testbed(nodes=5, faults=faults) as (_, testbed):
        in_node(testbed, "node-2", "ip", "route", "add", "blackhole", f"{testbed.head.address}/32")
        with contact_of_head(testbed) as head:
            failed = reach_peers(testbed, head, testbed.nodes[1:], 2)
    assert {name: why.code for name, why in failed.items()} == {
        "node-1": "ssh-refused",
        "node-2": "ssh-timeout",
        "node-3": "ssh-unreachable",
    }


def test_node_whose_host_key_looks_wrong_only_to_its_peers_is_blamed(
    local_testbed: LocalTestbed,
) -> None:
    """Two machines with one address: the control host reaches the right one, the nodes reach the
    other.
    """
    with local_testbed(nodes=4) as (run, testbed):
        pinned = Path(testbed.key_file).with_name("known_hosts")
        right, wrong = testbed.nodes[2].host_key, testbed.nodes[3].host_key
        pinned.write_text(pinned.read_text().replace(right, wrong))
        with contact_of_head(testbed) as head:
            assert reach_peers(testbed, head, testbed.nodes[1:], 30) == {}
            logins = log_in_to_peers(testbed, head, testbed.nodes[1:], 30)
        assert {name: bool(error) for name, error in logins.items()} == {
            "node-1": False,
            "node-2": True,
            "node-3": False,
        }
        check = connectivity(CheckContext(run, testbed)).check
    assert check.verdict is Verdict.FAIL
    assert kinds_and_names(check) == [("node", "node-2")]
    assert "Host key verification failed" in check.suspects[0].evidence.sentence
