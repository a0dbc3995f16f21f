"""Compare: hold every measurement of the run against what is known, and say what that makes of each check."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

from seatrial.assess import assess
from seatrial.baselines.catalog.links import with_links
from seatrial.baselines.catalog.nearest import missing_reference
from seatrial.baselines.known import Knowledge
from seatrial.baselines.nights import nights_before
from seatrial.baselines.setup import Setup, setup_of
from seatrial.checks.efficiency import with_shares
from seatrial.cluster import Cluster
from seatrial.result import Check, now

if TYPE_CHECKING:
    from seatrial.history.store import Store


@dataclass(frozen=True, slots=True)
class Occasion:
    """Which earlier runs compare: those of the same suite, before `started`, first of all with the same software."""

    suite: str = "quick"
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    started: datetime = field(default_factory=now)


def compare(
    checks: Sequence[Check], cluster: Cluster, store: "Store | None", occasion: Occasion | None = None
) -> list[Check]:
    """The checks with their judgements, verdicts, reasons and suspects.

    Without a store, the catalog, physics and peers remain. Raises SeatrialError when the store cannot be read: a run
    that silently forgets its history would pass what it should not.
    """
    knowledge = knowledge_of(checks, cluster, store, occasion or Occasion())
    assessed = assess([with_shares(check, knowledge.setup) for check in checks], knowledge)
    return [_explained(check, knowledge.setup) for check in assessed] if cluster.gpus else assessed


def _explained(check: Check, setup: Setup) -> Check:
    """Where nothing published compares, the reason says what comes nearest."""
    missing = missing_reference(check, setup)
    return replace(check, reason=f"{check.reason}; {missing}") if missing else check


def knowledge_of(checks: Sequence[Check], cluster: Cluster, store: "Store | None", occasion: Occasion) -> Knowledge:
    """What the store and the cluster file know about the measurements of `checks`."""
    setup = with_links(setup_of(cluster))
    if store is None:
        return Knowledge(setup)
    names = sorted({m.series() for check in checks for m in check.measurements if m.better})
    nights = nights_before(store, cluster.name, occasion.suite, occasion.fingerprint, names, occasion.started)
    return Knowledge(setup, store.pinned(cluster.name), nights.values(), nights)


@task(name="compare", cache_policy=NO_CACHE)
def compare_task(
    checks: Sequence[Check], cluster: Cluster, store: "Store | None", occasion: Occasion | None = None
) -> list[Check]:
    """`compare` as a step of the flow."""
    return compare(checks, cluster, store, occasion)
