"""What a measurement should be, and where that is known from: one module per source, each a pure function over data."""

from seatrial.model.baseline import Baseline, Source

__all__ = ["Baseline", "Source"]
