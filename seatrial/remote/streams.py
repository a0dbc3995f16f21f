"""TCP streams between a node and its peers, by a program that runs on each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seatrial.model.testbed import Node
from seatrial.remote.answers import StreamAnswer, StreamListener
from seatrial.remote.line_probe import LineProbe

if TYPE_CHECKING:
    import paramiko

STREAM_BYTES = 64 * 1024**2  # per direction, or STREAM_S where that takes longer
STREAM_S = 0.5
# What a stream may take besides the connection: its waits for first bytes, a loaded machine
_SPARE_S = 20


class StreamProbe(LineProbe):
    """Program stream.py while it runs on a node; it ends with the connection.

    Raises RemoteError if it does not start, FloodError if it prints too much.
    """

    def __init__(
        self, transport: "paramiko.Transport", program: Sequence[str], timeout_s: float
    ) -> None:
        super().__init__(transport, program)
        self.listener = self.greeting(StreamListener, timeout_s)

    def measure(
        self, peer: Node, listener: StreamListener, timeout_s: float
    ) -> tuple[float, float]:
        """Return MB/s to the peer that listens there, and from it.

        Raises RemoteError, FloodError.
        """
        request = {
            "peer": {"address": peer.address, "port": listener.port, "token": listener.token},
            "max_bytes": STREAM_BYTES,
            "max_seconds": STREAM_S,
        }
        answer = self.ask(request, StreamAnswer, timeout_s + _SPARE_S)
        return answer.out.mb_s, answer.in_.mb_s
