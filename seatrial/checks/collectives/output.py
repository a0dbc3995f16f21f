"""The output of a sweep: what its ranks print, and the file of the same results (-J)."""

import json
import logging
import shlex
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from seatrial.checks.collectives.outcome import busbw_of
from seatrial.checks.collectives.problems import Setting
from seatrial.checks.collectives.section import PlannedSweep
from seatrial.config.run import Run, secrets_of
from seatrial.model.errors import InputError, RemoteError
from seatrial.model.sizes import format_size
from seatrial.model.testbed import Testbed
from seatrial.nccl import Sweep, SweepReader, TransportReader
from seatrial.nccl.parse import parse_document
from seatrial.remote.command import run_command
from seatrial.remote.ranks import rank_of
from seatrial.remote.ssh import connected
from seatrial.system.rawlog import write_log
from seatrial.text.words import quantity

log = logging.getLogger("seatrial.collectives")

# A sweep has about 30 rows; a broken node that prints more must not fill the log of the run
_MOST_LOGGED_ROWS = 500
_MAX_JSON_BYTES = 64 * 1024**2


class OutputReader:
    """Reads an operation's output as it arrives, however long it is, and logs its rows."""

    def __init__(self, planned: PlannedSweep, setting: Setting, *, quiet: bool) -> None:
        self.transport = TransportReader()
        self._planned = planned
        self._setting = setting
        self._quiet = quiet  # one of many sweeps that run at once
        self._rows = 0
        self._reader = SweepReader(planned.operation)

    def line(self, line: str) -> None:
        """Take one line of a rank; the rows of the table are logged."""
        self.transport.feed(line)
        if rank_of(line) != 0:  # only rank 0 prints the table
            return
        for row in self._reader.feed(line):
            self._rows += 1
            side = row.out_of_place or row.in_place
            if self._quiet or self._rows > _MOST_LOGGED_ROWS:
                continue
            if not side or side.time_us is None:
                continue
            busbw = busbw_of(self._setting, False, row.size, side)
            rate = f"{quantity(side.time_us, 'us'):>12}  {quantity(busbw, 'GB/s'):>12}"
            wrong = f"  {side.wrong} wrong" if side.wrong else ""
            log.info("%s", f"{self._planned.label} {format_size(row.size):>6}  {rate}{wrong}")

    def sweep(self) -> Sweep | None:
        """Return the sweep with the most rows, or None."""
        return max(self._reader.sweeps(), key=lambda sweep: len(sweep.rows), default=None)


def take_json(run: Run, testbed: Testbed, json_file: str, name: str) -> Sweep | None:
    """Return the sweep in the file that rank 0 left on the head, and remove the file: it has the
    whole environment.
    """
    quoted = shlex.quote(json_file)
    with (
        suppress(RemoteError, ValueError, InputError, OSError),
        connected(testbed, testbed.head, 30) as head,
    ):
        try:
            text = run_command(
                head, f"cat {quoted}", timeout_s=60, max_bytes=_MAX_JSON_BYTES
            ).output
        finally:
            run_command(head, f"rm -f {quoted}", timeout_s=10)
        # pydantic's parser refuses JSON that is nested too deep, for which the standard library's
        # recurses.
        document = TypeAdapter(dict[str, Any]).validate_json(text)
        document.pop("env", None)  # it holds secrets
        write_log(run.logs / name, json.dumps(document, indent=1), secrets_of(run.cluster))
        return parse_document(document, json_file)
    return None


def with_json(sweep: Sweep | None, exact: Sweep | None, gpus_each: int) -> Sweep | None:
    """Return the sweep with rows and ranks from the file, which other output cannot tear, and the
    printed outcome.
    """
    if sweep is None or exact is None:
        return sweep
    if len(exact.rows) < len(sweep.rows):
        return sweep
    # The file lists only one device of each process
    listed = exact.ranks if gpus_each == 1 else None
    return replace(sweep, rows=exact.rows, ranks=listed or sweep.ranks)
