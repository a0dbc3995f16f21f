"""How fast every node's disk is written and read, as seatrial/remote/probes/disk.py measures it."""

import logging
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from seatrial.checks.devices.problem import Problem
from seatrial.checks.devices.section import Disk
from seatrial.model.errors import RemoteError
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.model.testbed import Node, Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.answers import NodeAnswer, Text
from seatrial.remote.node_probe import run_probe
from seatrial.text.words import some_of

log = logging.getLogger("seatrial.devices")

_PROBE = "disk"

MegabytesPerSecond = Annotated[float, Field(gt=0, lt=1e9)]


class DiskAnswer(NodeAnswer):
    """What the probe prints; no tool where other nodes of the machine were measured for all of the time."""

    tool: Literal["fio", "python"] | None = None
    filesystem: Text = ""
    write_mb_s: MegabytesPerSecond | None = None
    read_mb_s: MegabytesPerSecond | None = None
    wrong: Text = ""

    def measurements(self, node: str) -> Iterator[Measurement]:
        """disk_write and disk_read in MB/s (1e6 bytes)."""
        if self.tool is None:
            return
        conditions = {"tool": self.tool, "filesystem": self.filesystem}
        for metric, value in (("disk_write", self.write_mb_s), ("disk_read", self.read_mb_s)):
            if value:
                yield Measurement(metric, value, "MB/s", Subject("node", node), conditions, (value,))


DiskAnswers = Mapping[str, DiskAnswer | RemoteError]  # by node


def measure_disk(testbed: Testbed, node: Node, section: Disk, timeout_s: float) -> DiskAnswer:
    """The node's disk. Raises RemoteError."""
    options = ["--bytes", str(section.bytes), "--seconds", f"{section.seconds:g}", "--timeout-s", f"{timeout_s:g}"]
    options += ["--folder", section.folder] if section.folder else []
    return run_probe(testbed, node, _PROBE, options, DiskAnswer, timeout_s)[-1]


def log_disks(answers: DiskAnswers) -> None:
    for name, answer in answers.items():
        if isinstance(answer, DiskAnswer) and answer.tool:
            log.info("%s: disk %.0f MB/s written, %.0f MB/s read", name, answer.write_mb_s or 0, answer.read_mb_s or 0)


def disk_problems(answers: DiskAnswers) -> Iterator[Problem]:
    """Nodes whose disk gave no answer or a wrong one; and those that were not measured."""
    for name, answer in answers.items():
        if isinstance(answer, RemoteError):
            yield Problem.of(Verdict.FAIL, Suspect("node", name, 1.0, answer.reason))
        elif answer.wrong:
            evidence = Reason.of("disk-wrong", problem=answer.wrong)
            yield Problem.of(Verdict.CORRUPT, Suspect("node", name, 1.0, evidence))
    if busy := [name for name, answer in answers.items() if isinstance(answer, DiskAnswer) and not answer.tool]:
        yield Problem(Verdict.INCONCLUSIVE, Reason.of("probe-busy", nodes=some_of(busy)))


def disk_measurements(answers: DiskAnswers) -> Iterator[Measurement]:
    for name, answer in answers.items():
        if isinstance(answer, DiskAnswer):
            yield from answer.measurements(name)
