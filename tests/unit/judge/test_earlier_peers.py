"""A test of one node is judged with like nodes of other runs, and with the runs that had the node
before.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from seatrial.history import open_store
from seatrial.history.past import RunContext
from seatrial.history.store import Store
from seatrial.judge.assess import assess
from seatrial.judge.knowledge import knowledge_of
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Check, RunResult
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from tests.suspects import suspect_names

NOW = datetime(2026, 5, 20, tzinfo=UTC)
SETUP = Setup("made-up", 1, 2, 2)
DRIVER = {"driver": "570"}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/history.sqlite") as opened:
        yield opened


def facts(node: str, model: str = "H100") -> dict[str, Any]:
    return {"name": node, "gpus": 2, "gpu_model": model, "hardware_ids": [f"id-{node}"]}


def measured(node: str, *values: float) -> Check:
    """The readings of the two GPUs of a node."""
    readings = [
        Measurement("matmul", value, "TFLOP/s", Subject("gpu", f"{node}/gpu-{gpu}"))
        for gpu, value in enumerate(values)
    ]
    return Check("devices", Verdict.PASS, Reason(), measurements=tuple(readings))


def fleet(
    store: Store,
    days: float = 3,
    model: str = "H100",
    fingerprint: dict[str, str] = DRIVER,
    nodes: int = 12,
) -> None:
    """A test of each of some nodes, one node a run, within an hour."""
    random = Random(1)
    for n in range(nodes):
        at = NOW - timedelta(days=days, minutes=n)
        check = measured(f"p{n}", *(700 * random.gauss(1, 0.004) for _ in range(2)))
        result = RunResult(
            f"run-{days:g}-{n}",
            "c",
            "qualify",
            at,
            at,
            Verdict.PASS,
            uncoded("all pass"),
            nodes=[facts(f"p{n}", model)],
            checks=[check],
            fingerprint=fingerprint,
        )
        store.save(result, Path("/runs"))


def judged(store: Store, check: Check, node: str = "new") -> Check:
    """The check of a node that no run has had."""
    context = RunContext("c", "qualify", DRIVER, NOW, [facts(node)])
    knowledge = knowledge_of([check], SETUP, store, context)
    return assess([check], knowledge).checks[0]


def test_a_slow_gpu_of_a_new_node_is_named_by_like_nodes_of_other_runs(store: Store) -> None:
    fleet(store)
    slow = judged(store, _taken_thrice("new", 700.0, 630.0))
    assert slow.verdict is not Verdict.PASS
    assert set(suspect_names(slow)) == {"new/gpu-1"}
    healthy = judged(store, _taken_thrice("new", 701.0, 698.0))
    assert (healthy.verdict, healthy.suspects) == (Verdict.PASS, ())
    assert {judgement.source for judgement in healthy.judgements if judgement.compared} <= {
        "peers",
        "history",
    }
    assert healthy.coverage.extent == "all"


def _taken_thrice(node: str, *values: float) -> Check:
    """The same readings three times, as repeats of what is in doubt."""
    once = measured(node, *values)
    return Check("devices", Verdict.PASS, Reason(), measurements=once.measurements * 3)


@pytest.mark.parametrize(
    "other",
    [{"days": 15.0}, {"model": "A100"}, {"fingerprint": {"driver": "580"}}, {"nodes": 0}],
    ids=["too old", "another model", "other software", "none"],
)
def test_only_like_nodes_of_the_last_two_weeks_and_of_the_same_software_are_peers(
    store: Store, other: dict[str, Any]
) -> None:
    fleet(store, **other)
    alone = judged(store, measured("new", 700.0, 630.0))
    assert alone.verdict is Verdict.PASS
    assert alone.coverage.extent in ("none", None)
    assert alone.suspects == ()


def test_run_of_five_nodes_takes_no_peers_from_earlier_runs(store: Store) -> None:
    fleet(store)
    checks = [measured(f"q{n}", 700.0, 700.0) for n in range(5)]
    context = RunContext("c", "qualify", DRIVER, NOW, [facts(f"q{n}") for n in range(5)])
    assert knowledge_of(checks, SETUP, store, context).peers == ()
