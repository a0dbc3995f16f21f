"""Step `collect`: fetch the logs of the nodes and their platform before teardown. It never changes a verdict.

What mpirun prints is in `logs/` already, NCCL's words too. They are elsewhere only where the environment sets
NCCL_DEBUG_FILE: in files on the nodes, whose ends are fetched.
"""

import logging
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seatrial.config.run import Run, secrets_of
from seatrial.model.errors import SeatrialError
from seatrial.model.testbed import Node, Testbed
from seatrial.platforms import platform_for
from seatrial.remote.command import run_command
from seatrial.remote.ssh import connected, on_each
from seatrial.system.rawlog import write_log
from seatrial.text.redact import Secrets

log = logging.getLogger("seatrial.collect")

TIMEOUT_S = 60.0
CUT_TIMEOUT_S = 10.0  # for a run that was cut off: somebody waits for its end
_NODE_S = 15.0
_FILE_BYTES, _NODE_BYTES = 256 * 1024, 4 * 1024**2  # of each file, of all on a node
NCCL_LOGS = "nccl-debug"


def collect(run: Run, testbed: Testbed | None, timeout_s: float = TIMEOUT_S) -> None:
    """The platform's logs of the run, and NCCL's from the nodes, into `run.logs`. What cannot be had is a warning.

    `testbed` is None if none came up; the platform's logs say why.
    """
    deadline, secrets = time.monotonic() + timeout_s, secrets_of(run.cluster)
    with _as_far_as_possible():
        platform_for(run.cluster).collect(run.run_id, run.logs, timeout_s, secrets)
    pattern = dict(testbed.env).get("NCCL_DEBUG_FILE") if testbed else None
    if testbed and pattern:
        with _as_far_as_possible():
            fetch_nccl_logs(testbed, pattern, run.logs / NCCL_LOGS, deadline, secrets)


@contextmanager
def _as_far_as_possible() -> Iterator[None]:
    """Whatever goes wrong, the nodes must still be taken down."""
    try:
        yield
    except Exception as error:
        what = str(error) if isinstance(error, SeatrialError) else f"{type(error).__name__}: {error}"
        log.warning("not all logs could be collected: %s", what)


def fetch_nccl_logs(testbed: Testbed, pattern: str, folder: Path, deadline: float, secrets: Secrets) -> None:
    """The end of every file that NCCL wrote, one file per node. `pattern` is NCCL_DEBUG_FILE."""
    # No links: whoever may write there could point one at a file that only the run's user may read.
    show = f'[ -f "$file" ] && [ ! -L "$file" ] && {{ echo "# $file"; tail -c {_FILE_BYTES} "$file"; }}'
    command = f"for file in {as_glob(pattern)}; do {show}; done | head -c {_NODE_BYTES}"

    def fetch(node: Node) -> None:
        left_s = min(_NODE_S, deadline - time.monotonic())
        if left_s <= 0:
            return
        with connected(testbed, node, left_s) as transport:
            result = run_command(transport, command, timeout_s=left_s, max_bytes=2 * _NODE_BYTES)
        if result.output:
            write_log(folder / f"{node.name}.log", result.output + "\n", secrets)
        if result.timed_out:
            log.warning("%s: its NCCL logs did not come within %.0f s; what came is kept", node.name, left_s)

    for name, answer in on_each(testbed.nodes, fetch).items():
        if isinstance(answer, SeatrialError):
            log.warning("%s: its NCCL logs cannot be fetched: %s", name, answer)


def as_glob(pattern: str) -> str:
    """The shell's words for the files of one node: NCCL puts the host's name for %h and the process's id for %p."""
    parts = {"%h": '"$(uname -n | cut -d. -f1)"', "%p": "*", "%%": "%"}
    return "".join(parts.get(part, shlex.quote(part)) for part in re.split(r"(%[hp%])", pattern) if part)
