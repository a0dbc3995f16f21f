"""The state of a campaign: its phases so far, the time that counts, and the nodes that were left
out. Pure.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Row

from seatrial.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class PhaseRun:
    """One run of a phase. `verdict` is None while it is at work, or if it was killed.

    `began_s` is the time of the campaign, and `seconds` is how long nodes were up, by a clock that
    does not jump.
    """

    suite: str
    run_id: str
    began_s: float
    seconds: float = 0.0
    verdict: Verdict | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A node that later phases leave out, from `since_s` of the campaign on, because of run
    `run_id`.
    """

    node: str
    run_id: str
    since_s: float
    code: str | None = None


@dataclass(frozen=True, slots=True)
class CampaignState:
    """A campaign over a cluster.

    `plan` is a digest of its suite, and `seen` is when it was last at work.
    """

    campaign_id: str
    cluster: str
    suite: str
    plan: str
    goal_s: float
    started: datetime
    seen: datetime
    ended: bool = False
    phases: tuple[PhaseRun, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def spent_s(self) -> float:
        """How long nodes were up."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def is_over(self) -> bool:
        return self.spent_s >= self.goal_s

    @property
    def counted(self) -> list[PhaseRun]:
        """The phases whose nodes were up."""
        return [phase for phase in self.phases if phase.verdict is not None and phase.seconds]

    def begin(self, suite: str, run_id: str) -> "CampaignState":
        """Return the state with another phase at work."""
        return replace(self, phases=(*self.phases, PhaseRun(suite, run_id, self.spent_s)))

    def end(self, phase: PhaseRun, lost: Sequence[LeftOut]) -> "CampaignState":
        """Return the state with the result of the phase at work, and further nodes left out."""
        return replace(self, phases=(*self.phases[:-1], phase), left_out=(*self.left_out, *lost))

    def to_dict(self) -> dict[str, Any]:
        """Return the state as `seatrial status --json` prints it."""
        times = {
            name: getattr(self, name).isoformat(timespec="seconds") for name in ("started", "seen")
        }
        return {**asdict(self), **times, "spent_s": self.spent_s}

    def lines(self) -> list[str]:
        """Return the lines that `seatrial status` shows."""
        hours = self.spent_s / 3600
        goal = self.goal_s / 3600
        where = "ended" if self.ended else f"hour {hours:.2f} of {goal:.2f}"
        lines = [f"campaign {self.suite}: {where}, {len(self.counted)} phases"]
        if self.phases:
            last = self.phases[-1]
            state = last.verdict.value if last.verdict else "at work"
            lines.append(f"last phase: {last.suite} (run {last.run_id}) {state}")
        lines += [
            (
                f"left out: {out.node} since hour {out.since_s / 3600:.2f}, "
                f"{out.code or 'broken'} (run {out.run_id})"
            )
            for out in self.left_out
        ]
        return lines


def campaign_of(row: Row[Any]) -> CampaignState:
    """Return the state of a row, whose phases and nodes are JSON."""
    return TypeAdapter(CampaignState).validate_python(dict(row._mapping))
