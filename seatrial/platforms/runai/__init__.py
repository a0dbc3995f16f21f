"""RunAI: nodes as the pods of one workload, by the command runai."""

from seatrial.platforms.runai.reasons import REASONS

__all__ = ["REASONS"]
