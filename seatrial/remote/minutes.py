"""Readings of every device of a testbed, minute by minute, while a run measures."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from pydantic import Field, FiniteFloat, StringConstraints

from seatrial.model.errors import SeatrialError
from seatrial.model.testbed import Node, Testbed
from seatrial.remote.answers import NodeAnswer
from seatrial.remote.node_setup import asked
from seatrial.remote.ssh import answered, connected, fan_out, on_each

log = logging.getLogger("seatrial.minutes")

_ASK_S = 45.0  # timeout of one node's answer: nvidia-smi alone may take 20 s
_MOST = 100_000  # most readings of a run

Part = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./:-]{1,64}$")]
MetricName = Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,32}$")]
Reading = Annotated[FiniteFloat, Field(ge=-1e18, le=1e18)]
OfPart = Annotated[dict[MetricName, Reading], Field(max_length=32)]


class MinuteAnswer(NodeAnswer):
    """Output of seatrial/remote/probes/minute.py: a number for each part and metric."""

    parts: dict[Part, OfPart] = Field(max_length=1024)


@dataclass(slots=True)
class Minutes:
    """Readings of `metrics` at `times_s`, seconds since the beginning by a monotonic clock.

    `metrics` has, for each metric and part ("node-3/gpu-1"), the readings by their index in
    `times_s`.
    """

    times_s: list[float] = field(default_factory=list)
    metrics: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)

    def add(self, time_s: float, answers: dict[str, MinuteAnswer]) -> None:
        """Add the answers of the nodes, by name."""
        place = len(self.times_s)
        self.times_s.append(time_s)
        for node, answer in answers.items():
            for part, readings in answer.parts.items():
                for metric, reading in readings.items():
                    of_metric = self.metrics.setdefault(metric, {})
                    of_metric.setdefault(f"{node}/{part}", {})[place] = reading


@contextmanager
def recording(every_s: float, testbed: Callable[[], Testbed | None]) -> Iterator[Minutes]:
    """Read all nodes every `every_s` seconds within the context; 0: never.

    A node that does not answer leaves a gap.
    """
    minutes = Minutes()
    over = threading.Event()
    if not every_s:
        yield minutes
        return
    thread = threading.Thread(target=_record, args=(minutes, every_s, testbed, over), daemon=True)
    thread.start()
    try:
        yield minutes
    finally:
        over.set()
        thread.join(_ASK_S)


def _record(
    minutes: Minutes, every_s: float, testbed: Callable[[], Testbed | None], over: threading.Event
) -> None:
    began = time.monotonic()
    following = began + every_s
    while not over.wait(max(0.0, following - time.monotonic())) and len(minutes.times_s) < _MOST:
        at = time.monotonic()
        following = max(following + every_s, at)
        if (nodes := testbed()) is None:
            continue
        try:
            answers = on_each(nodes.nodes, partial(_ask, nodes), fan_out(nodes))
        except (SeatrialError, OSError) as error:  # an error of this machine
            log.debug("a minute is missing: %s", error)
            continue
        known = answered(answers)
        if known and not over.is_set():
            minutes.add(at - began, known)


def _ask(testbed: Testbed, node: Node) -> MinuteAnswer:
    """Ask one node. Raises RemoteError."""
    with connected(testbed, node, _ASK_S) as transport:
        return asked(testbed, transport, "minute.py", MinuteAnswer, _ASK_S)
