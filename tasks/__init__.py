"""What: one module per step of the chain."""

from seatrial.runs import REASONS

__all__ = ["REASONS"]  # the codes that modules here raise
