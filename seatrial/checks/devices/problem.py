"""What is wrong with nodes and devices, and whose fault it is."""

from dataclasses import dataclass

from seatrial.model.reason import placed
from seatrial.model.result import Suspect
from seatrial.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Problem:
    """A verdict, the reason for it, and who is to blame, if anybody is."""

    verdict: Verdict
    reason: str
    suspect: Suspect | None = None

    @classmethod
    def of(cls, verdict: Verdict, suspect: Suspect) -> "Problem":
        """That of a node or a device; the reason is the evidence against it."""
        return cls(verdict, placed(suspect.name, suspect.evidence), suspect)
