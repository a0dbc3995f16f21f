"""Every check, in the order that a run tries them, and what a run does without."""

from seatrial.checks.collectives.check import COLLECTIVES
from seatrial.checks.connectivity.check import CONNECTIVITY
from seatrial.checks.contract import CheckType
from seatrial.checks.devices.check import DEVICES
from seatrial.checks.training.check import TRAINING
from seatrial.config.run import Run
from seatrial.model.reason import Reason

CHECKS: tuple[CheckType, ...] = (CONNECTIVITY, DEVICES, COLLECTIVES, TRAINING)


def left_out(kind: CheckType, run: Run) -> str | None:
    """Why the run does without a check of its suite: a single GPU has no other one to exchange data with.

    Only where another check of the suite measures that GPU: a pass needs something that was measured.
    """
    if run.cluster.nodes * run.cluster.gpus != 1 or run.cluster.slots >= kind.least_ranks:
        return None
    others = (each for each in CHECKS if each.after == kind.after and each.least_ranks == 1)
    measured = any(run.suite.section(each.section) for each in others)
    return Reason.of("single-gpu", check=kind.name) if measured else None
