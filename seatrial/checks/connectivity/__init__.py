"""The check `connectivity`: nodes answer, reach each other, run MPI, have the same software and carry traffic."""

from seatrial.checks.connectivity.reasons import REASONS

__all__ = ["REASONS"]
