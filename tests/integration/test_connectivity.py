"""The connectivity step against real nodes, healthy and broken."""

import stat
from itertools import combinations
from pathlib import Path

import pytest

from seatrial.checks.connectivity.check import connectivity
from seatrial.checks.contract import CheckContext
from seatrial.model.errors import MissingError
from seatrial.model.result import Suspect
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi import mpirun
from seatrial.remote.node_setup import set_up_node
from tests.integration.conftest import LocalTestbed


def names(suspects: tuple[Suspect, ...]) -> set[tuple[str, str]]:
    return {(suspect.kind, suspect.name) for suspect in suspects}


def executable(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


ANSWERS_VERSION = '#!/bin/sh\n[ "$1" = --version ] && echo "mpirun (Open MPI) 5.0.11" && exit\n'


def test_a_healthy_testbed_passes(local_testbed: LocalTestbed) -> None:
    with local_testbed(nodes=3, slots_per_node=2) as (run, testbed):
        step = connectivity(CheckContext(run, testbed))
    assert step.check.verdict is Verdict.PASS
    assert step.check.suspects == ()
    assert step.testbed == testbed
    assert {"kernel", "openmpi", "openssh", "torch"} <= set(step.fingerprint)
    assert (run.logs / "mpirun-hostname.log").read_text().count("node-1\n") == 2
    metrics = {(m.metric, m.subject.name) for m in step.check.measurements}
    assert {("clock_skew", "node-2"), ("ssh_connect", "node-0")} <= metrics


def test_a_dead_and_a_false_node_are_told_apart_and_left_out(local_testbed: LocalTestbed) -> None:
    faults = [{"node": "node-0", "sshd": "stopped"}, {"node": "node-2", "host_key": "wrong"}]
    with local_testbed(nodes=4, faults=faults) as (run, testbed):
        step = connectivity(CheckContext(run, testbed))
    assert step.check.verdict is Verdict.FAIL
    evidence = {suspect.name: suspect.evidence for suspect in step.check.suspects}
    assert set(evidence) == {"node-0", "node-2"}
    assert "connection refused" in evidence["node-0"]
    assert "another host key than the one pinned" in evidence["node-2"]
    assert [node.name for node in step.testbed.nodes] == ["node-1", "node-3"]


def test_a_broken_link_is_named_as_a_link(local_testbed: LocalTestbed) -> None:
    with local_testbed(nodes=4, faults=[{"link": ["node-1", "node-3"], "state": "down"}]) as (run, testbed):
        step = connectivity(CheckContext(run, testbed))
    assert step.check.verdict is Verdict.FAIL
    assert names(step.check.suspects) == {("link", "node-1--node-3")}
    assert "node-3 left out without blame" in step.check.reason
    assert [node.name for node in step.testbed.nodes] == ["node-0", "node-1", "node-2"]


def test_a_fabric_that_is_cut_in_two_is_one_finding(local_testbed: LocalTestbed) -> None:
    across = [{"link": [f"node-{a}", f"node-{b}"], "state": "down"} for a in (0, 1) for b in (2, 3)]
    with local_testbed(nodes=4, faults=across) as (run, testbed):
        result = connectivity(CheckContext(run, testbed))
    assert result.check.verdict is Verdict.FAIL
    assert [(s.kind, s.name) for s in result.check.suspects] == [("link", "node-[0-1]--node-[2-3]")]
    assert "cut between node-[0-1] and node-[2-3]: 4 pairs fail" in result.check.reason
    assert [node.name for node in result.testbed.nodes] == ["node-0", "node-1"]


def test_where_no_pair_works_no_node_is_blamed(local_testbed: LocalTestbed) -> None:
    down = [{"link": [f"node-{a}", f"node-{b}"], "state": "down"} for a, b in combinations(range(3), 2)]
    with local_testbed(nodes=3, faults=down) as (run, testbed):
        result = connectivity(CheckContext(run, testbed))
    assert (result.check.verdict, result.check.suspects) == (Verdict.INCONCLUSIVE, ())
    assert "none of 3 pairs of nodes reach each other" in result.check.reason


def test_of_many_nodes_on_one_machine_one_that_cannot_log_in_is_named(local_testbed: LocalTestbed) -> None:
    """MPI itself tries the logins there; where it fails, they are tried one by one."""
    with local_testbed(nodes=10) as (run, testbed):
        config = testbed.key_file.parent / "nodes" / "node-0" / "home" / ".ssh" / "config"
        config.write_text(config.read_text().replace("UserKnownHostsFile", "UserKnownHostsFile /dev/null #"))
        result = connectivity(CheckContext(run, testbed))
    assert result.check.verdict is Verdict.FAIL
    assert names(result.check.suspects) == {("node", "node-0")}
    assert "Host key verification failed" in result.check.reason
    assert len(result.testbed.nodes) == 9


def test_of_many_nodes_on_one_machine_a_broken_link_and_a_dead_node_are_named(local_testbed: LocalTestbed) -> None:
    faults = [{"link": ["node-1", "node-3"], "state": "down"}, {"node": "node-5", "sshd": "stopped"}]
    with local_testbed(nodes=10, faults=faults) as (run, testbed):
        result = connectivity(CheckContext(run, testbed))
    assert result.check.verdict is Verdict.FAIL
    assert names(result.check.suspects) == {("link", "node-1--node-3"), ("node", "node-5")}
    assert {name: facts["hostname"] for name, facts in result.facts.items()} == {
        node.name: node.name for node in testbed.nodes if node.name != "node-5"
    }
    assert len({str(facts["versions"]) for facts in result.facts.values()}) == 1


def test_no_mpirun_anywhere_is_a_missing_prerequisite(local_testbed: LocalTestbed) -> None:
    with (
        local_testbed(nodes=2, mpi={"mpirun": "/nowhere/mpirun"}) as (run, testbed),
        pytest.raises(MissingError, match="/nowhere/mpirun is missing on every node: install Open MPI"),
    ):
        connectivity(CheckContext(run, testbed))


def test_an_mpirun_that_hangs_after_its_output_is_ended_and_its_output_used(
    local_testbed: LocalTestbed, tmp_path: Path
) -> None:
    """Seen with Open MPI 5.0.11: every line is printed, then nothing ends."""
    hanging = executable(tmp_path / "mpirun", ANSWERS_VERSION + "echo node-0\necho node-1\nsleep 600\n")
    with local_testbed(nodes=2, mpi={"mpirun": hanging}) as (run, testbed):
        step = connectivity(CheckContext(run, testbed))
        assert step.check.verdict is Verdict.PASS
        result = mpirun(testbed, ["true"], timeout_s=60, is_done=lambda line: line == "node-1")
    assert result.reaped
    assert result.ok
    assert not result.timed_out
    assert result.seconds < 15
    assert result.lines == ("node-0", "node-1")


def test_an_mpirun_that_hangs_without_output_times_out(local_testbed: LocalTestbed, tmp_path: Path) -> None:
    hanging = executable(tmp_path / "mpirun", ANSWERS_VERSION + "echo node-0\nsleep 600\n")
    with local_testbed(nodes=2, mpi={"mpirun": hanging}) as (_, testbed):
        set_up_node(testbed, testbed.head, 10).transport.close()  # brings the probes
        result = mpirun(testbed, ["true"], timeout_s=1)
    assert result.timed_out
    assert not result.ok
    assert result.seconds < 12


def test_an_mpirun_that_shows_too_few_ranks_fails(local_testbed: LocalTestbed, tmp_path: Path) -> None:
    silent = executable(tmp_path / "mpirun", ANSWERS_VERSION + "echo node-0\n")
    with local_testbed(nodes=3, mpi={"mpirun": silent}) as (run, testbed):
        step = connectivity(CheckContext(run, testbed))
    assert step.check.verdict is Verdict.FAIL
    assert {name for _, name in names(step.check.suspects)} == {"node-1", "node-2"}
    assert [node.name for node in step.testbed.nodes] == ["node-0"]


def test_no_shell_of_a_node_expands_the_arguments_of_mpirun(local_testbed: LocalTestbed, tmp_path: Path) -> None:
    """mpirun starts its daemons through shells on the nodes; what those would expand, cluster files may not hold."""
    words = [f"x;>{tmp_path}/made", f"x|tee>{tmp_path}/made", f"x&>{tmp_path}/made", "*", "a'b", "~", "#", "two words"]
    args = [word for n, value in enumerate(words) for word in ("--mca", f"seatrial_{n}", value)]
    with local_testbed(nodes=2, mpi={"args": args}) as (_, testbed):
        for node in testbed.nodes:
            set_up_node(testbed, node, 30).transport.close()
        result = mpirun(testbed, ["env"], timeout_s=60)
    assert result.ok, result
    for n, value in enumerate(words):
        assert result.lines.count(f"OMPI_MCA_seatrial_{n}={value}") == 2
    assert not (tmp_path / "made").exists()
