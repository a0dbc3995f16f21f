"""Probes that run on a node for a while and answer requests: one JSON object a line in each
direction.
"""

import json
import shlex
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from seatrial.model.errors import RemoteError
from seatrial.model.testbed import Node
from seatrial.remote.answers import (
    Answer,
    ProbeError,
    StreamAnswer,
    StreamError,
    StreamListener,
    read_answer,
    shown,
)
from seatrial.remote.command import (
    MAX_OUTPUT_BYTES,
    check_output_bytes,
    connection_lost,
    start_process,
)

if TYPE_CHECKING:
    import paramiko

STREAM_BYTES = 64 * 1024**2  # per direction, or less if that takes longer than STREAM_S
STREAM_S = 0.5
# Additional time for a stream: waiting for first bytes, and a loaded machine
_SPARE_S = 20
Read = TypeVar("Read")
Failed = TypeVar("Failed", bound=ProbeError)


def read_either(model: type[Answer], error: type[Failed], line: str) -> Answer | Failed:
    """Return the answer in a line, or the probe's error. Raises ValueError."""
    try:
        return read_answer(model, line)
    except ValueError:
        return read_answer(error, line)


class LineProbe:
    """A program on a node, which ends with the connection.

    Its methods raise RemoteError if it does not answer in time, FloodError if it prints too much.
    """

    def __init__(self, transport: "paramiko.Transport", argv: Sequence[str]) -> None:
        self._process = start_process(transport, shlex.join(argv))
        self._numbers = count(1)
        self._unread: deque[str] = deque()

    def ask(self, request: Mapping[str, Any], model: type[Answer], timeout_s: float) -> Answer:
        """Send a request and wait for its answer."""
        return self.answer(self.send(request), model, timeout_s)

    def send(self, request: Mapping[str, Any]) -> int:
        """Send a request; return its number, which is the `id` of its answers."""
        number = next(self._numbers)
        try:
            self._process.send(json.dumps({"id": number, **request}).encode() + b"\n")
        except (EOFError, OSError) as error:
            raise connection_lost(error) from error
        return number

    def answer(self, number: int, model: type[Answer], timeout_s: float) -> Answer:
        """Wait for the answer to a request, skipping late answers to earlier requests."""

        def read(line: str) -> Answer | StreamError:
            answer = read_either(model, StreamError, line)
            if getattr(answer, "id", None) != number:
                raise ValueError("id: must be that of the request")
            return answer

        answer = self.first(read, timeout_s)
        if isinstance(answer, StreamError):
            raise RemoteError(answer.error)
        return answer

    def first(self, read: Callable[[str], Read], timeout_s: float) -> Read:
        """Return `read(line)` for the first line that does not raise ValueError; a login may print
        other lines.
        """
        deadline = time.monotonic() + timeout_s
        printed = ""
        while True:
            while self._unread:
                line = self._unread.popleft()
                with suppress(ValueError):
                    return read(line)
                printed = line.strip() or printed
            left = deadline - time.monotonic()
            lines = self._lines(left) if left > 0 else None
            if lines is None:
                raise RemoteError(shown(printed))
            self._unread.extend(lines)

    def _lines(self, timeout_s: float) -> list[str] | None:
        try:
            lines = self._process.read_lines(timeout_s)
        except (EOFError, OSError) as error:
            raise connection_lost(error) from error
        check_output_bytes(self._process, MAX_OUTPUT_BYTES)
        return lines


class StreamProbe(LineProbe):
    """Program stream.py: TCP streams between a node and its peers.

    Raises RemoteError if it does not start, FloodError if it prints too much.
    """

    def __init__(
        self, transport: "paramiko.Transport", program: Sequence[str], timeout_s: float
    ) -> None:
        super().__init__(transport, program)
        self.listener = self.first(partial(read_answer, StreamListener), timeout_s)

    def measure(
        self, peer: Node, listener: StreamListener, timeout_s: float
    ) -> tuple[float, float]:
        """Return MB/s to the peer at `listener`, and from it.

        Raises RemoteError, FloodError.
        """
        request = {
            "peer": {"address": peer.address, "port": listener.port, "token": listener.token},
            "max_bytes": STREAM_BYTES,
            "max_seconds": STREAM_S,
        }
        answer = self.ask(request, StreamAnswer, timeout_s + _SPARE_S)
        return answer.out.mb_s, answer.in_.mb_s
