"""How long parts of suites take, and what streams between nodes show, kept in tests/golden/checks.

`python -m tests.unit.checks.golden` writes it anew; read what changed.
"""

from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from statistics import NormalDist

from seatrial.checks.connectivity import rates, slow_streams
from seatrial.checks.contract import PlannedNodes
from seatrial.checks.suites import outlines
from seatrial.report.listings import rounded

GOLDEN = Path(__file__).parents[2] / "golden" / "checks"
_NODES = [
    *(PlannedNodes(4, 8, gpus=True), PlannedNodes(1, 8, gpus=True), PlannedNodes(64, 8, gpus=True)),
    *(
        PlannedNodes(4, 1, gpus=False),
        PlannedNodes(2, 4, gpus=False),
        PlannedNodes(1, 1, gpus=False),
    ),
]


def _suites() -> Iterator[str]:
    for nodes in _NODES:
        for planned in outlines(nodes):
            yield (
                f"{planned.suite} on {nodes.words}: {planned.about_s:.6g} s, at most "
                f"{planned.most_s:.6g} s"
            )
            for check, part in planned.parts:
                yield f"  {check}: {part.what}: {part.about_s:.6g} s, at most {part.most_s:.6g} s"
    yield " ".join(
        rounded(seconds) for seconds in (0, 9, 14, 26, 114, 119.9, 120, 149, 151, 3599, 7199, 7201)
    )


def _streams(
    count: int, rate: Callable[[str, str], float], model: str = ""
) -> tuple[dict[tuple[str, str], float], dict[str, str]]:
    """The rates of streams between so many nodes, a few percent apart; the models of the nodes."""
    names = [f"n{i:02d}" for i in range(count)]
    spread = NormalDist(1, 0.02)
    streams = {
        (a, b): 400 * rate(a, b) * spread.inv_cdf((i * 0.6180339887498949 + 0.37) % 1)
        for i, (a, b) in enumerate(permutations(names, 2))
        if (int(a[1:]) + int(b[1:])) % 3 or count < 7
    }
    return streams, {name: model[i : i + 1] for i, name in enumerate(names)}


def _apart(a: str, b: str) -> float:
    """Of two halves of eight."""
    return 0.2 if (a < "n04") != (b < "n04") else 1.0


_FLEETS = {
    "healthy": _streams(8, lambda a, b: 1.0),
    "sends slowly": _streams(8, lambda a, b: 0.1 if a == "n03" else 1.0),
    "receives slowly": _streams(8, lambda a, b: 0.1 if b == "n03" else 1.0),
    "slow both ways": _streams(4, lambda a, b: 0.1 if "n01" in (a, b) else 1.0),
    "a slow link": _streams(8, lambda a, b: 0.1 if {a, b} == {"n03", "n04"} else 1.0),
    "one direction of a link": _streams(8, lambda a, b: 0.1 if (a, b) == ("n04", "n03") else 1.0),
    "two halves": _streams(8, _apart),
    "two halves, and a node": _streams(8, lambda a, b: 0.05 if "n07" in (a, b) else _apart(a, b)),
    "most are slow": _streams(8, lambda a, b: 0.1 if min(a, b) < "n05" else 1.0),
    "half of four": _streams(4, lambda a, b: 0.1 if min(a, b) < "n02" else 1.0),
    "three nodes": _streams(3, lambda a, b: 0.1 if "n01" in (a, b) else 1.0),
    "two nodes": _streams(2, lambda a, b: 0.1 if a == "n01" else 1.0),
    "two models": _streams(8, lambda a, b: 0.2 if min(a, b) < "n04" else 1.0, "xxxxyyyy"),
    "two models, and a node": _streams(
        8, lambda a, b: 0.01 if "n02" in (a, b) else 0.2 if min(a, b) < "n04" else 1.0, "xxxxyyyy"
    ),
    "nothing arrives": _streams(6, lambda a, b: 0.0 if b == "n05" else 1.0),
    "none": ({}, {}),
}


def _fleets() -> Iterator[str]:
    for name, (streams, models) in _FLEETS.items():
        yield f"{name}: {slow_streams.summary(streams, models)}"
        for suspect in slow_streams.slow_suspects(streams, models):
            yield f"  {suspect.kind} {suspect.name} {suspect.confidence}: {suspect.evidence}"
        yield f"  divided: {slow_streams.divided(streams, models)}"
        level = rates.levelled(streams, models)
        yield f"  levelled: {' '.join(f'{rate:.5g}' for rate in list(level.values())[:12])}"
        for m in rates.measurements(streams)[:6]:
            yield f"  {m.metric} {m.subject.name} {m.value:.5g} {len(m.samples)}"


def files() -> dict[str, str]:
    """By name."""
    made = {"suites.txt": _suites(), "streams.txt": _fleets()}
    return {name: "".join(f"{line}\n" for line in lines) for name, lines in made.items()}


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for file, text in files().items():
        (GOLDEN / file).write_text(text)
