"""Sea trials for GPU clusters."""

# It registers the kinds of platforms that a cluster file may name
from seatrial import platforms as platforms

__version__ = "0.1.0"
