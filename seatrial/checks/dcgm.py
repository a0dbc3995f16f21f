"""The check `dcgm`: NVIDIA's own diagnostic of every GPU, `dcgmi diag`, where a suite asks for it.

A test that fails or warns is believed, and names its GPU. DCGM numbers GPUs by their PCI addresses, as the inventory
does.
"""

import shlex
import time

from pydantic import Field

from seatrial.checks.connectivity.check import CONNECTIVITY
from seatrial.checks.contract import CheckContext, CheckType, PlannedNodes, PlannedPart, StepResult
from seatrial.config.yamlfile import Strict
from seatrial.model.errors import MissingError, RemoteError
from seatrial.model.reason import Reason, join, placed, uncoded
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Node, Testbed
from seatrial.model.verdict import Verdict, worst
from seatrial.readers.dcgm import Diagnosis, read_diagnoses
from seatrial.remote.answers import printable
from seatrial.remote.command import run_command
from seatrial.remote.ssh import connected, on_each
from seatrial.text.lines import last_line

_NAME = "dcgm"
_ABOUT_S = {1: 10.0, 2: 120.0, 3: 1200.0, 4: 5400.0}  # of a node with eight GPUs, by level
_REMEDY = "install datacenter-gpu-manager in the image, and start nv-hostengine"


class Dcgm(Strict):
    """`dcgmi diag` on every node at once; DCGM and its nv-hostengine must be there."""

    level: int = Field(
        1, ge=1, le=4, description="of `dcgmi diag -r`: 1 seconds, 2 minutes, 3 half an hour, 4 two hours"
    )
    timeout_s: float = Field(10_800, gt=0, le=86_400, description="seconds for all GPUs of one node")


def dcgm(context: CheckContext) -> StepResult:
    """Run the diagnostic on all nodes. Raises MissingError if no node has it."""
    started, testbed, section = time.monotonic(), context.testbed, context.section(Dcgm)
    answers = on_each(testbed.nodes, lambda node: diagnose(testbed, node, section))
    failed = {name: answer.reason for name, answer in answers.items() if isinstance(answer, RemoteError)}
    if len(failed) == len(answers):
        raise MissingError(next(iter(failed.values())))
    done = {name: answer for name, answer in answers.items() if not isinstance(answer, RemoteError)}
    results = [(name, each) for name, diagnoses in done.items() for each in diagnoses]
    suspects: list[Suspect] = []  # each GPU that a test names, and the node for a test that names none
    for name, each in results:
        if each.verdict is Verdict.PASS:
            continue
        evidence = Reason.of("tool-says-bad", tool="dcgmi diag", what=each.words)
        confidence = 0.95 if each.verdict is Verdict.FAIL else 0.7
        suspects += [Suspect("gpu", f"{name}/gpu-{number}", confidence, evidence) for number in each.gpus]
        if not each.gpus:
            suspects.append(Suspect("node", name, confidence, evidence))
    verdicts = [*(each.verdict for _, each in results), *(Verdict.INCONCLUSIVE for _ in failed)]
    bad = [
        *(placed(suspect.name, suspect.evidence) for suspect in suspects),
        *(placed(*each) for each in failed.items()),
    ]
    good = uncoded(f"{len(results)} tests of {len(answers)} nodes without a fault")
    check = Check(_NAME, worst(verdicts), join(bad[:3]) or good, time.monotonic() - started, suspects=tuple(suspects))
    return StepResult(check, testbed)


def diagnose(testbed: Testbed, node: Node, section: Dcgm) -> list[Diagnosis]:
    """Return the results on one node. Raises RemoteError if there are none, with DCGM's own words."""
    command = shlex.join(["dcgmi", "diag", "-r", str(section.level), "-j"])
    with connected(testbed, node, 30) as transport:
        done = run_command(transport, command, timeout_s=section.timeout_s)
    if done.exit_status == 127:  # the shell did not find it
        where = f"on {node.name}"
        raise RemoteError(Reason.of("program-missing", program="dcgmi", where=where, remedy=_REMEDY))
    if done.timed_out:
        raise RemoteError(Reason.of("dcgm-failed", problem=f"no end within {section.timeout_s:g} s"))
    if results := read_diagnoses(done.output):
        return results
    raise RemoteError(Reason.of("dcgm-failed", problem=printable(last_line(done.output)) or "nothing was printed"))


def _plan(section: Dcgm, nodes: PlannedNodes) -> list[PlannedPart]:
    about_s = min(_ABOUT_S[section.level], section.timeout_s)
    return [PlannedPart(f"dcgmi diag -r {section.level} on every node", about_s, section.timeout_s)]


DCGM = CheckType(
    name=_NAME,
    section=Dcgm,
    description="NVIDIA's `dcgmi diag`",
    run=dcgm,
    after=CONNECTIVITY.name,
    metrics={},
    plan=_plan,
)
