"""Nodes as network namespaces on this machine, each with its own host name, hosts file and real sshd."""

from seatrial.platforms.local.reasons import REASONS

__all__ = ["REASONS"]
