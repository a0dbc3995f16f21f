"""The connectivity step against real nodes, healthy and broken."""

from dataclasses import replace
from pathlib import Path

from seatrial.checks.connectivity.check import connectivity
from seatrial.checks.contract import CheckContext
from seatrial.model.result import Suspect
from seatrial.model.verdict import Verdict
from seatrial.remote.mpi import mpirun
from tests.integration.conftest import LocalTestbed, Up


def names(suspects: tuple[Suspect, ...]) -> set[tuple[str, str]]:
    return {(suspect.kind, suspect.name) for suspect in suspects}


def with_mpirun(
    shared: Up, folder: Path, script: str, version: str = "echo 'mpirun (Open MPI) 5.0.11'"
) -> Up:
    """The nodes with that script in place of mpirun."""
    run, testbed = shared
    program = folder / "mpirun"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && {{ {version}; exit; }}\n{script}\n')
    program.chmod(0o755)
    return run, replace(testbed, mpirun=str(program))


def test_healthy_nodes_pass(shared: Up) -> None:
    run, testbed = shared
    step = connectivity(CheckContext(run, testbed))
    assert (step.check.verdict, step.check.suspects) == (Verdict.PASS, ())
    assert step.testbed == testbed
    assert {"kernel", "openmpi", "openssh", "torch"} <= set(step.fingerprint)
    assert (run.logs / "mpirun-hostname.log").read_text().count(">:node-1\n") == 1
    metrics = {(m.metric, m.subject.name) for m in step.check.measurements}
    assert {("clock_skew", "node-2"), ("ssh_connect", "node-0")} <= metrics


def test_unreachable_node_and_wrong_host_key_are_distinguished_and_left_out(
    local_testbed: LocalTestbed,
) -> None:
    faults = [{"node": "node-0", "sshd": "stopped"}, {"node": "node-2", "host_key": "wrong"}]
    with local_testbed(nodes=4, faults=faults) as (run, testbed):
        step = connectivity(CheckContext(run, testbed))
    assert step.check.verdict is Verdict.FAIL
    evidence = {suspect.name: suspect.evidence for suspect in step.check.suspects}
    assert set(evidence) == {"node-0", "node-2"}
    assert "connection refused" in evidence["node-0"].sentence
    assert "another host key than the one pinned" in evidence["node-2"].sentence
    assert [node.name for node in step.testbed.nodes] == ["node-1", "node-3"]


def test_broken_link_is_a_link_suspect_and_one_end_is_left_out_without_blame(
    local_testbed: LocalTestbed,
) -> None:
    with local_testbed(nodes=4, faults=[{"link": ["node-1", "node-3"], "state": "down"}]) as (
        run,
        testbed,
    ):
        step = connectivity(CheckContext(run, testbed))
    assert step.check.verdict is Verdict.FAIL
    assert names(step.check.suspects) == {("link", "node-1--node-3")}
    assert "node-3 left out without blame" in step.check.reason.sentence
    assert [node.name for node in step.testbed.nodes] == ["node-0", "node-1", "node-2"]


def test_of_many_nodes_on_one_machine_one_that_cannot_log_in_is_named(
    local_testbed: LocalTestbed,
) -> None:
    """MPI itself tries the logins there; where it fails, they are tried one by one."""
    with local_testbed(nodes=10) as (run, testbed):
        config = testbed.key_file.parent / "nodes" / "node-0" / "home" / ".ssh" / "config"
        config.write_text(
            config.read_text().replace("UserKnownHostsFile", "UserKnownHostsFile /dev/null #")
        )
        result = connectivity(CheckContext(run, testbed))
    assert result.check.verdict is Verdict.FAIL
    assert names(result.check.suspects) == {("node", "node-0")}
    assert "Host key verification failed" in result.check.reason.sentence
    assert len(result.testbed.nodes) == 9


def test_of_many_nodes_on_one_machine_a_broken_link_and_a_dead_node_are_named(
    local_testbed: LocalTestbed,
) -> None:
    faults = [
        {"link": ["node-1", "node-3"], "state": "down"},
        {"node": "node-5", "sshd": "stopped"},
    ]
    with local_testbed(nodes=10, faults=faults) as (run, testbed):
        result = connectivity(CheckContext(run, testbed))
    assert result.check.verdict is Verdict.FAIL
    assert names(result.check.suspects) == {("link", "node-1--node-3"), ("node", "node-5")}
    assert {name: facts["hostname"] for name, facts in result.facts.items()} == {
        node.name: node.name for node in testbed.nodes if node.name != "node-5"
    }
    assert len({str(facts["versions"]) for facts in result.facts.values()}) == 1


def test_an_mpirun_that_hangs_after_its_output_is_ended_and_its_output_used(
    shared: Up, tmp_path: Path
) -> None:
    """Seen with Open MPI 5.0.11: every line is printed, then nothing ends."""
    run, testbed = with_mpirun(shared, tmp_path, 'mpirun "$@"; sleep 600')
    step = connectivity(CheckContext(run, testbed))
    assert step.check.verdict is Verdict.PASS
    awaited = {"node-0", "node-1", "node-2"}

    def is_done(line: str) -> bool:
        awaited.discard(line)
        return not awaited

    result = mpirun(testbed, ["uname", "-n"], timeout_s=60, is_done=is_done)
    assert (result.reaped, result.ok, result.timed_out) == (True, True, False)
    assert result.seconds < 60
    assert sorted(filter(None, result.lines)) == ["node-0", "node-1", "node-2"]


def test_an_mpirun_that_hangs_without_output_times_out(shared: Up, tmp_path: Path) -> None:
    _, testbed = with_mpirun(shared, tmp_path, "echo node-0; sleep 600")
    result = mpirun(testbed, ["true"], timeout_s=1)
    assert (result.timed_out, result.ok) == (True, False)
    assert result.seconds < 60


def test_an_mpirun_that_shows_too_few_ranks_fails(shared: Up, tmp_path: Path) -> None:
    run, testbed = with_mpirun(
        shared, tmp_path, r'mpirun "$@" | grep -v "^\[1,[12]\]<stdout>:node"'
    )
    step = connectivity(CheckContext(run, testbed))
    assert step.check.verdict is Verdict.FAIL
    assert {name for _, name in names(step.check.suspects)} == {"node-1", "node-2"}
    assert [node.name for node in step.testbed.nodes] == ["node-0"]


def test_mpirun_without_a_known_version_passes_with_a_note(shared: Up, tmp_path: Path) -> None:
    run, testbed = with_mpirun(shared, tmp_path, 'exec mpirun "$@"', version="sleep 600")
    step = connectivity(CheckContext(run, testbed))
    assert step.check.verdict is Verdict.PASS
    assert list(map(str, step.notes)) == [
        "the version of openmpi is not known on node-0, node-1, node-2"
    ]
    assert "openmpi" not in step.fingerprint


def test_no_shell_of_a_node_expands_the_arguments_of_mpirun(shared: Up, tmp_path: Path) -> None:
    """mpirun starts its daemons through shells on the nodes; what those would expand, cluster files
    may not hold.
    """
    words = [
        f"x;>{tmp_path}/made",
        f"x|tee>{tmp_path}/made",
        f"x&>{tmp_path}/made",
        "*",
        "a'b",
        "~",
        "#",
        "two words",
    ]
    args = tuple(
        word for n, value in enumerate(words) for word in ("--mca", f"seatrial_{n}", value)
    )
    _, testbed = shared
    result = mpirun(replace(testbed, mpirun_args=args), ["env"], timeout_s=60)
    assert result.ok, result
    for n, value in enumerate(words):
        assert result.lines.count(f"OMPI_MCA_seatrial_{n}={value}") == 3
    assert not (tmp_path / "made").exists()
