"""The arm `intra`: every node sweeps over its own ranks, all nodes at once."""

from collections.abc import Callable, Mapping, Sequence

from seatrial.checks.collectives.outcome import SweepOutcome
from seatrial.checks.collectives.section import Collectives, PlannedSweep
from seatrial.checks.collectives.sweep import sweep_once
from seatrial.config.run import Run
from seatrial.model.arms import INTRA
from seatrial.model.reason import join, placed
from seatrial.model.result import Suspect
from seatrial.model.testbed import Node, Testbed
from seatrial.model.verdict import Verdict, worst
from seatrial.remote.ssh import on_each
from seatrial.text.numbers import short

_BROKEN = (Verdict.FAIL, Verdict.CORRUPT)


def sweep_each_node(
    run: Run,
    testbed: Testbed,
    settings: Collectives,
    planned: PlannedSweep,
    *,
    label_of: Callable[[str], str],
    is_repeat: bool = False,
    writes_json: bool = False,
) -> SweepOutcome:
    """Sweep over the ranks of each node of `testbed`; `label_of(node)` is what the logs of a node are called.

    A node whose sweep breaks or computes wrongly is a suspect, unless all nodes do. `fabric_gone`: some nodes could not
    be reached, so who is there must be asked.
    """

    def one(node: Node) -> SweepOutcome:
        alone = testbed.without(other.name for other in testbed.nodes if other.name != node.name)
        return sweep_once(
            run, alone, settings, planned, label=label_of(node.name), is_repeat=is_repeat, writes_json=writes_json
        )

    answers = on_each(testbed.nodes, one, at_once(testbed))
    outcomes = {name: outcome for name, outcome in answers.items() if isinstance(outcome, SweepOutcome)}
    return _combined(f"{planned.operation} ({INTRA})", outcomes)


def at_once(testbed: Testbed) -> int:
    """All nodes, but no more ranks than cores where one machine plays all of them: they would measure each other."""
    if testbed.shared_cores is None:
        return len(testbed.nodes)
    return max(1, testbed.shared_cores // max(node.slots for node in testbed.nodes))


def _combined(name: str, outcomes: Mapping[str, SweepOutcome]) -> SweepOutcome:
    bad = {node: outcome for node, outcome in outcomes.items() if outcome.verdict is not Verdict.PASS}
    verdict = worst(outcome.verdict for outcome in outcomes.values())
    measurements = tuple(m for outcome in outcomes.values() for m in outcome.measurements)
    summary = f"{name}: {_span([m.value for m in measurements])} on {len(outcomes)} nodes, every result right"
    return SweepOutcome(
        name,
        verdict,
        join([placed(node, outcome.reason) for node, outcome in bad.items()]) or summary,
        measurements,
        fabric_gone=any(outcome.fabric_gone for outcome in bad.values()),
        suspects=_suspects(bad) if len(bad) < len(outcomes) else (),
    )


def _span(plateaus: Sequence[float]) -> str:
    low, high = short(min(plateaus, default=0.0)), short(max(plateaus, default=0.0))
    return f"{low} GB/s" if low == high else f"{low} to {high} GB/s"


def _suspects(bad: Mapping[str, SweepOutcome]) -> tuple[Suspect, ...]:
    """The nodes that were there and failed by themselves."""
    return tuple(
        Suspect("node", node, 1.0, outcome.reason)
        for node, outcome in bad.items()
        if outcome.verdict in _BROKEN and not outcome.fabric_gone
    )
