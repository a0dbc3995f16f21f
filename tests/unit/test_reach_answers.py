"""What nodes tell of the peers that they try to reach."""

import json

import pytest

from seatrial.model.errors import RemoteError
from seatrial.model.reason import code_of
from seatrial.model.testbed import Node
from seatrial.remote.peers import unreached

PEERS = tuple(Node(f"node-{n}", f"10.0.0.{n}", 222, 1, "ssh-ed25519 AAAA") for n in (1, 2))


def test_a_peer_that_is_not_named_is_reached() -> None:
    (failed,) = unreached([json.dumps({"tried": 2, "failed": {"refused": [1]}})], PEERS).items()
    assert (failed[0], code_of(failed[1])) == ("node-2", "ssh-refused")


@pytest.mark.parametrize(
    "line", ["", "Welcome to node-0", '{"tried": 1, "failed": {}}', '{"tried": 2, "failed": {"no": [7]}}']
)
def test_without_an_answer_no_peer_counts_as_reached(line: str) -> None:
    with pytest.raises(RemoteError) as caught:
        unreached([line], PEERS)
    assert code_of(caught.value.reason) == "peers-not-tried"
