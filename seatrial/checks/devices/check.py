"""The check `devices`: does every GPU, or every node without GPUs, compute correctly, and how fast?

Measurements of each GPU (`node-3/gpu-1`), or of each node without GPUs, with the device's model as a condition, and
the library where it is not torch: matmul (TFLOP/s, by dtype and matrix size) and memory_copy (GB/s, read and written).
Each is the median of its samples. Devices of one kind must give the same digest of the same work, bit for bit.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence

from seatrial.checks.connectivity.check import CONNECTIVITY
from seatrial.checks.contract import TORCH, CheckContext, CheckType, Metric, StepResult
from seatrial.checks.devices.agreement import disagreements
from seatrial.checks.devices.answers import PROBE, DeviceMeasurement, DevicesAnswer, summary
from seatrial.checks.devices.problem import Problem
from seatrial.checks.devices.section import Devices
from seatrial.checks.repeated import Doubt, Repeated, TimeLeft, log_repeat
from seatrial.model.errors import RemoteError
from seatrial.model.reason import Reason, join
from seatrial.model.result import Check, Suspect
from seatrial.model.testbed import Node, Testbed
from seatrial.model.tolerance import Tolerance
from seatrial.model.verdict import Verdict, worst
from seatrial.remote.node_probe import run_probe
from seatrial.remote.ssh import on_each
from seatrial.text.words import some_of

log = logging.getLogger("seatrial.devices")

Answers = Mapping[str, Sequence[DeviceMeasurement] | RemoteError]  # by node


def devices(context: CheckContext) -> StepResult:
    """Measure all nodes at once; nodes with a bad device are named and taken out, unless all nodes have one."""
    started, section = time.monotonic(), context.section(Devices)
    answers = on_each(context.testbed.nodes, lambda node: measure(context.testbed, node, section))
    by_node = _measured(answers)
    for name, measured in by_node.items():
        log.info("%s: %s", name, summary(measured))
    problems = [*_broken(answers), *disagreements(by_node), *_busy(by_node)]
    suspects, bad = _blamed(problems, context.testbed)
    check = Check(
        PROBE,
        worst([problem.verdict for problem in problems]) if problems else Verdict.PASS,
        join(problem.reason for problem in problems) or _all_well(by_node),
        time.monotonic() - started,
        tuple(m for name, measured in by_node.items() for device in measured for m in device.measurements(name)),
        suspects=suspects,
    )
    return StepResult(check, context.testbed.without(bad))


def _measured(answers: Answers) -> dict[str, Sequence[DeviceMeasurement]]:
    """The answers of the nodes that gave one."""
    return {name: answer for name, answer in answers.items() if not isinstance(answer, RemoteError)}


def _blamed(problems: Sequence[Problem], testbed: Testbed) -> tuple[tuple[Suspect, ...], set[str]]:
    """The suspects, and the nodes to take out; none where every node has a fault, such as its image's."""
    suspects = tuple(problem.suspect for problem in problems if problem.suspect)
    bad = {suspect.name.partition("/")[0] for suspect in suspects}
    return ((), set()) if len(bad) == len(testbed.nodes) > 1 else (suspects, bad)


def _all_well(by_node: Mapping[str, Sequence[DeviceMeasurement]]) -> str:
    return f"{sum(map(len, by_node.values()))} devices of {len(by_node)} nodes were measured"


def _busy(by_node: Mapping[str, Sequence[DeviceMeasurement]]) -> Iterator[Problem]:
    if busy := [name for name, measured in by_node.items() if not measured]:
        yield Problem(Verdict.INCONCLUSIVE, Reason.of("probe-busy", nodes=some_of(busy)))


def _broken(answers: Answers) -> Iterator[Problem]:
    """The nodes that gave no answer, and the devices that broke or compute wrongly."""
    for name, answer in answers.items():
        if isinstance(answer, RemoteError):
            yield Problem.of(Verdict.FAIL, Suspect("node", name, 1.0, answer.reason))
            continue
        for device in answer:
            if problem := device.problem():
                yield Problem.of(problem[0], Suspect(device.kind, device.name(name), 1.0, problem[1]))


def measure(testbed: Testbed, node: Node, section: Devices) -> tuple[DeviceMeasurement, ...]:
    """Every device of the node; none where others had its machine for all of the time. Raises RemoteError."""
    times = ("--seconds", f"{section.seconds:g}", "--timeout-s", f"{section.timeout_s:g}")
    options = (*times, "--gpus", str(node.gpus), "--rounds", str(section.rounds))
    measured = run_probe(testbed, node, PROBE, options, DevicesAnswer, section.timeout_s)[-1].devices
    visible = sum(device.kind == "gpu" for device in measured)
    if measured and visible < node.gpus:
        problem = f"torch sees {visible} of {node.gpus} GPUs"
        raise RemoteError(Reason.of("probe-failed", probe=PROBE, problem=problem))
    return measured


def repeat_devices(context: CheckContext, doubts: Sequence[Doubt], repeated: Repeated, left: TimeLeft) -> None:
    """The devices of each doubtful node once more, one node after another: what shares its machine is idle."""
    doubtful = {doubt.measurement.subject.name.partition("/")[0] for doubt in doubts}
    nodes = [node for node in context.testbed.nodes if node.name in doubtful]
    if nodes:
        log_repeat(f"devices of {some_of([node.name for node in nodes], 3)}", doubts)
    for node in nodes:
        if left.over:
            return
        answers = on_each([node], lambda node: measure(context.testbed, node, context.section(Devices)))
        for problem in _broken(answers):
            repeated.suspects += [problem.suspect] if problem.suspect else []
            repeated.broke(problem.verdict, problem.reason)
        for answer in _measured(answers).values():
            repeated.measurements += [m for device in answer for m in device.measurements(node.name)]


_SHARED = Tolerance(sigma=0.5, cap=8.0)  # processors that other programs use as well lose half of their speed and more

DEVICES = CheckType(
    name=PROBE,
    section=Devices,
    description="matrix multiplication and memory copy; `null` leaves it out",
    run=devices,
    after=CONNECTIVITY.name,
    metrics={
        "matmul": Metric("TFLOP/s", "matrix multiplication, bfloat16 on a GPU, float32 on processors", _SHARED),
        "memory_copy": Metric("GB/s", "memory copy (1e9 bytes, read and written)", _SHARED),
    },
    default=Devices(),
    needs=lambda gpus: (TORCH,),
    repeat=repeat_devices,
)
