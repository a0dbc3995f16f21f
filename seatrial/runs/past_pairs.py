"""Tests of pairs and groups that earlier runs of a cluster have stored: `seatrial localize
--history`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.localize.group_tests import GroupTest
from seatrial.model.errors import InputError
from seatrial.model.measurement import Measurement
from seatrial.model.setup import INTRA
from seatrial.runs.load import load_result
from seatrial.text.printable import printable

if TYPE_CHECKING:
    from seatrial.history.rows import RunRow
    from seatrial.history.store import Store

_MOST_RUNS = 1000
_HALF_LIFE_DAYS = 7.0  # the age at which a test counts half
_WHOLE = 1  # the size in bytes that stands for a number of all sizes


def stored_tests(store: "Store", cluster: str, days: int) -> list[GroupTest]:
    """Return the tests of the last days, which count less the older they are.

    Raises InputError if there are none.
    """
    now = datetime.now(UTC)
    rows = store.runs(cluster, _MOST_RUNS)
    if not rows:
        raise InputError(
            f"--history: no runs of cluster {printable(cluster)!r}; `seatrial history` "
            "lists clusters"
        )
    recent = [row for row in rows if row.started >= now - timedelta(days=days)]
    since = now - timedelta(days=days + 1)  # a run is as old as its start, its tests as their end
    pairs = {
        test.run_id: sorted((test.node, test.partner))
        for test in store.node_tests(cluster, since)
        if test.partner
    }
    tests = [test for row in recent for test in _of_run(store, row, pairs.get(row.run_id, ()), now)]
    if not tests:
        raise InputError(
            f"--history: the {len(recent)} runs of {printable(cluster)} in the last "
            f"{days} days have no tests of pairs"
        )
    return tests


def _of_run(store: "Store", row: "RunRow", pair: Sequence[str], now: datetime) -> list[GroupTest]:
    """Return the rounds of the step `localize`, from the run's folder, and its links, from the
    history.

    The rates of a run of two nodes, such as one of `qualify-pairs`, are those of what joins the
    two, its `pair`.
    """
    weight = 0.5 ** ((now - row.started) / timedelta(days=_HALF_LIFE_DAYS))
    day = row.started.date().isoformat()
    tests = [
        test
        for m in store.measurements(row.run_id)
        if (test := link_test(row.run_id, m, pair, weight, day))
    ]
    return tests + _of_rounds(row, weight, day)


def _of_rounds(row: "RunRow", weight: float, day: str) -> list[GroupTest]:
    """Return the tests of groups in run.json; none where the folder is gone."""
    try:
        document = load_result(Path(row.out)).localization or {}
    except InputError:
        return []
    collective = str(document.get("collective") or "")
    tests = []
    for test in document.get("tests", ()):
        nodes = tuple(test["nodes"])
        rate = test["busbw_gb_s"]
        gpus = tuple(str(gpu) for gpu in test.get("gpus") or ())
        name = f"{row.run_id}/{test.get('name', '')}"
        ends = (gpus,) * len(nodes) if gpus else ()
        tests.append(
            GroupTest(
                name=name,
                collective=collective,
                nodes=nodes,
                busbw_gb_s={_WHOLE: rate} if rate else {},
                gpus=ends,
                conditions="",
                weight=weight,
                day=day,
            )
        )
    return tests


def link_test(
    run_id: str, measurement: Measurement, pair: Sequence[str], weight: float, day: str
) -> GroupTest | None:
    """Return the test of a link between two nodes; None for other subjects, and for numbers that
    are no rates.
    """
    subject = measurement.subject
    nodes = tuple(subject.name.split("--") if subject.kind == "link" else pair)
    of_both = subject.kind == "cluster" and measurement.metric == "busbw_plateau"
    if not (subject.kind == "link" or (of_both and measurement.conditions.get("arm") != INTRA)):
        return None
    if len(nodes) != 2 or measurement.better != "higher" or not measurement.value > 0:
        return None
    rail = measurement.conditions.get("rail")  # tells tests of RDMA apart
    gpus = ((str(rail),),) * 2 if rail is not None else ()
    others = sorted(
        (name, value) for name, value in measurement.conditions.items() if name != "rail"
    )
    conditions = " ".join(f"{name}={value}" for name, value in others)
    name = f"{run_id}/{measurement.metric} {'--'.join(nodes)}"
    return GroupTest(
        name=name,
        collective=measurement.metric,
        nodes=nodes,
        busbw_gb_s={_WHOLE: measurement.value},
        gpus=gpus,
        conditions=conditions,
        weight=weight,
        day=day,
    )
