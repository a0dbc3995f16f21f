"""The section `devices` of a suite file."""

from pydantic import Field

from seatrial.config.yamlfile import Strict


class Devices(Strict):
    """Matrix multiplication, memory copy and a search for wrong results on every GPU, or on a node's processors."""

    seconds: float = Field(0.3, gt=0, le=600, description="seconds for each measurement of a device")
    rounds: int = Field(
        1, ge=1, le=100_000, description="rounds of the search for silent corruption, each with other data"
    )
    timeout_s: float = Field(120, gt=0, description="seconds for all devices of one node")
