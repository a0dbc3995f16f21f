"""The check `collectives`: sweep each operation over every rank; are the results right, and how fast do they come?"""

from seatrial.checks.collectives.reasons import REASONS

__all__ = ["REASONS"]
