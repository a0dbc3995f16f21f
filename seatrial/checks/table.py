"""Every check, in the order that a run tries them."""

from seatrial.checks.collectives.check import COLLECTIVES
from seatrial.checks.connectivity.check import CONNECTIVITY
from seatrial.checks.contract import CheckType
from seatrial.checks.devices.check import DEVICES
from seatrial.checks.training.check import TRAINING

CHECKS: tuple[CheckType, ...] = (CONNECTIVITY, DEVICES, COLLECTIVES, TRAINING)
