"""What rounds of tests are planned on fleets with a fault, and what they find, kept in tests/golden/localize.json.

`python -m tests.unit.localize.golden` writes it anew; read what changed.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import NormalDist
from typing import Any

from seatrial.localize import Budget, Group, localize, plan, start, update
from seatrial.localize.observations import GroupTest

GOLDEN = Path(__file__).parents[2] / "golden" / "localize.json"
GPUS = ("0", "1")
_USUAL = Budget()
Speed = Callable[[Group], float]  # of a group, 0 where its test fails


def _noise(i: int) -> float:
    """Spread as a normal number is, the same on every machine."""
    return 0.03 * NormalDist().inv_cdf((i * 0.6180339887498949 + 0.37) % 1)


def _nodes(count: int) -> list[str]:
    return [f"n{i:02d}" for i in range(count)]


def _rounds(
    count: int, speed: Speed, *, budget: Budget = _USUAL, groups: Mapping[str, frozenset[str]] | None = None
) -> dict[str, Any]:
    state, tested, rounds = start(_nodes(count), GPUS, groups), 0, []
    while planned := plan(state, budget):
        rounds.append(
            [f"{' '.join(group.nodes)}{' on ' + ' '.join(group.gpus) if group.gpus else ''}" for group in planned]
        )
        results = []
        for group in planned:
            tested += 1
            value = 100 * speed(group) * (1 + _noise(tested))
            results.append(group.result("all_reduce", {1 << 30: value} if value else {}))
        state = update(state, results)
    return {"rounds": rounds, "found": _rounded(state.localization.to_dict())}


def _of_tests(*tests: tuple[str, float], groups: Mapping[str, frozenset[str]] | None = None) -> dict[str, Any]:
    """What tests of these nodes, one letter each, find at these speeds."""
    made = [
        GroupTest(f"{i} {nodes}", "all_reduce", tuple(nodes), {1 << 30: 100 * speed * (1 + _noise(i))} if speed else {})
        for i, (nodes, speed) in enumerate(tests)
    ]
    return {"found": _rounded(localize(made, groups).to_dict())}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value


def _with(*slow: str, by: float) -> Speed:
    return lambda group: 1 - by if set(slow) & set(group.nodes) else 1.0


def _between(side: set[str], by: float) -> Speed:
    return lambda group: 1 - by if len(side & set(group.nodes)) == 1 else 1.0


def cases() -> dict[str, Any]:
    """By name."""
    twelve, leaves = _nodes(12), {f"leaf{i}": frozenset(_nodes(12)[4 * i : 4 * i + 4]) for i in range(3)}
    pairs = [(a + b, 0.5 if "d" in a + b else 1.0) for a in "abcdef" for b in "abcdef" if a < b]
    return {
        "healthy": _rounds(8, _with(by=0)),
        "a slow node": _rounds(12, _with("n05", by=0.3)),
        "a node that is a little slow": _rounds(12, _with("n05", by=0.12)),
        "two slow nodes": _rounds(12, _with("n02", "n03", by=0.4)),
        "a node that fails": _rounds(8, _with("n03", by=1)),
        "a slow GPU": _rounds(12, lambda g: 0.6 if "n05" in g.nodes and (not g.gpus or "1" in g.gpus) else 1.0),
        "a slow link": _rounds(12, lambda g: 0.6 if {"n04", "n05"} <= set(g.nodes) else 1.0),
        "a slow rail": _rounds(12, lambda g: 0.6 if not g.gpus or "1" in g.gpus else 1.0),
        "two halves": _rounds(12, _between(set(twelve[:6]), 0.5)),
        "halves in no order": _rounds(12, _between(set(twelve[::2]), 0.5)),
        "a leaf that is known": _rounds(12, _between(set(leaves["leaf1"]), 0.5), groups=leaves),
        "segments": _rounds(12, _with("n05", by=0.4), budget=Budget(rounds=3, groups=3)),
        "four nodes": _rounds(4, _with("n02", by=0.3)),
        "all pairs": _of_tests(*pairs),
        "only together": _of_tests(*(pair for pair in pairs if "d" not in pair[0]), *[("xy", 0.5)] * 4),
        "a ring of two halves": _of_tests(
            *((a + b, 0.5 if a + b in ("de", "ha") else 1.0) for a, b in zip("abcdefgh", "bcdefgha", strict=True)),
            *[("de", 0.5), ("ha", 0.5), ("ab", 1.0)],
        ),
        "some fail, one is slow": _of_tests(*pairs, ("ab", 0.0), ("ae", 0.0), ("af", 0.0)),
        "too few": _of_tests(("ab", 1.0), ("cd", 0.5)),
    }


def written() -> str:
    """One line for each round and for what is found."""
    lines = []
    for name, case in cases().items():
        rounds = ",\n".join(f"   {json.dumps(each)}" for each in case.get("rounds", ()))
        head = f'  "rounds": [\n{rounds}],\n' if rounds else ""
        lines.append(f' {json.dumps(name)}: {{\n{head}  "found": {json.dumps(case["found"])}}}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    GOLDEN.write_text(written())
