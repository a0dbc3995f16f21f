"""The output of a sweep, which its ranks print."""

import logging

from seatrial.checks.collectives.outcome import busbw_of
from seatrial.checks.collectives.problems import Setting
from seatrial.checks.collectives.section import PlannedSweep
from seatrial.model.sizes import format_size
from seatrial.nccl import Sweep, SweepReader, TransportReader
from seatrial.remote.ranks import rank_of
from seatrial.text.words import quantity

log = logging.getLogger("seatrial.collectives")

# A sweep has about 30 rows; a broken node that prints more must not fill the log of the run
_MOST_LOGGED_ROWS = 500


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
