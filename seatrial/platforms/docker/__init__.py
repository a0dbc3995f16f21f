"""Docker: containers of one host as nodes."""

from seatrial.platforms.docker.reasons import REASONS

__all__ = ["REASONS"]
