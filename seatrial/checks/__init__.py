"""What the checks mean: from what was seen on the nodes to verdicts, measurements, suspects. Nearly all of it pure."""

from seatrial.checks.reasons import REASONS

__all__ = ["REASONS"]
