"""Whether every node was measured, and over its links. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from seatrial.catalog.physics import is_far_below_links
from seatrial.catalog.published import swept_sizes
from seatrial.model.measurement import Subject, SubjectKind
from seatrial.model.reason import Reason
from seatrial.model.result import Check
from seatrial.model.setup import Setup, part_of
from seatrial.model.verdict import Verdict
from seatrial.text.words import number, some_of


def blamed_nodes(checks: Iterable[Check]) -> set[str]:
    """Return the nodes that the check itself blames: it may have taken them out, and its verdict
    says so.
    """
    suspects = (suspect for check in checks for suspect in check.raw.suspects)
    return {
        node
        for suspect in suspects
        for node in Subject(cast(SubjectKind, suspect.kind), suspect.name).nodes
    }


def unmeasured(check: Check, nodes: Sequence[str] | int, blamed: set[str]) -> Iterator[Reason]:
    """Yield one reason per metric that some of the `nodes` (names, or how many) lack and other
    nodes have.

    Nothing is said of a check that did not pass by itself: it has said what it could not measure.
    """
    if check.raw.verdict is not Verdict.PASS:
        return
    total = nodes if isinstance(nodes, int) else len(nodes)
    nodes_by_metric: dict[str, set[str]] = defaultdict(set)
    for m in check.measurements:
        if m.better and m.subject.kind in ("node", "gpu"):
            nodes_by_metric[m.metric].update(m.subject.nodes)
    for metric, measured in nodes_by_metric.items():
        accounted_for = measured | blamed
        if isinstance(nodes, int):
            missing = f"{total - len(accounted_for)} missing" if len(accounted_for) < total else ""
        else:
            names = [name for name in nodes if name not in accounted_for]
            missing = f"missing: {some_of(names)}" if names else ""
        if missing:
            yield Reason.of(
                "nodes-unmeasured",
                metric=metric,
                measured=len(measured),
                nodes=total,
                missing=missing,
            )


def far_below_links(check: Check, setup: Setup, without_fabric: bool) -> Iterator[Reason]:
    """Yield the reason not to let a plateau pass that no fabric holds; `without_fabric`: even if
    none is named.
    """
    if not setup.fabric and not without_fabric:
        return
    sizes = swept_sizes(check.measurements)
    for m in check.measurements:
        if m.metric == "busbw_plateau" and is_far_below_links(
            m, part_of(m, setup), max(sizes(m), default=None)
        ):
            values = {"value": number(m.value), "links": number(setup.gpu_link_gb_s or 0)}
            yield Reason.of(
                "far-below-links", operation=m.operation, fabric=setup.fabric or "none", **values
            )
            return
