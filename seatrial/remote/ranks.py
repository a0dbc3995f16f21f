"""Lines of the ranks' output with the rank that printed each, as the launcher's own tags say. Pure.

mpirun --tag-output (Open MPI 4 and 5) begins each line with [1,3]<stdout>: and srun --label with 3: on the head. So no
node speaks for another: a rank that prints a tag has its own in front. A line that a rank has not ended may go on with
the tag and the words of another. The rank may have printed these itself, so they are left out. With the same tag again
its own line goes on: mpirun reads 2,048 bytes at once.
"""

import re
from collections.abc import Iterable, Iterator

_BY_MPIRUN = r"\[[^\[\],]{1,64},(\d{1,9})\]<std(out|err|diag)>:"
_TAG = re.compile(rf"{_BY_MPIRUN}| *(\d{{1,9}}):(?: |$)")
_WITHIN = re.compile(_BY_MPIRUN)
_SRUN_BYTES = 1024  # of a line behind one label (MAX_MSG_LEN in Slurm's source); the rest has a label of its own


class RankLine(str):
    """A line without its tag; `rank` has printed it, or the launcher if None."""

    rank: int | None = None

    def __new__(cls, text: str, rank: int | None) -> "RankLine":
        line = super().__new__(cls, text)
        line.rank = rank
        return line


class SrunLines:
    """The lines of ranks that srun --label has printed in pieces."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[str]] = {}

    def whole(self, line: str) -> str | None:
        """Return the line, with the pieces before it; None if it is a piece that goes on."""
        tag = _TAG.match(line)
        if not tag or not tag[3]:
            return line
        rank, words = int(tag[3]), line[tag.end() :]
        pieces = self._pieces.pop(rank, [])
        pieces.append(words if pieces else line)
        if len(words.encode(errors="replace")) != _SRUN_BYTES:
            return "".join(pieces)
        self._pieces[rank] = pieces
        return None

    def unended(self) -> Iterator[str]:
        """Yield what no rank has ended."""
        yield from ("".join(pieces) for pieces in self._pieces.values())


def split_tags(line: str, rank: int | None = None) -> Iterator[RankLine]:
    """The words of the rank whose tag `line` has, or of `rank` if it is the next piece of a longer line."""
    tag = _TAG.match(line) if rank is None else None
    stream = tag[2] if tag else None
    if tag:
        rank = int(tag[1] or tag[3])
        line = line[tag.end() :]
    if rank is None:
        yield RankLine(line, None)
        return
    space = " " if stream and line.startswith(" ") else ""  # of Open MPI 5, behind each tag
    words, *others = _WITHIN.split(line.removeprefix(space))
    for speaker, other, text in zip(others[::3], others[1::3], others[2::3], strict=True):
        if int(speaker) == rank and other == stream:
            words += text.removeprefix(space)
        elif int(speaker) == rank:
            yield RankLine(words, rank)
            words, stream = text.removeprefix(" "), other
    yield RankLine(words, rank)


def rank_of(line: str) -> int | None:
    """The rank that has printed a line; None for the launcher, and for lines without tags."""
    return line.rank if isinstance(line, RankLine) else None


def is_from(line: str, rank: int) -> bool:
    """Whether `rank`, or the launcher, has printed a line."""
    return rank_of(line) in (rank, None)


def from_rank_0(lines: Iterable[str]) -> Iterator[str]:
    """The lines of the rank that prints tables and summaries, and of the launcher."""
    return (line for line in lines if is_from(line, 0))


def says_own_end(match: re.Match[str]) -> bool:
    """Whether the rank that the match names has printed the line, or the launcher; without a rank, anybody may have."""
    named = match["rank"]
    return named is None or not named.isdecimal() or is_from(match.string, int(named))
