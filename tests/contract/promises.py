"""What every platform promises: `class TestPromises(Promises)` beside the fixtures of a platform tries it there.

The fixtures: `run` (a Run of several nodes), `platform`, `stranger` (the same platform as another process sees it,
with nothing in memory) and `testbed` (the run launched, and torn down afterwards).
"""

import pytest

from seatrial.config.run import Run, secrets_of
from seatrial.model.errors import InputError
from seatrial.model.testbed import Node, Testbed
from seatrial.platforms import Platform
from seatrial.platforms import state as states
from seatrial.remote.command import run_command
from seatrial.remote.ssh import answers, connected, on_each


def host_name(testbed: Testbed, node: Node) -> str:
    with connected(testbed, node, 10) as transport:
        return run_command(transport, "hostname", timeout_s=10).output.strip()


class Promises:
    """The same assertions for all of them."""

    def test_rendering_changes_nothing_and_says_the_same_twice(self, platform: Platform, run: Run) -> None:
        before = platform.leftovers()
        first, second = platform.render(run), platform.render(run)
        assert first == second
        assert first.files
        assert all(text.strip() for text in first.files.values())
        assert not any("PRIVATE KEY" in text for text in first.files.values())
        assert platform.leftovers() == before

    def test_a_launched_testbed_answers(self, run: Run, testbed: Testbed) -> None:
        assert len(testbed.nodes) == run.cluster.nodes
        assert all(node.host_key.startswith("ssh-ed25519 ") for node in testbed.nodes)
        assert {node.port for node in testbed.nodes} == {run.cluster.ssh_port}
        names = on_each(testbed.nodes, lambda node: host_name(testbed, node))
        assert len(set(names.values())) == run.cluster.nodes

    def test_nodes_reach_each_other_by_address(self, testbed: Testbed) -> None:
        head, *others = testbed.nodes
        with connected(testbed, head, 10) as transport:
            for other in others:
                done = run_command(transport, f"ssh -p {other.port} {other.address} hostname", timeout_s=20)
                assert (done.exit_status, done.output.strip()) == (0, host_name(testbed, other))

    def test_teardown_needs_nothing_in_memory_and_may_come_twice(
        self, stranger: Platform, run: Run, testbed: Testbed
    ) -> None:
        stranger.teardown(run.run_id)
        stranger.teardown(run.run_id)
        assert not answers(testbed, testbed.head, 2)

    def test_teardown_of_a_run_that_never_was(self, platform: Platform) -> None:
        before = platform.leftovers()
        platform.teardown("test-never-was")
        assert [leftover.run_id for leftover in platform.leftovers()] == [leftover.run_id for leftover in before]

    def test_a_living_run_is_no_leftover(self, platform: Platform, run: Run, testbed: Testbed) -> None:
        assert testbed.nodes
        assert run.run_id not in {leftover.run_id for leftover in platform.leftovers()}

    def test_a_stranger_finds_the_same_testbed(self, stranger: Platform, run: Run, testbed: Testbed) -> None:
        attached = stranger.attach(run.run_id)
        assert (attached.nodes, attached.user, attached.key_file) == (testbed.nodes, testbed.user, testbed.key_file)
        assert on_each(attached.nodes, lambda node: host_name(attached, node)) == on_each(
            testbed.nodes, lambda node: host_name(testbed, node)
        )

    def test_a_run_that_is_over_is_not_found(
        self, stranger: Platform, platform: Platform, run: Run, testbed: Testbed
    ) -> None:
        platform.teardown(run.run_id)
        with pytest.raises(InputError, match=run.run_id):
            stranger.attach(run.run_id)

    def test_the_log_of_every_nodes_sshd_is_collected(self, platform: Platform, run: Run, testbed: Testbed) -> None:
        assert on_each(testbed.nodes, lambda node: host_name(testbed, node))
        platform.collect(run.run_id, run.logs, 30, secrets_of(run.cluster))
        logs = [path.read_text() for path in run.logs.rglob("*.log")]
        assert sum("Accepted publickey for" in log for log in logs) == run.cluster.nodes
        assert not any("PRIVATE KEY" in log for log in logs)

    def test_a_kept_run_is_a_leftover_when_its_time_is_over(
        self, platform: Platform, stranger: Platform, run: Run, testbed: Testbed
    ) -> None:
        assert platform.keep(run.run_id, 600)
        assert run.run_id not in {leftover.run_id for leftover in stranger.leftovers()}
        assert host_name(testbed, testbed.head)
        folder = states.find(run.run_id)
        assert folder
        states.keep(folder, -1)
        assert run.run_id in {leftover.run_id for leftover in stranger.leftovers()}

    def test_a_run_that_never_came_up_has_nothing_to_keep_or_collect(self, platform: Platform, run: Run) -> None:
        assert not platform.keep(run.run_id, 600)
        platform.collect(run.run_id, run.logs, 30, secrets_of(run.cluster))
        assert not run.logs.exists()
