"""The table of causes that logs name, `causes.csv`, one line each; and the findings of them in a
log. Pure.

Columns of the table:
- `program`: who writes the line, which decides where in a line the pattern can stand
  (seatrial/causes/classify.py).
- `severity`: `fatal` ends a run and is its cause; `status` ends it and does not say why; `follows`
  is the consequence of something that stands elsewhere; a run survives a `note`.
- `who` is to blame: the `node` that the line names or that wrote it, the `peer` that the line names
  (never its writer), or the `setup` of the run, and no hardware.
- `code`, `cause` and `next_step`; of lines with one code the first has the last two.
- `needle`: a lower-case text that every match contains, looked for first because that is cheap.
- `pattern`: a regular expression, case-blind, with the groups `host`, `rank` and `detail`; the
  numbers of an Xid or SXid. Its time must be linear: a gap is bounded (`.{0,400}?`), and a run of
  characters begins only where one can.

Sources: Open MPI's help-*.txt (4.x ORTE, 5.x PRRTE), OpenSSH, Slurm, pyxis, MPICH's Hydra and PALS
as seen in logs; nccl-tests src/common.h and src/common.cu; NCCL src/debug.cc, src/transport,
src/init.cc; aws-ofi-nccl; torch's ProcessGroupNCCL and elastic; NVIDIA's catalog of Xids
(docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html).
"""

import csv
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from seatrial.model.explanations import Explanation, register

Severity = Literal["fatal", "status", "note", "follows"]
Who = Literal["node", "peer", "setup"]
UNKNOWN = "log-error"
WARNING = "log-warning"
TRACEBACK = "log-traceback"
MAX_EVIDENCE = 300
_MEANING = {
    "fatal": "The log names this cause.",
    "status": (
        "The log names a failure without its cause; the evidence is the nearest line that "
        "says more."
    ),
    "follows": "The log shows a consequence; its cause stands elsewhere, or was not printed.",
    "note": "The log shows an event that a run survives.",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """One line of the table."""

    severity: Severity
    who: Who
    code: str
    cause: str
    next_step: str
    program: str = ""
    needle: str = ""
    pattern: str = ""

    def found(self, text: str, host: str | None, rank: int | None) -> "Finding":
        """Return the finding of this cause in `text`, a line of a log."""
        return Finding(
            cause=self.cause,
            evidence=evidence_of(text),
            host=host,
            rank=rank,
            code=self.code,
            program=self.program,
            severity=self.severity,
            who=self.who,
            next_step=self.next_step,
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause that was found: `evidence` is the line (or the joined box of lines) that shows it,
    cut at 300 characters.

    `host` is the host to look at: the one that the line names, else the one that wrote it. `rank`
    is the rank that the line or its label names.
    """

    cause: str
    evidence: str
    host: str | None
    rank: int | None
    code: str
    program: str
    severity: Severity
    who: Who
    next_step: str

    @property
    def secondary(self) -> bool:
        """Whether the finding follows from another rank's death or another cause in the log."""
        return self.severity == "follows"

    @property
    def fatal(self) -> bool:
        """Whether the finding ends a run."""
        return self.severity != "note"

    @property
    def unknown(self) -> bool:
        """Whether the line calls itself an error and is in no line of the table."""
        return self.code in (UNKNOWN, WARNING)

    @property
    def of_class(self) -> bool:
        """Whether the finding ends a run, and only its class is known
        (seatrial/causes/warnings.py).
        """
        return self.program == "warning" and self.severity == "fatal"

    @property
    def place(self) -> str:
        """The cause, with the host and the rank where the log names them."""
        place = self.cause
        if self.host and not re.search(rf"(?<![\w.-]){re.escape(self.host)}(?![\w.-])", place):
            place += f" on {self.host}"
        return place if self.rank is None else f"{place} (rank {self.rank})"

    def __str__(self) -> str:
        return f"{self.place}: {self.evidence}"

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `seatrial judge --json` prints."""
        fields = ("code", "cause", "severity", "host", "rank", "evidence", "next_step")
        return {name: getattr(self, name) for name in fields}


def _read() -> tuple[Cause, ...]:
    """Return the table; a cause and its next step stand in the first line of its code."""
    with (Path(__file__).parent / "causes.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    first: dict[str, dict[str, str]] = {}
    for line in lines:
        known = first.setdefault(line["code"], line)
        line.update(
            cause=line["cause"] or known["cause"], next_step=line["next_step"] or known["next_step"]
        )
    return tuple(Cause(**line) for line in lines)  # type: ignore[arg-type]


CAUSES = _read()
# Of findings that are not in the table
OTHERS = {
    UNKNOWN: Cause(
        severity="note",
        who="node",
        code=UNKNOWN,
        cause="unclassified error",
        next_step="run journalctl --since=TIME on the node that wrote the line, from a minute before it",
    ),
    WARNING: Cause(
        severity="note",
        who="node",
        code=WARNING,
        cause="NCCL warns",
        next_step="run it again with NCCL_DEBUG=INFO: the lines before the warning name the call that "
        "failed",
    ),
    TRACEBACK: Cause(
        severity="status",
        who="node",
        code=TRACEBACK,
        cause="a Python program failed",
        next_step="run grep -n -m1 Traceback on the log of each rank: the earliest is the cause",
    ),
}
GENERIC = frozenset(cause.code for cause in CAUSES if cause.severity in ("status", "follows")) | {
    UNKNOWN,
    TRACEBACK,
}
XIDS = tuple(cause for cause in CAUSES if cause.program in ("xid", "sxid"))
REASONS = {
    cause.code: Explanation(
        template="{cause}: {evidence}", meaning=_MEANING[cause.severity], next_step=cause.next_step
    )
    for cause in reversed(CAUSES)
} | {
    UNKNOWN: Explanation(
        template="{cause}: {evidence}",
        meaning="A line calls itself an error.",
        next_step=OTHERS[UNKNOWN].next_step,
        formerly=("log-cause",),
    ),
    WARNING: Explanation(
        template="{cause}: {evidence}",
        meaning="NCCL printed a warning.",
        next_step=OTHERS[WARNING].next_step,
    ),
    TRACEBACK: Explanation(
        "{cause}: {evidence}",
        "A Python traceback ends with this line.",
        OTHERS[TRACEBACK].next_step,
    ),
}
register(REASONS)


def finding_of_class(
    about: str, severity: str, text: str, host: str | None, rank: int | None
) -> Finding:
    """Make the finding of a warning of NCCL that is in no line of the table, by its class."""
    row = next(row for row in CAUSES if row.program == "warning" and row.pattern == about)
    level: Severity = "fatal" if severity == "fatal" else "note"
    return replace(row.found(text, host, rank), severity=level)


def evidence_of(text: str) -> str:
    """Return a line as a finding quotes it."""
    return " ".join(text.split())[:MAX_EVIDENCE]
