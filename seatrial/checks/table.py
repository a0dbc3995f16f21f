"""All checks, in the order in which a run tries them, their repeats and judgements.

The tolerances are explained in docs/decisions/0002-judging-with-few-samples.md.
"""

import logging
import math
from typing import Any

from seatrial.checks.collectives.check import COLLECTIVES
from seatrial.checks.collectives.section import Collectives
from seatrial.checks.connectivity.check import CONNECTIVITY
from seatrial.checks.contract import CheckContext, CheckType, Repeated, TimeLeft, too_small
from seatrial.checks.dcgm import DCGM
from seatrial.checks.devices.check import DEVICES
from seatrial.checks.metrics import Doubt, Doubts, add_metrics
from seatrial.checks.rdma.check import RDMA
from seatrial.checks.storage.check import STORAGE
from seatrial.checks.training.check import TRAINING
from seatrial.config.run import Run, Suite
from seatrial.model.errors import SeatrialError
from seatrial.model.reason import Reason
from seatrial.model.setup import INTRA, arm_of
from seatrial.model.testbed import Testbed
from seatrial.system.extensions import loaders, usable

log = logging.getLogger("seatrial.repeat")

_OWN = (CONNECTIVITY, DCGM, DEVICES, RDMA, STORAGE, COLLECTIVES, TRAINING)
_TAKEN = {*Suite.model_fields, "campaign", "launch", "localize", *(kind.name for kind in _OWN)}


def _accepted(name: str, check: Any) -> CheckType:
    """Return a check of another package. Raises ValueError if it is not valid."""
    if (
        not isinstance(check, CheckType)
        or check.name != name
        or name in _TAKEN
        or not name.isidentifier()
    ):
        raise ValueError(
            "must be a CheckType with the name of the entry point, a-z and _, which is not taken"
        )
    if check.after != CONNECTIVITY.name:
        raise ValueError(f"after: must be {CONNECTIVITY.name}, is {check.after}")
    add_metrics(check.metrics)
    return check


CHECKS: tuple[CheckType, ...] = (*_OWN, *usable(loaders("seatrial.checks", _accepted)).values())


def left_out(kind: CheckType, run: Run) -> Reason | None:
    """Return the reason to leave out a check of the suite; None if it runs.

    A check that exchanges data is left out on a single GPU, if another check of the suite measures
    that GPU, since a pass needs a measurement.
    """
    section = run.suite.section(kind.section)
    cluster = run.cluster
    if isinstance(section, Collectives):
        planned = section.sweeps(nodes=cluster.nodes, slots=cluster.slots, gpus=bool(cluster.gpus))
        if not planned:
            return Reason.of("nothing-to-sweep", check=kind.name, arms=", ".join(section.arms))
    if cluster.nodes * cluster.gpus != 1 or cluster.slots >= kind.least_ranks:
        return None
    others = (each for each in CHECKS if each.after == kind.after and each.least_ranks == 1)
    measured = any(run.suite.section(each.section) for each in others)
    return Reason.of("single-gpu", check=kind.name) if measured else None


def repeat_checks(
    context: CheckContext, doubts: Doubts, until: float = math.inf
) -> dict[str, Repeated]:
    """Repeat the doubtful measurements until the time `until`; return the repeats by check."""
    by_check: dict[str, Repeated] = {}
    kinds = {kind.name: kind for kind in CHECKS}
    left = TimeLeft(until)
    for name, doubted in doubts.items():
        kind = kinds[name]
        repeated = by_check.setdefault(name, Repeated())
        comparable = [doubt for doubt in doubted if _compares(doubt, context.testbed)]
        if kind.repeat is None or not comparable or left.over:
            continue
        if too_small(context.run, context.testbed, kind.least_ranks):
            continue
        try:
            kind.repeat(context, comparable, repeated, left)
        except SeatrialError as error:
            log.warning("%s cannot be repeated: %s", name, error)
        series = {doubt.measurement.series() for doubt in comparable}
        repeated.measurements = [m for m in repeated.measurements if m.series() in series]
        if repeated.over:
            break
    return by_check


def _compares(doubt: Doubt, testbed: Testbed) -> bool:
    """Return whether the testbed still has the ranks of the measurement; with fewer, values are not
    comparable.
    """
    m = doubt.measurement
    if arm_of(m) == INTRA:  # measured on the ranks of one node
        return m.subject.name in testbed.names
    return m.conditions.get("ranks", testbed.world_size) == testbed.world_size
