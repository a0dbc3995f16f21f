"""The section `connectivity` of a suite file."""

from pydantic import Field

from seatrial.config.yamlfile import Strict


class Connectivity(Strict):
    """How long nodes have to answer, and how far their clocks may be apart."""

    timeout_s: float = Field(30, gt=0, le=600, description="seconds for one node, or one pair, to answer")
    max_clock_skew_s: float = Field(1.0, gt=0, description="seconds between a node's clock and the median node's")
