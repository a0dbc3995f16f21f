"""The result of an mpirun: its output, how it ended, and the causes in its output. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.remote.ranks import rank_of
from seatrial.text.words import fraction

if TYPE_CHECKING:
    from seatrial.causes import Finding

FLOOD = "output flood: the ranks printed more than they may and were ended"


SSH_FAILED = 255  # the exit status of ssh without a session; it prints the reason


@dataclass(frozen=True, slots=True)
class Session:
    """A login by which mpirun started its daemon on a node: its output, and its exit status if it
    ended.
    """

    node: str
    lines: tuple[str, ...] = ()
    exit_status: int | None = None

    @property
    def failed(self) -> bool:
        """Whether the daemon failed, as opposed to the connection to its node."""
        return self.exit_status not in (None, 0, SSH_FAILED)


@dataclass(frozen=True, slots=True)
class MpiResult:
    """The result of an mpirun.

    `exit_status` is None if it was ended or did not start; `lines` are stdout and stderr in order,
    without the middle of very long output. `timed_out`: it exceeded its time limit. `reaped`: it
    had printed everything, then hung, and was ended; its output counts. `flooded`: it printed too
    much and was ended. `not_started`: the program that the head could not start, and why. `lost`:
    the connection to the head broke, so its end is unknown. `node_names` are by the address that
    mpirun uses, `rank_nodes` by rank. `waited_s`: how long a rank had waited for a processor at the
    time limit, if all nodes share one machine. `sessions`: the logins of mpirun's daemons that
    printed something or failed, if it failed. `unreported`: ranks that did not report themselves.
    `printed`: the number of characters by rank, if it flooded.
    """

    exit_status: int | None
    lines: tuple[str, ...]
    seconds: float
    timed_out: bool = False
    reaped: bool = False
    flooded: bool = False
    not_started: str | None = None
    lost: bool = False
    node_names: Mapping[str, str] = field(default_factory=dict)
    rank_nodes: tuple[str, ...] = ()
    waited_s: float = 0.0
    sessions: tuple[Session, ...] = ()
    unreported: tuple[int, ...] = ()
    printed: Mapping[int, int] = field(default_factory=dict)

    @property
    def silent_nodes(self) -> tuple[str, ...]:
        """The nodes of ranks that did not report themselves."""
        return tuple(
            dict.fromkeys(
                self.rank_nodes[rank] for rank in self.unreported if rank < len(self.rank_nodes)
            )
        )

    @property
    def flooders(self) -> tuple[Suspect, ...]:
        """The node whose ranks printed more than half of all output; empty if there is none.

        Unknown ranks are ignored.
        """
        by_node: Counter[str] = Counter()
        for rank, characters in self.printed.items():
            if rank < len(self.rank_nodes):
                by_node[self.rank_nodes[rank]] += characters
        for name, characters in by_node.most_common(1):
            total = by_node.total()
            if 2 * characters > total > 0:
                excess = f"its ranks printed {fraction(characters / total)} of all output"
                return (Suspect("node", name, 0.9, Reason.of("output-flood", excess=excess)),)
        return ()

    @property
    def starved(self) -> bool:
        """Whether it timed out because the machine that plays all nodes is too busy."""
        return self.timed_out and 2 * self.waited_s > self.seconds

    @property
    def ok(self) -> bool:
        return self.exit_status == 0 or self.reaped

    def by_rank(self) -> dict[int | None, list[str]]:
        """Return the lines of each rank, in order, with those of the launcher under None."""
        lines: dict[int | None, list[str]] = {}
        for line in self.lines:
            lines.setdefault(rank_of(line), []).append(line)
        return lines

    @property
    def findings(self) -> "tuple[Finding, ...]":
        """The causes in the output, with node names, the earliest primary one first.

        Output of a rank about other ranks and nodes counts as evidence about itself and its own
        node.
        """
        from seatrial.causes.classify import classify, weight

        by_rank = self.by_rank()
        rank_findings = [
            (rank, finding) for rank, lines in by_rank.items() for finding in classify(lines)
        ]
        if len(by_rank) > 1:  # otherwise they are in order already
            # Lines in the form in which the classifier quotes them
            quoted = [" ".join(line.split())[:300] for line in self.lines]
            at = {line: position for position, line in reversed(list(enumerate(quoted)))}
            rank_findings.sort(key=lambda each: at.get(each[1].evidence, 0))
        attributed = []
        for rank, finding in rank_findings:
            if rank is None:
                attributed.append(
                    replace(finding, host=self.node_names.get(finding.host or "", finding.host))
                )
            else:
                own = self.rank_nodes[rank] if rank < len(self.rank_nodes) else None
                attributed.append(replace(finding, rank=rank, host=own if finding.host else None))
        for session in self.sessions:
            attributed += [
                replace(finding, rank=None, host=session.node)
                for finding in classify(session.lines)
            ]
        return tuple(sorted(attributed, key=weight))

    def node_of(self, line: str) -> str | None:
        """Return the node of the rank that printed the line; None for a line without a tag."""
        rank = rank_of(line)
        return self.rank_nodes[rank] if rank is not None and rank < len(self.rank_nodes) else None

    @property
    def cause(self) -> str | None:
        """The earliest primary cause in the output, with its host, in one line; None if there is
        none.
        """
        if self.not_started is not None:
            return f"the head node cannot start {self.not_started}"
        if self.flooded:
            return FLOOD
        first = next(iter(self.findings), None)
        if first is None:
            return None
        return first.cause + (f" on {first.host}" if first.host else "")
