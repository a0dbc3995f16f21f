"""When: one module per Prefect flow."""

from seatrial.runs import REASONS

__all__ = ["REASONS"]  # the codes that modules here raise
