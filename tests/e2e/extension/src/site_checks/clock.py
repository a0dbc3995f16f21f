"""The check `clock`: how far the clocks of nodes are from this machine's."""

import time

from pydantic import Field

from seatrial.checks.contract import CheckContext, CheckType, StepResult
from seatrial.checks.metrics import Metric
from seatrial.config.yamlfile import Strict
from seatrial.model.explanations import Explanation, register
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.remote.command import run_command
from seatrial.remote.ssh import connected

register(
    {"site-clocks-read": Explanation("the clocks of {nodes} nodes are right", "All clocks agree.")}
)


class Clock(Strict):
    """The time of day on every node."""

    most_s: float = Field(60, gt=0, description="seconds that a clock may be off")


def clock(context: CheckContext) -> StepResult:
    """Ask each node for its time. Raises RemoteError."""
    section, measured = context.section(Clock), []
    for node in context.testbed.nodes:
        with connected(context.testbed, node, 30) as transport:
            answer = run_command(transport, "date +%s", timeout_s=30)
        off = abs(time.time() - float(answer.output))
        measured.append(
            Measurement("clock_offset", off, "s", Subject("node", node.name), better=None)
        )
    right = all(m.value <= section.most_s for m in measured)
    reason = Reason.of("site-clocks-read", nodes=len(measured))
    verdict = Verdict.PASS if right else Verdict.FAIL
    return StepResult(
        Check("clock", verdict, reason, measurements=tuple(measured)), context.testbed
    )


CLOCK = CheckType(
    name="clock",
    section=Clock,
    description="the time on nodes; of every suite",
    run=clock,
    after="connectivity",
    default=Clock(),
    metrics={"clock_offset": Metric("s", "how far a node's clock is off; recorded, not judged")},
)
