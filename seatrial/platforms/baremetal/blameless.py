"""Why a node that went silent is not to blame."""

import time
from pathlib import Path

from seatrial.model.reason import Reason
from seatrial.platforms.baremetal.answers import HostAddress
from seatrial.platforms.baremetal.config import BaremetalPlatform
from seatrial.platforms.baremetal.ending import deadline_of
from seatrial.platforms.baremetal.hosts import Hosts


def blameless_reason(hosts: Hosts, folder: Path, settings: BaremetalPlatform, node: HostAddress) -> str | None:
    """Its deadline is over, or the jump host before it is gone; None where the node itself is silent."""
    if time.time() > deadline_of(folder) - settings.start_timeout_s:
        return Reason.of("baremetal-deadline", deadline_s=settings.deadline_s)
    jump = hosts.first_jump(node.name) if node.proxied else None
    problem = hosts.why_silent(jump) if jump else None
    return Reason.of("baremetal-jump-silent", jump=jump, problem=problem) if problem else None
