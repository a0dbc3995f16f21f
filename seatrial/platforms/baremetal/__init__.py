"""Bare metal: hosts that are up, each with one more sshd for the time of a run."""

from seatrial.platforms.baremetal.reasons import REASONS

__all__ = ["REASONS"]
