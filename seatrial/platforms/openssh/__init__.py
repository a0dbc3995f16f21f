"""The system's own ssh, for platforms that log in to machines: its settings, its configuration, its errors."""

from seatrial.platforms.openssh.reasons import REASONS

__all__ = ["REASONS"]
