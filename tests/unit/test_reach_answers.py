"""What nodes tell of the peers that they try as soon as they are asked what they are."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from seatrial.checks.connectivity.stages import _reached_at_once
from seatrial.model.errors import RemoteError
from seatrial.model.reason import code_of
from seatrial.model.testbed import Node, Testbed, dial_tcp
from seatrial.remote.node_setup import NodeConnection, _reached
from seatrial.remote.reach_program import unreached

PEERS = tuple(Node(f"node-{n}", f"10.0.0.{n}", 222, 1, "ssh-ed25519 AAAA") for n in (1, 2))


def test_a_peer_that_is_not_named_is_reached() -> None:
    line = json.dumps({"tried": 2, "failed": {"refused": [1]}})
    reached = _reached(line, PEERS)
    assert reached["node-1"] == ""
    assert code_of(reached["node-2"]) == "ssh-refused"


@pytest.mark.parametrize(
    "line", ["", "Welcome to node-0", '{"tried": 1, "failed": {}}', '{"tried": 2, "failed": {"no": [7]}}']
)
def test_without_an_answer_no_peer_counts_as_reached(line: str) -> None:
    assert {code_of(why) for why in _reached(line, PEERS).values()} == {"peers-not-tried"}
    with pytest.raises(RemoteError):
        unreached([line], PEERS)


def contact(reached: dict[str, str] | None) -> NodeConnection:
    return NodeConnection(cast(Any, None), {}, 1.0, 0.0, 0.0, reached)


def test_nodes_that_are_left_out_have_no_say() -> None:
    left = Testbed("run", PEERS, "root", Path("key"), dial_tcp, "/w")
    contacts = {
        "node-1": contact({"node-0": "connection refused", "node-2": ""}),
        "node-2": contact({"node-1": "no route to host"}),
    }
    tried = _reached_at_once(left, contacts)
    assert tried is not None
    assert tried.peers == {"node-1": ["node-2"], "node-2": ["node-1"]}
    assert tried.failed == {("node-2", "node-1"): "no route to host"}


def test_nodes_that_were_not_asked_are_asked_later() -> None:
    left = Testbed("run", PEERS, "root", Path("key"), dial_tcp, "/w")
    assert _reached_at_once(left, {"node-1": contact(None), "node-2": contact(None)}) is None
