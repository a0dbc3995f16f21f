"""A cluster at work for tests of the pass: nodes whose states a test sets, and verdicts that it
scripts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Self

from seatrial.config.qualify import Qualify
from seatrial.history.node_tests import NodeTest
from seatrial.model.errors import SeatrialError
from seatrial.model.reason import Reason
from seatrial.model.verdict import Verdict
from seatrial.platforms.service import ServiceNode
from seatrial.qualify.cycle import Cluster
from seatrial.qualify.evidence import PAIRS

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
LIVE = Qualify(dry_run=False)


def node_test(
    node: str,
    verdict: Verdict = Verdict.PASS,
    days: float = 0,
    code: str | None = None,
    partner: str | None = None,
) -> NodeTest:
    """A test that ended `days` ago, alone or with a partner."""
    suite = PAIRS if partner else "qualify"
    return NodeTest(
        f"run-{node}-{days:g}",
        node,
        "c",
        suite,
        NOW - timedelta(days=days),
        verdict,
        code,
        partner,
        8,
        300,
    )


def idle(*names: str) -> list[ServiceNode]:
    """Idle nodes, four to a leaf switch by the number in their names."""
    return [ServiceNode(name, "idle", f"leaf-{int(name[1:]) // 4}") for name in names]


@dataclass
class PlayedCluster:
    """The scheduler of a test.

    `verdicts` are those of the next tests by node, else a pass; `calls` what was done.
    """

    by_name: dict[str, ServiceNode]
    verdicts: dict[str, tuple[Verdict, str]] = field(default_factory=dict)
    past: list[NodeTest] = field(default_factory=list)
    batches: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    calls: list[tuple[str, ...]] = field(default_factory=list)
    refuses: bool = False
    waits: int = 0
    now: datetime = NOW

    @classmethod
    def of(cls, nodes: Sequence[ServiceNode], past: Sequence[NodeTest] = ()) -> Self:
        return cls({node.name: node for node in nodes}, past=list(past))

    def nodes(self) -> list[ServiceNode]:
        return list(self.by_name.values())

    def put_out(self, name: str, run_id: str, code: str) -> None:
        if self.refuses:
            raise SeatrialError(Reason.of("node-unfit", lack="no right to drain"))
        self.calls.append(("put out", name, code))
        self.by_name[name] = replace(self.by_name[name], state="out", is_ours=True)

    def let_in(self, name: str) -> None:
        self.calls.append(("let in", name))
        self.by_name[name] = replace(self.by_name[name], state="idle", is_ours=False)

    def at_work(self, settings: Qualify = LIVE) -> Cluster:
        return Cluster(self, settings, self._test, lambda: self.past, lambda: self.now, self._wait)

    def _wait(self, pause: timedelta) -> None:
        self.waits += 1
        self.now += pause
        if self.waits == 3:  # a job ends
            self.by_name = {
                name: replace(node, state="idle") if node.state == "busy" else node
                for name, node in self.by_name.items()
            }

    def _test(self, suite: str, nodes: Sequence[ServiceNode]) -> list[NodeTest]:
        names = tuple(node.name for node in nodes)
        self.batches.append((suite, names))
        self.now += timedelta(minutes=5)
        tests = []
        for name in names:
            verdict, code = self.verdicts.get(name, (Verdict.PASS, ""))
            partner = (
                next((other for other in names if other != name), None) if suite == PAIRS else None
            )
            run_id = f"run-{len(self.batches)}"
            tests.append(
                NodeTest(run_id, name, "c", suite, self.now, verdict, code or None, partner, 8, 300)
            )
        self.past += tests
        return tests
