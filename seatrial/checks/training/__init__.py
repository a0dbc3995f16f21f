"""The check `training`: train a small transformer over every rank; does it learn, and do all ranks end alike?"""

from seatrial.checks.training.reasons import REASONS

__all__ = ["REASONS"]
