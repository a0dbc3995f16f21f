"""The search for the nodes that MPI fails with."""

import math
from pathlib import Path

import pytest

from seatrial.checks.connectivity import check
from seatrial.checks.connectivity.check import MAX_TRIES, HostnameResult, guilty_nodes
from seatrial.checks.connectivity.rates import Findings
from seatrial.model.errors import MissingError
from seatrial.model.reason import code_of
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi import MpiResult
from tests.unit.collectives.fake_mpirun import make_run, make_testbed


class Mpi:
    """Fails when a bad node takes part."""

    def __init__(self, *bad: str) -> None:
        self.bad = set(bad)
        self.tries = 0

    def __call__(self, testbed: Testbed) -> str | None:
        self.tries += 1
        taking_part = self.bad & {node.name for node in testbed.nodes}
        return f"{sorted(taking_part)[0]} is bad" if taking_part else None


def test_the_head_is_blamed_for_itself_also_among_two() -> None:
    for count in (2, 5):
        assert guilty_nodes(make_testbed(count), Mpi("node-0")) == [("node-0", "node-0 is bad")]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_an_mpirun_that_works_nowhere_is_no_nodes_fault(count: int) -> None:
    with pytest.raises(MissingError, match="mpirun does not work, on one node alone neither: segfault; check Open MPI"):
        guilty_nodes(make_testbed(count), lambda testbed: "segfault")


@pytest.mark.parametrize("bad", [("node-1",), ("node-4",), ("node-2", "node-7"), ("node-1", "node-2", "node-3")])
def test_the_guilty_are_found_and_nobody_else(bad: tuple[str, ...]) -> None:
    assert {name for name, _ in guilty_nodes(make_testbed(9), Mpi(*bad))} == set(bad)


def test_a_thousand_nodes_take_few_tries() -> None:
    mpi = Mpi("node-777")
    assert guilty_nodes(make_testbed(1000), mpi) == [("node-777", "node-777 is bad")]
    assert mpi.tries <= 2 + 2 * math.ceil(math.log2(1000))


def test_nobody_is_blamed_when_only_the_whole_fails() -> None:
    whole = make_testbed(4)
    assert guilty_nodes(whole, lambda testbed: "too many" if len(testbed.nodes) == 4 else None) == []


def test_the_search_ends() -> None:
    mpi = Mpi(*(f"node-{i}" for i in range(1, 200)))
    assert guilty_nodes(make_testbed(200), mpi) == []
    assert mpi.tries <= MAX_TRIES + 1


def test_a_machine_that_is_too_busy_for_mpirun_is_no_nodes_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tries = []

    def starved(*arguments: object) -> HostnameResult:
        tries.append(arguments)
        return HostnameResult(MpiResult(None, (), 20.0, timed_out=True, waited_s=15.0), ("node-1",))

    monkeypatch.setattr(check, "show_hosts", starved)
    findings = Findings(make_testbed(4))
    check._try_mpi(findings, {}, make_run(tmp_path))
    done = findings.check()
    assert (done.verdict, code_of(done.reason), done.suspects) == (Verdict.INCONCLUSIVE, "machine-too-busy", ())
    assert len(tries) == 1
