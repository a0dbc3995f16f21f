"""The Prefect flows, one module each."""

from seatrial.runs import REASONS

__all__ = ["REASONS"]  # the codes that modules here raise
