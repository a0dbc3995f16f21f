"""The check `dcgm`: NVIDIA's own diagnostic of every GPU, `dcgmi diag`, where a suite asks for it.

A test that fails or warns is believed, and names its GPU. DCGM numbers GPUs by their PCI addresses,
as the inventory does.
"""

import shlex
import time

from pydantic import Field

from seatrial.checks.connectivity.check import CONNECTIVITY
from seatrial.checks.contract import (
    CheckContext,
    CheckType,
    PlannedNodes,
    PlannedPart,
    Problem,
    StepResult,
    concluded,
    sure,
    unanswered,
)
from seatrial.config.yamlfile import Strict
from seatrial.model.errors import MissingError, RemoteError
from seatrial.model.reason import Reason, placed
from seatrial.model.result import Suspect
from seatrial.model.testbed import Node, Testbed
from seatrial.model.verdict import Verdict
from seatrial.readers.dcgm import Diagnosis, read_diagnoses
from seatrial.remote.answers import printable
from seatrial.remote.command import run_command
from seatrial.remote.ssh import answered, connected, on_each
from seatrial.text.lines import last_line

_NAME = "dcgm"
# Estimated duration on a node with eight GPUs, by level
_ABOUT_S = {1: 10.0, 2: 120.0, 3: 1200.0, 4: 5400.0}
_MOST_REASONS = 3
_REMEDY = "install datacenter-gpu-manager in the image, and start nv-hostengine"


class Dcgm(Strict):
    """`dcgmi diag` on every node at once; DCGM and its nv-hostengine must be there."""

    level: int = Field(
        1,
        ge=1,
        le=4,
        description="of `dcgmi diag -r`: 1 seconds, 2 minutes, 3 half an hour, 4 two hours",
    )
    timeout_s: float = Field(
        10_800, gt=0, le=86_400, description="seconds for all GPUs of one node"
    )


def dcgm(context: CheckContext) -> StepResult:
    """Run the diagnostic on all nodes. Raises MissingError if no node has it."""
    started = time.monotonic()
    testbed = context.testbed
    section = context.section(Dcgm)
    answers = on_each(testbed.nodes, lambda node: diagnose(testbed, node, section))
    failed = unanswered(answers)
    if len(failed) == len(answers):
        raise MissingError(next(iter(failed.values())))
    done = answered(answers)
    problems = [
        problem
        for name, tests in done.items()
        for test in tests
        for problem in _problems(name, test)
    ]
    problems += [Problem(Verdict.INCONCLUSIVE, placed(*each)) for each in failed.items()]
    passed = Reason.of("dcgm-passed", tests=sum(map(len, done.values())), nodes=len(answers))
    return StepResult(
        concluded(_NAME, problems, passed, started, most_reasons=_MOST_REASONS), testbed
    )


def _problems(node: str, test: Diagnosis) -> list[Problem]:
    """Return a problem for each GPU that the test names, or for the node if it names none; empty
    for a pass.
    """
    if test.verdict is Verdict.PASS:
        return []
    evidence = Reason.of("tool-says-bad", tool="dcgmi diag", what=test.words)
    confidence = 0.95 if test.verdict is Verdict.FAIL else 0.7
    gpus = [f"{node}/gpu-{number}" for number in test.gpus]
    suspects = [Suspect("gpu", gpu, confidence, evidence) for gpu in gpus]
    suspects = suspects or sure({node: evidence}, confidence)
    return [Problem.of(test.verdict, suspect) for suspect in suspects]


def diagnose(testbed: Testbed, node: Node, section: Dcgm) -> list[Diagnosis]:
    """Return the results of the diagnostic on one node.

    Raises RemoteError with DCGM's message if there are none.
    """
    command = shlex.join(["dcgmi", "diag", "-r", str(section.level), "-j"])
    with connected(testbed, node, 30) as transport:
        done = run_command(transport, command, timeout_s=section.timeout_s)
    if done.exit_status == 127:  # the shell did not find it
        raise RemoteError.of(
            "program-missing", program="dcgmi", where=f"on {node.name}", remedy=_REMEDY
        )
    problem = f"no end within {section.timeout_s:g} s"
    if not done.timed_out:
        results = read_diagnoses(done.output)
        if results:
            return results
        problem = printable(last_line(done.output)) or "nothing was printed"
    raise RemoteError.of("dcgm-failed", problem=problem)


def _plan(section: Dcgm, nodes: PlannedNodes) -> list[PlannedPart]:
    about_s = min(_ABOUT_S[section.level], section.timeout_s)
    what = f"dcgmi diag -r {section.level} on every node"
    return [PlannedPart(what, about_s, section.timeout_s)]


DCGM = CheckType(
    name=_NAME,
    section=Dcgm,
    description="NVIDIA's `dcgmi diag`",
    run=dcgm,
    after=CONNECTIVITY.name,
    metrics={},
    plan=_plan,
)
