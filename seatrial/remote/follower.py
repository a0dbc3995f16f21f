"""Read the output of an mpirun, or of the testbed's launcher, to its end."""

import logging
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable

from seatrial.model.testbed import RankProcess
from seatrial.remote.command import RemoteRanks, is_piece
from seatrial.remote.mpi_result import MpiResult
from seatrial.remote.ranks import RankLine, SrunLines, rank_line, reported_rank
from seatrial.system.rawlog import RawLog

# Most lines and characters kept of the beginning, and of the end, to limit memory
_MOST_LINES = 100_000
_MOST_CHARS = 8 * 1024**2
log = logging.getLogger("seatrial.mpi")
# Time to end after the last output: mpirun normally needs tenths of a second, but may hang
SETTLE_S = 3.0
SETTLE_S_PER_RANK = 0.01  # thousands of ranks need long to finalize
SUPERVISOR_GRACE_S = 10.0  # the supervisor terminates for 3 s, then kills for 3 s
# Most characters of a line, except an event of a probe, which may have an entry per rank
_LONGEST_LINE = 16 * 1024
_RANK_0 = "[1,0]<stdout>:"  # prefix in logs, as mpirun puts it before other ranks' lines
_LINE_COST = 256  # least bytes that a line counts as, since many short lines take long to read
# Open MPI's launcher prints this if its child set their common process group first.
_LOST_RACE = "plm:rsh: Warning: setpgid("
# Of seatrial/remote/probes/supervise.py, before it says why it ended, or did not start, the
# command.
_SUPERVISOR = "seatrial-supervisor: "
_CANNOT_START = "cannot start "
_WAITED = re.compile(r"time is up; (?P<seconds>\d{1,9}\.\d) s of it a process waited")


class KeptLines:
    """The first and the last lines of output of any length, at most `_MOST_LINES` and `_MOST_CHARS`
    of each.
    """

    def __init__(self) -> None:
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._head_chars = 0
        self._tail_chars = 0
        self._left_out = 0

    def add(self, line: str) -> None:
        """Keep a line; without room, drop the oldest of the last lines."""
        head_chars = self._head_chars + len(line)
        has_room = len(self._head) < _MOST_LINES and head_chars <= _MOST_CHARS
        if has_room and not self._tail:
            self._head.append(line)
            self._head_chars = head_chars
            return
        self._tail.append(line)
        self._tail_chars += len(line)
        while len(self._tail) > _MOST_LINES or self._tail_chars > _MOST_CHARS:
            oldest = self._tail.popleft()
            self._tail_chars -= len(oldest)
            self._left_out += 1

    def kept(self) -> tuple[str, ...]:
        """Return the kept lines, with a note where lines were dropped."""
        if not self._left_out:
            return (*self._head, *self._tail)
        note = f"[{self._left_out} lines are left out here; the log has them]"
        return (*self._head, note, *self._tail)


class Follower:
    """Reads one mpirun until it ends, prints too much or reaches its time limit.

    `on_line` is called with each kept line, and `is_done` returns whether a line is the last of
    interest. At most `max_bytes` are read, until `SUPERVISOR_GRACE_S` after `timeout_s`. `ranks` is
    the number of ranks: many take longer to end.
    """

    def __init__(
        self,
        process: RankProcess,
        log_file: RawLog,
        on_line: Callable[[str], None] | None,
        is_done: Callable[[str], bool] | None,
        max_bytes: int,
        timeout_s: float,
        ranks: int,
    ) -> None:
        self._max_bytes = self._room = max_bytes
        self._process = process
        self._lines = KeptLines()
        self._srun = SrunLines()
        self._log_file = log_file
        self._on_line = on_line or (lambda line: None)
        self._is_done = is_done or (lambda line: False)
        self._started = time.monotonic()
        self._deadline = self._started + timeout_s + SUPERVISOR_GRACE_S
        self._settle_s = SETTLE_S + SETTLE_S_PER_RANK * ranks
        self._settled_at: float | None = None
        self._asked_to_end = False
        self._supervisor: str | None = None  # the supervisor's message about the end
        self._piece_of: int | None = None  # the rank whose line continues in the next line read
        self.reported: set[int] = set()  # ranks that reported themselves
        self._printed: Counter[int | None] = Counter()  # characters by rank
        self._has_pipe = isinstance(process, RemoteRanks)  # whether rank 0 has a pipe

    def follow(self) -> MpiResult:
        """Read to the end; return the result.

        A process that still runs after its last line of interest is asked to end.
        """
        while (batch := self._process.read_lines(0.2)) is not None:
            self._take_batch(batch)
            too_late = time.monotonic() > self._deadline
            # All processes were ended a while ago: output that still arrives was printed faster
            # than it could be read.
            has_piled_up = too_late and bool(batch)
            is_too_much = self._room < 0 or self._process.received_bytes > self._max_bytes
            if is_too_much or has_piled_up:
                return self._ended_for_flooding()
            if too_late:
                return self._result(None, past_deadline=True)
            is_settled = self._settled_at and time.monotonic() > self._settled_at
            if is_settled and not self._asked_to_end:
                self._ask_to_end()
        status = self._process.exit_status()
        return self._result(status)

    def _take_batch(self, batch: Iterable[str]) -> None:
        """Process lines that have arrived, joining those that srun has split."""
        for line in batch:
            with_newline = len(line) + 1
            self._room -= max(with_newline, _LINE_COST)
            if self._piece_of is not None:
                self._take(line)
                continue
            whole = self._srun.whole(line)
            if whole is not None:
                self._take(whole)

    def _ask_to_end(self) -> None:
        """Close the input of the supervisor, so that it ends everything."""
        log.warning(
            "mpirun has printed everything and does not leave; ending it and using its output"
        )
        self._asked_to_end = True
        self._process.close_stdin()
        self._deadline = time.monotonic() + SUPERVISOR_GRACE_S

    def _ended_for_flooding(self) -> MpiResult:
        """Discard further output until the end: the next mpirun must not start beside this one."""
        now = time.monotonic()
        seconds = now - self._started
        deadline = now + SUPERVISOR_GRACE_S
        self._process.close_stdin()
        while time.monotonic() < deadline:
            if self._process.read(0.2) is None:
                break
        of_ranks = {rank: count for rank, count in self._printed.items() if rank is not None}
        return MpiResult(None, self._lines.kept(), seconds, flooded=True, printed=of_ranks)

    def _take(self, read: str) -> None:
        """Log and keep a line, or a piece of one."""
        if isinstance(read, RankLine):  # from the pipe of rank 0
            written = self._log_file.write(f"{_RANK_0}{read}\n")
            logged = written.removesuffix("\n").removeprefix(_RANK_0)
            self._keep(RankLine(logged, read.rank))
            return
        # The log holds it back, as a secret may continue in the next piece
        goes_on = is_piece(read)
        text = read if goes_on else f"{read}\n"
        written = self._log_file.write(text)
        logged = written.removesuffix("\n")
        line = rank_line(logged, self._piece_of)
        self._piece_of = line.rank if goes_on else None
        if line.rank == 0 and self._has_pipe:
            line = RankLine(line, None)
        self._keep(line)

    def _keep(self, line: RankLine) -> None:
        """Keep a line and pass it on, unless it is a report of seatrial itself, or noise of the
        launcher.

        The supervisor's message is stored separately, and ends the lines that are kept.
        """
        if self._supervisor is not None:  # ranks that are being ended print errors about each other
            return
        text = str(line)
        rank = line.rank
        reported = reported_rank(line)
        if reported is not None:
            self.reported.add(reported)
            return
        is_first = rank is not None and rank not in self._printed
        self._printed[rank] += len(text)
        if is_first and not text:  # the line break before a rank's report
            return
        if rank is None and _LOST_RACE in text:
            return
        beginning = text[:_LONGEST_LINE]
        if '{"event"' not in beginning:
            text = beginning
        if rank is None and _SUPERVISOR in text:  # it may follow half a line of the launcher
            text, _, self._supervisor = text.rpartition(_SUPERVISOR)
            if not text:
                return
        kept = RankLine(text, rank)
        self._lines.add(kept)
        self._on_line(kept)
        if self._is_done(kept):
            self._settled_at = time.monotonic() + self._settle_s

    def _result(self, status: int | None, *, past_deadline: bool = False) -> MpiResult:
        """Return the result with the kept lines and how the run ended.

        A message of the supervisor takes precedence over `status`, which is then the supervisor's.
        With neither, and before the deadline, the connection was lost.
        """
        seconds = time.monotonic() - self._started
        for line in self._srun.unended():
            self._take(line)
        message = self._supervisor or ""
        is_lost = status is None and not message and not past_deadline
        if message:
            status = None  # it is the supervisor's
        not_started = None
        ended = past_deadline or bool(message)
        if message.startswith(_CANNOT_START):
            not_started = message.removeprefix(_CANNOT_START)
            ended = False
        waited_s = 0.0
        if waited := _WAITED.match(message):
            waited_s = float(waited["seconds"])
        return MpiResult(
            exit_status=status,
            lines=self._lines.kept(),
            seconds=seconds,
            timed_out=ended and not self._asked_to_end,
            reaped=ended and self._asked_to_end,
            not_started=not_started,
            lost=is_lost,
            waited_s=waited_s,
        )
