"""Whether every node was measured, and which nodes moved nothing at all. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import cast

from seatrial.catalog.physics import is_far_below_links
from seatrial.catalog.published import swept_sizes
from seatrial.model.measurement import Measurement, Subject, SubjectKind
from seatrial.model.reason import Reason
from seatrial.model.result import Check, Judgement
from seatrial.model.setup import Setup, part_of
from seatrial.model.verdict import Verdict
from seatrial.text.words import number, some_of

_OF_A_NODE = ("node", "gpu")


def blamed_nodes(checks: Iterable[Check]) -> set[str]:
    """The nodes that a check blames by itself: it may have taken them out, and its verdict says so."""
    suspects = (suspect for check in checks for suspect in check.raw.suspects)
    return {node for suspect in suspects for node in Subject(cast(SubjectKind, suspect.kind), suspect.name).nodes}


def unmeasured(check: Check, nodes: Sequence[str] | int, blamed: Collection[str]) -> Iterator[str]:
    """One reason per metric that some of the `nodes` (names, or how many) lack and other nodes have.

    Nothing is said of a check that did not pass by itself: it has said what it could not measure.
    """
    if check.raw.verdict is not Verdict.PASS:
        return
    for metric, measured in _nodes_by_metric(check.measurements).items():
        missing = _missing(measured | set(blamed), nodes)
        total = nodes if isinstance(nodes, int) else len(nodes)
        if missing is not None:
            yield Reason.of("nodes-unmeasured", metric=metric, measured=len(measured), nodes=total, missing=missing)


def far_below_links(check: Check, setup: Setup, without_fabric: bool) -> Iterator[str]:
    """Yield the reason not to let a plateau pass that no fabric holds; `without_fabric`: even if none is named."""
    if not setup.fabric and not without_fabric:
        return
    sizes = swept_sizes(check.measurements)
    for m in check.measurements:
        if m.metric == "busbw_plateau" and is_far_below_links(m, part_of(m, setup), max(sizes(m), default=None)):
            values = {"value": number(m.value), "links": number(setup.gpu_link_gb_s or 0)}
            yield Reason.of("far-below-links", operation=m.operation, fabric=setup.fabric or "none", **values)
            return


def _nodes_by_metric(measurements: Iterable[Measurement]) -> dict[str, set[str]]:
    nodes: dict[str, set[str]] = defaultdict(set)
    for m in measurements:
        if m.better and m.subject.kind in _OF_A_NODE:
            nodes[m.metric].update(m.subject.nodes)
    return nodes


def _missing(accounted_for: set[str], nodes: Sequence[str] | int) -> str | None:
    """Return the nodes without any result, by name if the names are known, or None if every node has one."""
    if isinstance(nodes, int):
        count = nodes - len(accounted_for)
        return f"{count} missing" if count > 0 else None
    names = [name for name in nodes if name not in accounted_for]
    return f"missing: {some_of(names)}" if names else None


def without_rate(judgements: Sequence[Judgement]) -> list[Judgement]:
    """The nodes, GPUs and links that moved nothing while others did; where none did, none of them is odd."""
    zeros = [j for j in judgements if j.source == "sanity" and j.verdict is Verdict.FAIL and not j.measurement.value]
    moving = {_what(j) for j in judgements if j.measurement.value > 0}
    return [j for j in zeros if _what(j) in moving]


def _what(judgement: Judgement) -> tuple[str, str, str]:
    m = judgement.measurement
    return m.metric, m.unit, m.subject.kind
