"""Nodes as the steps of one job of Slurm."""

from seatrial.platforms.slurm.reasons import REASONS

__all__ = ["REASONS"]
