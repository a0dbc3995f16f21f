"""Steps of the chain as Prefect tasks."""

from seatrial.runs import REASONS

__all__ = ["REASONS"]  # the codes that modules here raise
