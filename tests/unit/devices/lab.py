"""Four nodes whose probes of devices and disks print what a test says; the nodes are fakes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from seatrial.checks.contract import CheckContext, try_check
from seatrial.checks.devices.check import DEVICES
from seatrial.checks.devices.section import Devices
from seatrial.checks.suites import load_suite
from seatrial.config.run import Run
from seatrial.model.result import Check
from seatrial.model.testbed import Testbed
from tests.fake_platform import FakePlatform, ProgramOutput

ALL = ["node-0", "node-1", "node-2", "node-3"]


def device(name: str = "cpu", **changes: Any) -> dict[str, Any]:
    """One device as the probe prints it."""
    healthy = {
        "model": "H100",
        "library": "torch",
        "dtype": "bfloat16",
        "size": 8192,
        "wrong": "",
        "error": "",
    }
    rates = {"matmul_tflops": [600.0, 700.0, 800.0], "copy_gb_s": [2000.0, 2100.0]}
    return {"device": name, **healthy, **rates, **changes}


def gpus(count: int, **changes: Any) -> list[dict[str, Any]]:
    """That many GPUs, of which the last has `changes`."""
    return [device(f"cuda:{i}", **(changes if i == count - 1 else {})) for i in range(count)]


def answer(*devices: dict[str, Any]) -> str:
    return f"a login greets first\n{json.dumps({'devices': devices})}\n"


HEALTHY = answer(device())


class Lab:
    """Four nodes; `says` is what the probe prints on each."""

    def __init__(self, folder: Path, gpus: int = 0) -> None:
        self.platform = FakePlatform(nodes=4)
        suite = load_suite("quick").model_copy(update={"devices": Devices(timeout_s=600)})
        hardware = {"hardware": "H100-SXM", "gpus_per_node": gpus} if gpus else {}
        self.run = Run("run-1", self.platform.cluster(**hardware), suite, folder)
        self.testbed: Testbed = self.platform.launch(self.run)

    def says(self, output: ProgramOutput | str = HEALTHY, *nodes: str) -> None:
        for name in nodes or self.platform.nodes:
            self.platform.nodes[name].programs["devices.py"] = lambda request: output

    def says_of_disk(self, answer: dict[str, Any], *nodes: str) -> None:
        for name in nodes or self.platform.nodes:
            self.platform.nodes[name].programs["disk.py"] = lambda request: json.dumps(answer)

    def suite(self, **section: Any) -> None:
        """What the suite asks of devices."""
        devices = Devices(**{"timeout_s": 600, **section})
        self.run = replace(self.run, suite=self.run.suite.model_copy(update={"devices": devices}))

    @property
    def context(self) -> CheckContext:
        return CheckContext(self.run, self.testbed)

    def check(self) -> tuple[Check, list[str]]:
        """The check, and the nodes that are left."""
        result = try_check(DEVICES, self.context)
        return result.check, [node.name for node in result.testbed.nodes]


def rate(metric: str, *samples: float, **conditions: Any) -> dict[str, Any]:
    return {"metric": metric, "conditions": conditions, "samples": samples}
