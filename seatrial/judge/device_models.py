"""Whether the GPUs that a log names are those of the hardware that it is said to be of. Pure."""

import re
from collections.abc import Iterable

from seatrial.model.reason import Reason
from seatrial.nccl import Device

# The longer names first: a GB200 is no B200, and a GH200 no H200.
_MODEL = re.compile(r"\b(GB300|GB200|GH200|B300|B200|H200|H100|H20|A100|V100|MI\d{3}[AX]?)\b")


def other_model(hardware: str, devices: Iterable[Device]) -> str | None:
    """Which other GPUs the log names; None where they fit, or where either name says nothing."""
    required = _MODEL.search(hardware)
    names = {device.name: match[1] for device in devices if (match := _MODEL.search(device.name))}
    others = sorted(name for name, model in names.items() if required and model != required[1])
    return Reason.of("log-of-other-gpu", others=others[0], hardware=hardware) if others else None
