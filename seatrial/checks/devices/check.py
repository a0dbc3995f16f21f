"""The check `devices`: does every GPU, or every node without GPUs, compute correctly, and how fast?

Measurements of each GPU (`node-3/gpu-1`), or of each node without GPUs, with the device's model as
a condition, and the library where it is not torch; answers.py lists them. Each is the median of its
samples. Devices of one kind must give the same digest of the same work, bit for bit.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from seatrial.checks.connectivity.check import CONNECTIVITY
from seatrial.checks.contract import (
    TORCH,
    CheckContext,
    CheckType,
    Problem,
    Repeated,
    StepResult,
    TimeLeft,
    concluded,
    log_repeat,
)
from seatrial.checks.devices.answers import (
    PROBE,
    DeviceMeasurement,
    DeviceMeasurements,
    DevicesAnswer,
    DiskAnswers,
    disagreements,
    disk_measurements,
    disk_problems,
    measure_disk,
    summary,
)
from seatrial.checks.devices.section import Devices, plan_devices
from seatrial.checks.metrics import DEVICE_METRICS, Doubt
from seatrial.model.errors import RemoteError
from seatrial.model.measurement import Measurement
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.model.testbed import Node, Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.node_probe import run_probe
from seatrial.remote.ssh import answered, on_each
from seatrial.text.words import count, number, some_of

log = logging.getLogger("seatrial.devices")

Answers = Mapping[str, Sequence[DeviceMeasurement] | RemoteError]  # devices or error by node


def devices(context: CheckContext) -> StepResult:
    """Measure all nodes at once; nodes with a bad device are named and taken out, unless all nodes
    have one.
    """
    started = time.monotonic()
    section = context.section(Devices)
    answers = _all_nodes(context.testbed, section)
    by_node = answered(answers)
    for name, measured in by_node.items():
        log.info("%s: %s", name, summary(measured))
    disks = _disks(context.testbed, section)
    for name, disk in answered(disks).items():
        if disk.tool:
            written = number(disk.write_mb_s)
            read = number(disk.read_mb_s)
            log.info("%s: disk %s MB/s written, %s MB/s read", name, written, read)
    problems = [*_broken(answers), *disagreements(by_node)]
    busy = [name for name, measured in by_node.items() if not measured]
    if busy:
        problems.append(Problem(Verdict.INCONCLUSIVE, Reason.of("probe-busy", nodes=some_of(busy))))
    problems += disk_problems(disks)
    number_of_devices = sum(map(len, by_node.values()))
    were = "was" if number_of_devices == 1 else "were"
    passed = Reason.of(
        "devices-measured",
        devices=count(number_of_devices, "device"),
        nodes=count(len(by_node), "node"),
        were=were,
    )
    measurements = (*_measurements(by_node), *disk_measurements(disks))
    check = concluded(PROBE, problems, passed, started, measurements)
    bad = {suspect.name.partition("/")[0] for suspect in check.suspects}
    # A fault on every node has a common cause, such as the image
    if len(bad) == len(context.testbed.nodes) > 1:
        check = replace(check, suspects=())
        bad = set()
    return StepResult(check, context.testbed.without(bad))


def _all_nodes(testbed: Testbed, section: Devices) -> Answers:
    """Measure all nodes, each starting a little later than the one before if the suite has a
    stagger.
    """
    place = {name: nth for nth, name in enumerate(testbed.names)}

    def begin(node: Node) -> tuple[DeviceMeasurement, ...]:
        time.sleep(section.stagger_s * place[node.name] / len(place))
        return measure(testbed, node, section)

    return on_each(testbed.nodes, begin, max(1, len(place)))


def _measurements(by_node: DeviceMeasurements) -> list[Measurement]:
    return [
        m
        for name, measured in by_node.items()
        for device in measured
        for m in device.measurements(name)
    ]


def _disks(testbed: Testbed, section: Devices) -> DiskAnswers:
    """Measure the disks of all nodes at once; return {} if the suite does not ask for it."""
    disk = section.disk
    if disk is None:
        return {}
    return on_each(testbed.nodes, lambda node: measure_disk(testbed, node, disk, section.timeout_s))


def _broken(answers: Answers) -> Iterator[Problem]:
    """Yield the nodes that gave no answer, and the devices that broke or compute wrongly."""
    for name, answer in answers.items():
        if isinstance(answer, RemoteError):
            yield Problem.of(
                Verdict.FAIL,
                Suspect("node", name, 1.0, answer.reason),
            )
            continue
        for device in answer:
            problem = device.problem()
            if problem:
                yield Problem.of(
                    problem[0],
                    Suspect(device.kind, device.name(name), 1.0, problem[1]),
                )


def measure(testbed: Testbed, node: Node, section: Devices) -> tuple[DeviceMeasurement, ...]:
    """Measure every device of the node; return none if other nodes used its machine all the time.

    Raises RemoteError.
    """
    arguments = section.arguments(node.gpus)
    if testbed.shared_cores is not None:
        arguments.append("--shared-processors")
    measured = run_probe(testbed, node, PROBE, arguments, DevicesAnswer, section.timeout_s)[
        -1
    ].devices
    visible = sum(device.kind == "gpu" for device in measured)
    if measured and visible < node.gpus:
        raise RemoteError.of(
            "probe-failed", probe=PROBE, problem=f"torch sees {visible} of {node.gpus} GPUs"
        )
    return measured


def repeat_devices(
    context: CheckContext, doubts: Sequence[Doubt], repeated: Repeated, left: TimeLeft
) -> None:
    """Measure the devices of each doubtful node again; one node after another if they share a
    machine.
    """
    metrics = defaultdict(set)
    for doubt in doubts:
        m = doubt.measurement
        metrics[m.subject.name.partition("/")[0]].add(m.metric)
    nodes = [node for node in context.testbed.nodes if node.name in metrics]
    if nodes:
        log_repeat(f"devices of {some_of((node.name for node in nodes), 3)}", doubts)

    def again(node: Node) -> None:
        """Measure the doubtful metrics of a node's devices or disk again."""
        if left.over:
            return
        doubtful = metrics[node.name]
        section = context.section(Devices).only(doubtful)
        of_disk = doubtful & {"disk_write", "disk_read"}
        answers = (
            on_each([node], lambda node: measure(context.testbed, node, section))
            if doubtful - of_disk
            else {}
        )
        disks = _disks(replace(context.testbed, nodes=(node,)), section) if of_disk else {}
        repeated.add_outcome(*_broken(answers), *disk_problems(disks))
        repeated.measurements += [*_measurements(answered(answers)), *disk_measurements(disks)]

    on_each(nodes, again, 1 if context.testbed.shared_cores else max(1, len(nodes)))


DEVICES = CheckType(
    name=PROBE,
    section=Devices,
    description="what every GPU or node computes; `null` leaves it out",
    run=devices,
    after=CONNECTIVITY.name,
    metrics=DEVICE_METRICS,
    default=Devices(),
    needs=lambda gpus: (TORCH,),
    repeat=repeat_devices,
    plan=plan_devices,
)
