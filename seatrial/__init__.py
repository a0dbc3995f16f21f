"""Sea trials for GPU clusters."""

from seatrial import platforms as platforms  # it registers the kinds of platforms that a cluster file may name

__version__ = "0.1.0"
