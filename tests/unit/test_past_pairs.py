"""`seatrial localize --history`: what runs of pairs have stored, as tests of what joins two
nodes.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from seatrial.history import open_store
from seatrial.history.store import Store
from seatrial.model.errors import InputError
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Reason, uncoded
from seatrial.model.result import Check, RunResult
from seatrial.model.verdict import Verdict
from seatrial.runs.past_pairs import stored_tests

WHOLE = Subject("cluster", "c")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/history.sqlite") as opened:
        yield opened


def plateau(gb_s: float, arm: str = "network") -> Measurement:
    return Measurement(
        "busbw_plateau", gb_s, "GB/s", WHOLE, {"operation": "all_reduce", "arm": arm}
    )


def save(
    store: Store, number: int, names: tuple[str, ...], *measured: Measurement, days: float = 0
) -> None:
    """A run of the pair that many days ago."""
    started = datetime.now(UTC) - timedelta(days=days)
    check = Check(
        "collectives", Verdict.PASS, uncoded("every result is right"), measurements=measured
    )
    ended, nodes = started + timedelta(minutes=2), [{"name": name} for name in names]
    result = RunResult(
        f"run-{number}",
        "c",
        "qualify-pairs",
        started,
        ended,
        Verdict.PASS,
        Reason(),
        nodes=nodes,
        checks=(check,),
    )
    store.save(result, Path("/gone"))


def test_stored_pair_tests_use_the_network_arm_or_plain_rate_of_two_nodes(store: Store) -> None:
    save(store, 0, ("n0", "n1"), plateau(350), plateau(450, "intra"), days=7)
    save(store, 1, ("n1", "n2"), plateau(340))
    save(store, 2, ("n0", "n1", "n2"), plateau(330))
    save(store, 3, ("n2",), plateau(320))
    by_nodes = {test.nodes: test for test in stored_tests(store, "c", 14)}
    assert by_nodes.keys() == {("n0", "n1"), ("n1", "n2")}
    assert [list(test.busbw_gb_s.values()) for test in by_nodes.values()] == [[340], [350]]
    assert by_nodes["n0", "n1"].weight == pytest.approx(0.5, abs=0.01)
    assert {test.conditions for test in by_nodes.values()} == {"arm=network operation=all_reduce"}


def test_history_without_pair_tests_is_refused(store: Store) -> None:
    save(store, 0, ("n0", "n1", "n2"), plateau(330))
    with pytest.raises(
        InputError, match="the 1 runs of c in the last 14 days have no tests of pairs"
    ):
        stored_tests(store, "c", 14)
