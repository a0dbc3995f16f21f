"""What a run is about: verdicts, measurements, results, nodes. Plain data that every other package may use."""

from seatrial.model.reasons import REASONS

__all__ = ["REASONS"]
