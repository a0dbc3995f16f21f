"""When and of what a run was, and so what is known of its numbers: of a run that goes on, and of one that is stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from seatrial.catalog.beside import figures_beside
from seatrial.catalog.efficiency import with_shares
from seatrial.catalog.links import with_links
from seatrial.catalog.nearest import missing_reference
from seatrial.judge.baselines.nights import nights_before
from seatrial.judge.baselines.same_machine import Machines
from seatrial.judge.baselines.selection import Knowledge
from seatrial.judge.node_groups import group_nodes
from seatrial.model.node_hardware import hardware_by_node
from seatrial.model.reason import join
from seatrial.model.result import Check, now
from seatrial.model.setup import Setup

if TYPE_CHECKING:
    from seatrial.history.store import Store


@dataclass(frozen=True, slots=True)
class RunContext:
    """Which earlier runs compare: those of the same cluster and suite, before `started`, first of all with the same
    software. `nodes` are those of the run, as run.json has them."""

    cluster: str
    suite: str
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    started: datetime = field(default_factory=now)
    nodes: Sequence[Mapping[str, Any]] = ()


def knowledge_of(checks: Sequence[Check], setup: Setup, store: "Store | None", context: RunContext | None) -> Knowledge:
    """What the store and the cluster's facts say about the measurements of `checks`."""
    setup = with_links(setup)
    if context is None:
        return Knowledge(setup)
    hardware = hardware_by_node(context.nodes)
    known = Knowledge(setup, nodes=list(hardware), groups=group_nodes(hardware))
    if store is None:
        return known
    measured = {m.series(): m for check in checks for m in check.measurements if m.better}
    nights = nights_before(
        store,
        context.cluster,
        context.suite,
        context.fingerprint,
        sorted(measured),
        context.started,
        Machines(hardware, measured),
    )
    return replace(known, pinned=store.pinned(context.cluster), history=nights.values(), nights=nights)


def explained(checks: Sequence[Check], setup: Setup) -> list[Check]:
    """The judged checks with what each plateau is of what the links allow; where nothing published compares, the
    reason says what comes nearest."""
    shown = [with_shares(check, setup) for check in checks]
    return [_with_nearest(check, setup) for check in shown] if setup.gpus_per_node else shown


def _with_nearest(check: Check, setup: Setup) -> Check:
    missing = missing_reference(check, setup)
    notes = [*([missing] if missing else []), *figures_beside(check, setup)]
    return replace(check, reason=join((check.reason, *notes))) if notes else check
