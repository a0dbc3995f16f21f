"""Faults of nodes, through the whole chain: who is blamed, and what is still measured without
them.
"""

import json
from collections.abc import Callable

import pytest

from seatrial.model.verdict import Verdict
from tests.fake_platform import FakeNode, FakePlatform, ProgramOutput
from tests.suspects import kinds_and_names, suspect_names
from tests.unit.flow.conftest import Chain


def refuses(node: FakeNode) -> None:
    node.refuses = True


def has_another_key(node: FakeNode) -> None:
    node.wrong_host_key = True


def prints_garbage(node: FakeNode) -> None:
    node.programs["facts.py"] = lambda request: "\x1b[31mhello"


def has_no_python(node: FakeNode) -> None:
    node.programs["facts.py"] = lambda request: ProgramOutput("sh: 1: python3: not found", 127)


def is_late(node: FakeNode) -> None:
    node.clock_offset_s = 30.0


def has_another_mpi(node: FakeNode) -> None:
    node.facts["versions"] = {"openmpi": "5.0.1"}


@pytest.mark.parametrize("fault", [refuses, has_another_key, prints_garbage, has_no_python])
@pytest.mark.parametrize("name", ["node-0", "node-2"])
def test_a_broken_node_is_blamed_and_the_others_are_measured(
    chain: Chain, fault: Callable[[FakeNode], None], name: str
) -> None:
    fault(chain.platform.nodes[name])
    result = chain.run()
    assert result.verdict is Verdict.FAIL
    assert kinds_and_names(result) == [("node", name)]
    ranks = {
        m.conditions.get("ranks")
        for made in result.checks
        for m in made.measurements
        if m.metric == "busbw"
    }
    assert ranks == {2}


def test_failure_reported_by_either_of_two_nodes_is_a_link(chain: Chain) -> None:
    chain.platform = FakePlatform(nodes=2)
    refused = ProgramOutput(json.dumps({"tried": 1, "failed": {"refused": [0]}}) + "\n")
    chain.platform.nodes["node-1"].programs["reach.py"] = lambda request: refused
    result = chain.run()
    assert (result.verdict, set(suspect_names(result))) == (Verdict.FAIL, {"node-0--node-1"})


def test_node_that_reports_the_host_name_of_another_is_the_only_suspect(chain: Chain) -> None:
    """Ranks on the node print its real host name."""
    chain.platform.nodes["node-1"].facts["hostname"] = "node-2"
    chain.platform.programs["hostname"] = lambda request: "".join(
        f"{node.name}\n" for node in request.ranks
    )
    result = chain.run()
    assert result.verdict is Verdict.FAIL
    assert suspect_names(result) == ["node-1"]


def test_nodes_with_the_same_host_name_are_reported_without_blame(chain: Chain) -> None:
    chain.platform.nodes["node-1"].facts["hostname"] = "node-2"
    result = chain.run()
    assert (result.verdict, result.suspects) == (Verdict.INCONCLUSIVE, ())
    assert "node-[1-2] report the same host name, node-2" in result.reason.sentence


@pytest.mark.parametrize("fault", [is_late, has_another_mpi])
def test_node_with_a_wrong_clock_or_another_mpi_is_blamed(
    chain: Chain, fault: Callable[[FakeNode], None]
) -> None:
    fault(chain.platform.nodes["node-1"])
    result = chain.run()
    assert set(suspect_names(result)) == {"node-1"}
    assert result.verdict is Verdict.FAIL


def test_a_slow_link_is_found_among_its_peers(chain: Chain) -> None:
    chain.platform = FakePlatform(nodes=5)
    chain.platform.nodes["node-3"].link_mb_s = 40
    result = chain.run()
    assert result.verdict is not Verdict.PASS
    assert kinds_and_names(result) == [("node", "node-3")]


def commands_of_a_healthy_node() -> range:
    """How many commands node-1 is asked to run in a run that passes: set-up, pairs, streams, and
    each mpirun.
    """
    return range(12)


@pytest.mark.parametrize("commands", commands_of_a_healthy_node())
def test_node_that_dies_after_any_number_of_commands_is_blamed(chain: Chain, commands: int) -> None:
    chain.platform.nodes["node-1"].commands_left = commands
    result = chain.run()
    died = chain.platform.nodes["node-1"].dead
    assert (result.verdict is Verdict.FAIL) is died
    assert set(suspect_names(result)) == ({"node-1"} if died else set())


def test_collectives_are_not_run_when_only_one_node_is_left(chain: Chain) -> None:
    chain.platform = FakePlatform(nodes=2)
    chain.platform.nodes["node-1"].refuses = True
    result = chain.run()
    assert result.verdict is Verdict.FAIL
    codes = {
        made.name: made.reason.code for made in result.checks if made.verdict is Verdict.NOT_RUN
    }
    assert codes == {"collectives": "too-few-nodes"}


def test_no_check_is_run_when_no_node_has_mpirun(chain: Chain) -> None:
    for node in chain.platform.nodes.values():
        node.facts["mpirun"] = ""
    result = chain.run()
    assert {made.verdict for made in result.checks} == {Verdict.NOT_RUN}
    assert "is missing on every node: install Open MPI" in result.reason.sentence
