"""What is kept of an output that may be endless."""

from collections import deque

_MOST_LINES, _MOST_CHARS = 100_000, 8 * 1024**2  # of the beginning and of the end each: bounds memory


class KeptLines:
    """The first and the last lines of an output that may be endless."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._head_chars = self._tail_chars = self._left_out = 0

    def add(self, line: str) -> None:
        if not self._tail and len(self._head) < _MOST_LINES and self._head_chars + len(line) <= _MOST_CHARS:
            self._head.append(line)
            self._head_chars += len(line)
            return
        self._tail.append(line)
        self._tail_chars += len(line)
        while len(self._tail) > _MOST_LINES or self._tail_chars > _MOST_CHARS:
            self._tail_chars -= len(self._tail.popleft())
            self._left_out += 1

    def kept(self) -> tuple[str, ...]:
        note = (f"[{self._left_out} lines are left out here; the log has them]",) if self._left_out else ()
        return (*self._head, *note, *self._tail)
