"""Lines of the ranks' output with the rank that printed each. Pure.

Rank 0 of an mpirun has a pipe of its own (seatrial/remote/shell/rank.sh). mpirun --tag-output (Open
MPI 4 and 5) begins each line of another rank with [1,3]<stdout>: and srun --label with 3: on the
head. The first tag is the launcher's, so no rank can print lines in the name of another. Open MPI 4
appends what others print to a line that a rank has not ended; those words are lost. It reads a few
KiB at once, so a longer line repeats its tag.

Each rank reports itself first, on a line of its own: a rank without that line took no part.
"""

import re
from collections.abc import Iterable, Iterator

_BY_MPIRUN = r"\[[^\[\],]{1,64},(\d{1,9})\]<std(out|err|diag)>:"
_TAG = re.compile(rf"{_BY_MPIRUN}| *(\d{{1,9}}):(?: |$)")
_REPORT = re.compile(r"seatrial-rank: (\d{1,9}) on (\S{1,253})")
# Bytes of a line after one label (MAX_MSG_LEN in Slurm's source); the rest gets another label
_SRUN_BYTES = 1024


class RankLine(str):
    """A line without its tag; `rank` has printed it, or the launcher if None."""

    rank: int | None = None

    def __new__(cls, text: str, rank: int | None) -> "RankLine":
        line = super().__new__(cls, text)
        line.rank = rank
        return line


class SrunLines:
    """Joins lines of ranks that srun --label prints in pieces."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[str]] = {}

    def whole(self, line: str) -> str | None:
        """Return the line joined with its earlier pieces; None if more pieces follow."""
        tag = _TAG.match(line)
        if not tag or not tag[3]:
            return line
        rank = int(tag[3])
        words = line[tag.end() :]
        pieces = self._pieces.pop(rank, [])
        pieces.append(words if pieces else line)
        if len(words.encode(errors="replace")) != _SRUN_BYTES:
            return "".join(pieces)
        self._pieces[rank] = pieces
        return None

    def unended(self) -> Iterator[str]:
        """Yield the last lines of ranks, which lack a line end."""
        yield from ("".join(pieces) for pieces in self._pieces.values())


def rank_line(line: str, rank: int | None = None) -> RankLine:
    """Return the line without its tag, with the tag's rank; with `rank` if it continues that rank's
    line.
    """
    if isinstance(line, RankLine):
        return line
    tag = _TAG.match(line) if rank is None else None
    if tag is None:
        return RankLine(line, rank)
    words = line[tag.end() :]
    if tag[2]:
        words = words.replace(tag[0], "").removeprefix(" ")  # Open MPI 5 has a space behind the tag
    return RankLine(words, int(tag[1] or tag[3]))


def reported_rank(line: RankLine) -> int | None:
    """Return the rank that reports itself in `line`; None in other lines."""
    report = _REPORT.fullmatch(line)
    return line.rank if report and line.rank == int(report[1]) else None


def rank_of(line: str) -> int | None:
    """Return the rank that has printed a line; None for the launcher, and for lines without
    tags.
    """
    return line.rank if isinstance(line, RankLine) else None


def from_rank_0(lines: Iterable[str]) -> Iterator[str]:
    """Return the lines of rank 0, which prints tables and summaries."""
    return (line for line in lines if rank_of(line) == 0)


def says_own_end(match: re.Match[str]) -> bool:
    """Return whether the line comes from the rank that it names or from the launcher; true if it
    names none.
    """
    named = match["rank"]
    return named is None or not named.isdecimal() or rank_of(match.string) in (int(named), None)
