"""Numbers in doubt, and who stands where the nodes are when they are asked again."""

from collections.abc import Mapping, Sequence

from seatrial.checks.contract import Problem, Repeated
from seatrial.checks.metrics import Doubt
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import Check
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict

LAB = Setup("cpu", 4, 0, 1)


def plateau(value: float) -> Measurement:
    at: dict[str, ConditionValue] = {"operation": "all_reduce", "dtype": "float32", "ranks": 4}
    return Measurement("busbw_plateau", value, "GB/s", Subject("cluster", "lab"), at)


def collectives(*values: float) -> Check:
    return Check(
        "collectives",
        Verdict.PASS,
        uncoded("1 sweep"),
        1.0,
        tuple(plateau(value) for value in values),
    )


class Nodes:
    """Stands where the nodes are: reads `values` one by one, and counts how often it was asked."""

    def __init__(self, *values: float, problem: Problem | None = None) -> None:
        self.values, self.problem, self.asked = list(values), problem, 0

    def __call__(self, doubts: Mapping[str, Sequence[Doubt]], until: float) -> dict[str, Repeated]:
        self.asked += 1
        assert {d.measurement.series() for d in doubts["collectives"]} == {plateau(0).series()}
        repeated = Repeated([plateau(self.values.pop(0))] if self.values else [])
        repeated.problems += [self.problem] if self.problem else []
        return {"collectives": repeated}


def doubt(**conditions: str | int) -> Doubt:
    at: dict[str, ConditionValue] = {
        "operation": "all_reduce",
        "dtype": "float32",
        "ranks": 4,
        **conditions,
    }
    metric = "busbw_plateau" if "max_bytes" in at else "busbw"
    return Doubt(Measurement(metric, 0.1, "GB/s", Subject("cluster", "lab"), at), 1, 3)


def operation_and_sizes(argv: Sequence[str]) -> tuple[str, str, str]:
    values = [argv[argv.index(flag) + 1] for flag in ("--operation", "--min-bytes", "--max-bytes")]
    return values[0], values[1], values[2]


class FakeTransport:
    def close(self) -> None:
        pass
