"""Verdicts, measurements, results and nodes: plain data for every other package."""

from seatrial.model.reasons import REASONS

__all__ = ["REASONS"]
