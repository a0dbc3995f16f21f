"""Reach nodes: SSH, MPI, and the probes that run there."""

from seatrial.remote.reasons import REASONS

__all__ = ["REASONS"]
