"""What every platform promises: `class TestPromises(Promises)` beside a fixture `run` of the
platform tries it there.

`run` is a Run of several nodes; tests/quick_run.py makes one. A stranger is the same platform as
another process sees it, with nothing in memory.
"""

from collections.abc import Iterator

import pytest

from seatrial.config.run import Run, secrets_of
from seatrial.model.errors import InputError
from seatrial.model.testbed import Node, Testbed
from seatrial.platforms import Platform, platform_for
from seatrial.platforms import state as states
from seatrial.remote.command import run_command
from seatrial.remote.ssh import answers, connected, on_each


def host_name(testbed: Testbed, node: Node) -> str:
    with connected(testbed, node, 10) as transport:
        return run_command(transport, "hostname", timeout_s=120).output.strip()


class Promises:
    """The same assertions for all of them."""

    @pytest.fixture
    def platform(self, run: Run) -> Platform:
        return platform_for(run.cluster)

    @pytest.fixture
    def stranger(self, run: Run) -> Platform:
        return platform_for(run.cluster)

    @pytest.fixture
    def launched(self, platform: Platform, run: Run, nothing_left: None) -> Iterator[Testbed]:
        try:
            yield platform.launch(run)
        finally:
            platform.teardown(run.run_id)

    def test_render_has_no_side_effects_and_is_deterministic(
        self, platform: Platform, run: Run
    ) -> None:
        first, second = platform.render(run), platform.render(run)
        assert first == second
        assert first.files
        assert all(text.strip() for text in first.files.values())
        assert not any("PRIVATE KEY" in text for text in first.files.values())
        assert run.run_id not in {leftover.run_id for leftover in platform.leftovers()}

    def test_nodes_of_a_launched_testbed_answer_and_another_process_can_attach(
        self, platform: Platform, stranger: Platform, run: Run, launched: Testbed
    ) -> None:
        assert len(launched.nodes) == run.cluster.nodes
        assert all(node.host_key.startswith("ssh-ed25519 ") for node in launched.nodes)
        assert {node.port for node in launched.nodes} == {run.cluster.ssh_port}
        names = on_each(launched.nodes, lambda node: host_name(launched, node))
        assert len(set(names.values())) == run.cluster.nodes
        assert run.run_id not in {leftover.run_id for leftover in platform.leftovers()}
        attached = stranger.attach(run.run_id)
        assert (attached.nodes, attached.user, attached.key_file) == (
            launched.nodes,
            launched.user,
            launched.key_file,
        )
        assert on_each(attached.nodes, lambda node: host_name(attached, node)) == names
        platform.collect(run.run_id, run.logs, 30, secrets_of(run.cluster))
        logs = [path.read_text() for path in run.logs.rglob("*.log")]
        assert sum("Accepted publickey for" in log for log in logs) == run.cluster.nodes
        assert not any("PRIVATE KEY" in log for log in logs)
        head, *others = launched.nodes
        with connected(launched, head, 10) as transport:
            for other in others:
                done = run_command(
                    transport, f"ssh -p {other.port} {other.address} hostname", timeout_s=120
                )
                assert (done.exit_status, done.output.strip()) == (0, names[other.name])

    def test_teardown_works_from_another_process_and_is_idempotent(
        self, stranger: Platform, run: Run, launched: Testbed
    ) -> None:
        stranger.teardown(run.run_id)
        stranger.teardown(run.run_id)
        assert not answers(launched, launched.head, 2)
        with pytest.raises(InputError, match=run.run_id):
            stranger.attach(run.run_id)

    def test_a_kept_run_is_a_leftover_when_its_time_is_over(
        self, platform: Platform, stranger: Platform, run: Run, launched: Testbed
    ) -> None:
        assert platform.keep(run.run_id, 600)
        assert run.run_id not in {leftover.run_id for leftover in stranger.leftovers()}
        assert host_name(launched, launched.head)
        folder = states.find(run.run_id)
        assert folder
        states.keep(folder, -1)
        assert run.run_id in {leftover.run_id for leftover in stranger.leftovers()}

    def test_keep_collect_and_teardown_of_a_run_that_never_came_up_do_nothing(
        self, platform: Platform, run: Run
    ) -> None:
        assert not platform.keep(run.run_id, 600)
        platform.collect(run.run_id, run.logs, 30, secrets_of(run.cluster))
        assert not run.logs.exists()
        platform.teardown(run.run_id)
        assert run.run_id not in {leftover.run_id for leftover in platform.leftovers()}
