"""The command line: one module per command."""

from seatrial.runs import REASONS

__all__ = ["REASONS"]  # the codes that modules here raise
