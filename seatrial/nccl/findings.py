"""A cause of failure as the log tells it."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["network", "gpu", "system", "config", "software", "launcher", "hang", "remote", "unknown"]


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing to look for.

    `needle` is a lower-case text that every match contains: it is looked for first because that is cheap. `fatal` says
    that a run does not survive it; `secondary` that it follows from something that went wrong elsewhere. `pattern` is a
    regular expression, case-blind; its groups `host`, `rank` and `detail` are kept. Its time must be linear: a gap is
    bounded (`.{0,400}`), a run of characters begins only where one can (`(?<!...)`) and is not given back (`++`).
    """

    kind: Kind
    cause: str
    needle: str
    pattern: str
    next_step: str
    fatal: bool = True
    secondary: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause that was found: `evidence` is the line (or the joined box of lines) that shows it, cut at 300 characters.

    `secondary` findings follow from another rank's death or from a cause that stands elsewhere in the log; a run
    goes on in spite of one that is not `fatal`. `rank` is the one that the line or its label names.
    """

    kind: Kind
    cause: str
    evidence: str
    host: str | None
    rank: int | None
    secondary: bool
    next_step: str
    fatal: bool = True

    def __str__(self) -> str:
        where = f" on {self.host}" if self.host else ""
        where += f" (rank {self.rank})" if self.rank is not None else ""
        return f"{self.cause}{where}: {self.evidence}"
