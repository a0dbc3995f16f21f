"""From lines to events: the lines of the table, around it and between its pieces."""

import re
from dataclasses import dataclass

from seatrial.nccl.header import (
    ColumnLayout,
    Mark,
    command_ranks,
    program,
    read_mark,
)
from seatrial.nccl.model import Device, Row
from seatrial.nccl.rows import consistent, glued_piece, plausible, read_row
from seatrial.text.wrapping import clean

_MAX_PENDING = 600  # characters; the widest row with -I and -S has 250
_MAX_HOSTS = 4096
_MAX_FOREIGN = 200  # lines other than NCCL's own between two pieces of a row
_NCCL = re.compile(
    r"(?:\[\d{4}-[\d\-:. ]+\] ?)?"
    r"(?<![A-Za-z0-9])(?P<host>[A-Za-z0-9][\w.\-]{0,252}+):\d+:\d+ \[-?\d+\] "
    r"(?:[\w./-]+:\d+ (?:\([^)]*\) )?)?NCCL (?:INFO|WARN|TRACE|ABORT)"
)
# The beginning of a mark, or of a row cut before its type.
_BEGINNING = re.compile(r"\A\s*+(?:#|\d[\d_]*+(?:\s++\d*+(?:\s++\w*+)?)?$)")
# An empty line, or the text above and below the names of the columns.
_TITLES = re.compile(
    r"\A[#\s]*+(?:(?:out-of-place|in-place|\((?:B|elements|us|GB/s)\))(?:\s++|$))*+$"
)


@dataclass(frozen=True, slots=True)
class Other:
    """Any other line.

    `text` is without prefixes, `rank` that of a launcher's label. A line may name an nccl-tests
    program, and so a collective; a command line also says how many ranks it asks for.
    """

    text: str
    rank: int | None = None
    program: str | None = None
    command_ranks: int | None = None


Event = Row | Mark | Other
Events = list[Event]


class TableLineReader:
    """Read one line at a time.

    nccl-tests prints a row in three pieces, and NCCL's log goes to the same stream: another line
    may stand between two pieces, or be glued to one of them. What NCCL wrote is cut out; the pieces
    are joined until they are a row.
    """

    def __init__(self) -> None:
        self.layout: ColumnLayout | None = None
        self._pending = ""
        self._foreign = 0
        self._hosts: set[str] = set()
        self._in_place_only = False
        self._last_table_line = ""
        self._doubled = False
        self._command = ""  # the lines before this one that end in a backslash

    def feed(self, raw: str) -> Events:
        """Return the events of one line, in order; most lines have one."""
        text, rank = clean(raw)
        if " NCCL " not in text:
            return self._whole_line(text, rank)
        head, log = self._split(text)
        if not log:
            return self._whole_line(text, rank)
        return [*self._piece(head), Other(log, rank)]

    def restart(self) -> None:
        """Forget the table: what follows belongs to another sweep.

        The hosts that were seen are kept.
        """
        self.layout = None
        self._pending = ""

    def _split(self, text: str) -> tuple[str, str]:
        """Return the text before a line of NCCL's log that was glued to it, and that line."""
        match = _NCCL.search(text)
        if match is None:
            return text, ""
        head = text[: match.start()]
        cut = match.start()
        if match.start("host") == cut:  # no [time stamp] in between
            digits = _glued_digits(head, match["host"], self._hosts)
            if digits is None:
                self._pending = ""
                return "", text[cut:]
            cut += digits
        if not text[:cut].strip():
            self._learn_host(match["host"])
        return text[:cut], text[cut:]

    def _learn_host(self, host: str) -> None:
        if len(self._hosts) < _MAX_HOSTS:
            self._hosts.add(host)

    def _piece(self, head: str) -> Events:
        """Take a piece of a row that has no line end of its own.

        Only a row that agrees with itself is taken at once: the rest of its last number may follow.
        """
        if not head.strip():
            return []
        joined = self._pending + head
        row = read_row(joined, self.layout)
        if (
            isinstance(row, Row)
            and self.layout is not None
            and consistent(row, cpu_time=self._cpu_time)
        ):
            self._pending = ""
            return [row]
        if not self._pending and row == "no" and not _BEGINNING.match(head):
            return [Other(head)]
        self._hold(joined)
        return []

    def _whole_line(self, text: str, rank: int | None) -> Events:
        """Take a line that ends where the program ended it: it may complete the pieces held so
        far.
        """
        if self._pending.lstrip().startswith("#"):
            return self._complete_comment(text, rank)
        mark = read_mark(text, in_place_only=self._in_place_only)
        if mark is not None:
            return self._mark(mark, text)
        if self._pending and (joined := self._joined(text)):
            return [joined]
        row = read_row(text, self.layout)
        if isinstance(row, Row) and plausible(row, cpu_time=self._cpu_time):
            self._pending = ""
            is_copy = self._repeats(text) and (row.size or self._doubled)
            return [] if is_copy else [row]
        if row == "short":
            self._hold(text)
            return []
        piece = ""
        if row == "glued":
            piece = glued_piece(text)
        events = self._other(text[len(piece) :], rank)
        if piece:
            self._hold(piece)
        return events

    def _complete_comment(self, text: str, rank: int | None) -> Events:
        """Complete the held beginning of a header or footer line with this text, or read the text
        on its own.
        """
        held = self._pending
        self._pending = ""
        alone = read_mark(text) is not None
        mark = read_mark(held if alone else held + text)
        events: Events = []
        if mark is not None:
            events = self._mark(mark, held)
        if events and not alone:
            return events
        return events + self._whole_line(text, rank)

    def _mark(self, mark: Mark, text: str) -> Events:
        """Take a header or footer line; one that is printed twice counts once."""
        if self._repeats(text):
            self._doubled = self._doubled or isinstance(mark, ColumnLayout)
            return []
        self._pending = ""
        if isinstance(mark, ColumnLayout):
            self.layout = mark
            self._doubled = False
        elif isinstance(mark, Device):
            self._learn_host(mark.host)
        return [mark]

    def _other(self, text: str, rank: int | None) -> Events:
        """Take a line without nccl-tests output; too many of them mean that a held piece was not
        part of a row.
        """
        if self._pending:
            self._foreign += 1
            if self._foreign > _MAX_FOREIGN:
                self._pending = ""
        if _TITLES.match(text):
            if "in-place" in text:
                self._in_place_only = "out-of-place" not in text
            return []
        command = (self._command + text)[-4096:]
        self._command = ""
        if text.endswith("\\"):  # the next line goes on with the command
            self._command = command[:-1]
            return [Other(text, rank)]
        name = program(command)
        ranks = command_ranks(command) if name else None
        return [Other(text, rank, name, ranks)]

    def _joined(self, text: str) -> Row | None:
        """Return the row that the pieces held so far and this text make, if they make one."""
        for piece in (text, text.lstrip()):
            row = read_row(self._pending + piece, self.layout)
            if isinstance(row, Row) and consistent(row, cpu_time=self._cpu_time):
                self._pending = ""
                return row
        # The middle of a row is nothing but numbers.
        is_middle = len(text) < 200 and re.fullmatch(r"[\s\d.e+\-_N/A*naif]+", text)
        if is_middle and any(c.isdigit() for c in text):
            self._hold(self._pending + text)
        return None

    @property
    def _cpu_time(self) -> bool:
        """Whether the column of times is the CPU's, by which no rate can be told."""
        return self.layout is not None and self.layout.cpu_time

    def _hold(self, text: str) -> None:
        """Keep a piece for the next line, but none that is longer than any row."""
        self._pending = ""
        if len(text) <= _MAX_PENDING:
            self._pending = text
        self._foreign = 0

    def _repeats(self, text: str) -> bool:
        """Return whether this line of the table repeats the last one: output that reached the file
        twice.
        """
        same = text == self._last_table_line
        self._last_table_line = text
        return same


def _glued_digits(head: str, host: str, known: set[str]) -> int | None:
    """Return how many characters at the start of `host` belong to the row before it: `-1` and `0`
    stick to host names.

    None if a digit may be the row's or the host's and no other line of that host decides it.
    """
    if host in known:
        return 0
    endings = [len(name) for name in known if host.endswith(name) and len(name) < len(host)]
    if endings:
        return len(host) - max(endings)
    if not head.strip():
        return 0
    is_cut = head.endswith("-") and host.startswith("1")
    if is_cut or head.endswith("N/"):
        return 1
    if host[0].isdigit():
        return None
    return 0
