"""Run one probe on one node by itself, without MPI."""

import shlex
from collections.abc import Sequence

from seatrial.model.errors import RemoteError
from seatrial.model.reason import Reason
from seatrial.model.testbed import Node, Testbed
from seatrial.remote.answers import Answer, NodeAnswer, Text, printable, read_answer
from seatrial.remote.command import run_command
from seatrial.remote.ssh import connected

_CONNECT_S = 30
_KILLED = 128 + 9  # as a shell tells it
_MAX_BYTES = 1 << 20  # of what one probe prints


class _ProbeError(NodeAnswer):
    """Why a probe could not measure."""

    error: Text


def run_probe(
    testbed: Testbed, node: Node, probe: str, options: Sequence[str], model: type[Answer], timeout_s: float
) -> list[Answer]:
    """The answers that the probe prints, one JSON object a line; other lines are ignored.

    Raises RemoteError when the probe prints {"error": text} or no answer, when it is not through in time, or floods.
    """
    argv = [testbed.python, f"{testbed.workdir}/{probe}.py", *options]
    with connected(testbed, node, _CONNECT_S) as transport:
        done = run_command(transport, shlex.join(argv), timeout_s=timeout_s, max_bytes=_MAX_BYTES)
    lines = done.output.splitlines()
    if problem := next(iter(_answers(_ProbeError, lines)), None):
        raise RemoteError(Reason.of("probe-failed", probe=probe, problem=problem.error))
    if done.timed_out:
        raise RemoteError(Reason.of("probe-timeout", probe=probe, seconds=timeout_s))
    if answers := _answers(model, lines):
        return answers
    if done.exit_status == _KILLED:
        raise RemoteError(Reason.of("probe-killed", probe=probe))
    last = next((line for line in reversed(lines) if line.strip()), "")
    raise RemoteError(Reason.of("probe-unreadable", probe=probe, last=printable(last) or "nothing was printed"))


def _answers(model: type[Answer], lines: Sequence[str]) -> list[Answer]:
    answers = []
    for line in lines:
        try:
            answers.append(read_answer(model, line))
        except ValueError:
            continue
    return answers
