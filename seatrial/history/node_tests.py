"""What a run found of each of its nodes. Pure.

A run has one verdict, and nodes come in and out of service one by one. A node is blamed by the
suspects of the run. It has passed where nothing that was measured is open: what is inconclusive, or
a fault without a suspect, may be any node.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from seatrial.model.result import SURE, RunResult, merge_suspects
from seatrial.model.verdict import Verdict, worst

Outcome = tuple[Verdict, str | None]  # and the code of its reason
NOT_COMPARED = "not-compared"  # the code of a pass that rests on no baseline
UNATTRIBUTED = "unattributed"  # the code of a node of a run whose fault may be that of another node
# Steps that need no node
_NOT_HELD = frozenset({"startup", "image", "record", "upload", "metrics", "notify"})


@dataclass(frozen=True, slots=True)
class NodeTest:
    """The verdict of one node in one run; `code` is that of its reason.

    `partner` is the other node of a run of two nodes. `held_s` are the seconds that the run held
    the node.
    """

    run_id: str
    node: str
    cluster: str
    suite: str
    ended: datetime
    verdict: Verdict
    code: str | None = None
    partner: str | None = None
    gpus: int = 0
    held_s: float = 0.0

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.PASS

    @property
    def gpu_hours(self) -> float:
        return self.gpus * self.held_s / 3600


def node_tests_of(result: RunResult) -> Iterator[NodeTest]:
    """Yield the test of each node of the run."""
    names = [str(node["name"]) for node in result.nodes]
    held_s = sum(seconds for step, seconds in result.timings.items() if step not in _NOT_HELD)
    blamed = _blamed(result)
    unblamed = _unblamed(result, is_alone=len(names) == 1)
    for nth, (node, name) in enumerate(zip(result.nodes, names, strict=True)):
        verdict, code = blamed.get(name, unblamed)
        yield NodeTest(
            result.run_id,
            name,
            result.cluster,
            result.suite,
            result.finished,
            verdict,
            code,
            partner=names[1 - nth] if len(names) == 2 else None,
            gpus=int(node.get("gpus") or 0),
            held_s=held_s,
        )


def _blamed(result: RunResult) -> dict[str, Outcome]:
    """Return the verdict and code of each node that a suspect names.

    Inconclusive if the suspect is not sure, or two nodes share it.
    """
    result_by_node: dict[str, Outcome] = {}
    for suspect in merge_suspects(result.checks):
        own = suspect.verdict or result.verdict
        nodes = [] if suspect.kind == "switch" else suspect.nodes
        sure = len(nodes) == 1 and suspect.confidence >= SURE
        for name in nodes:
            verdict, code = (
                (own, suspect.evidence.code) if sure else (Verdict.INCONCLUSIVE, UNATTRIBUTED)
            )
            known = result_by_node.get(name)
            if known is None or worst((verdict, known[0])) is not known[0]:
                result_by_node[name] = verdict, code
    return result_by_node


def _unblamed(result: RunResult, *, is_alone: bool) -> Outcome:
    """Return the verdict and code of the nodes that no suspect names."""
    passed = Verdict.PASS, NOT_COMPARED if result.coverage.extent in (None, "none") else None
    if result.passed:
        return passed
    if is_alone:
        return result.verdict, result.reason.code
    open_checks = [check for check in result.checks if not check.passed and not check.suspects]
    if not open_checks and result.checks:
        return passed
    code = result.reason.code if not result.verdict.is_fault else UNATTRIBUTED
    return Verdict.INCONCLUSIVE, code
