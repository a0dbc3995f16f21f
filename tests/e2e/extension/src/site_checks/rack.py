"""The platform `rack`, whose node is this machine; nodes of a real one would come from somewhere
else.
"""

from typing import Literal

from pydantic import Field

from seatrial.platforms.baremetal import ThisMachinePlatform


class RackPlatform(ThisMachinePlatform):
    """A machine of one rack."""

    kind: Literal["rack"] = Field(description="a machine of one rack")  # type: ignore[assignment]
    row: int = Field(1, ge=1, description="the rack's row")
