"""What slows after connectivity, on real nodes: a node is named by its own numbers and by pairs, a
cut by pairs.
"""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from seatrial.checks.collectives.section import Collectives
from seatrial.checks.connectivity.check import connectivity
from seatrial.checks.contract import CheckContext
from seatrial.checks.localize.step import Localized, localize_run
from seatrial.config.run import Suite, setup_of
from seatrial.history.past import RunContext
from seatrial.model.reason import uncoded
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from seatrial.tasks.check import judge_of
from tests.integration.conftest import LocalTestbed
from tests.suspects import suspect_names

SIZES: dict[str, Any] = {
    "min_bytes": 1 << 17,
    "max_bytes": 1 << 19,
    "warmup_iterations": 1,
    "iterations": 3,
}
SLOW = Check("collectives", Verdict.FAIL, uncoded("all_reduce is slow"))


def with_sizes(suite: Suite) -> Suite:
    section = suite.section(Collectives)
    assert section is not None
    update = {"cpu": section.cpu.model_copy(update=SIZES), "timeout_s": 300}
    return suite.model_copy(update={"collectives": section.model_copy(update=update)})


def nodes_of(localized: Localized) -> list[str]:
    return suspect_names(localized.step.check)


@contextmanager
def slowed_after_connectivity(
    local_testbed: LocalTestbed,
) -> Iterator[tuple[CheckContext, list[Check]]]:
    """Four nodes of which node-2 has a twentieth of the others' rate once connectivity has
    passed.
    """
    with _connected(local_testbed, 4) as (context, checks):
        _slow_down(context, "node-2")
        yield context, checks


def _slow_down(context: CheckContext, node: str) -> None:
    shaper = "tc qdisc replace dev eth0 root tbf rate 10mbit burst 32kbit latency 400ms"
    subprocess.run(["ip", "netns", "exec", _namespace(context, node), *shaper.split()], check=True)


def _namespace(context: CheckContext, node: str) -> str:
    return f"seatrial-{context.run.run_id}-{node}"


@contextmanager
def _connected(
    local_testbed: LocalTestbed, nodes: int, *later: Any
) -> Iterator[tuple[CheckContext, list[Check]]]:
    """Nodes that passed connectivity, after which the faults `later` begin."""
    rates = [{"node": f"node-{i}", "rate": "200mbit"} for i in range(nodes)]
    with local_testbed(nodes=nodes, faults=[*rates, *later]) as (quick, testbed):
        run = replace(quick, suite=with_sizes(quick.suite))
        step = connectivity(CheckContext(run, testbed))
        assert (step.check.verdict, step.check.suspects) == (Verdict.PASS, ())
        testbed.after_check("connectivity")
        yield CheckContext(run, step.testbed, step.facts, (step.kept,)), [step.check, SLOW]


def test_slow_node_is_named_by_repeated_measurements_without_rounds(
    local_testbed: LocalTestbed,
) -> None:
    with slowed_after_connectivity(local_testbed) as (context, checks):
        judge = judge_of(setup_of(context.run.cluster), None, RunContext("test", "quick"))
        localized = localize_run(context, checks, judge, time.monotonic() + 3600)
        assert localized
    assert (nodes_of(localized), localized.step.check.reason.code) == (
        ["node-2"],
        "localize-measured-again",
    )
    assert not list(context.run.logs.glob("localize-*"))


@pytest.mark.slow
def test_slow_node_is_named_by_rounds_of_pairs(local_testbed: LocalTestbed) -> None:
    with slowed_after_connectivity(local_testbed) as (context, checks):
        localized = localize_run(context, checks, lambda *_: [], time.monotonic() + 3600)
        assert localized
    assert (nodes_of(localized), localized.step.check.reason.code) == (["node-2"], "localize-node")
    assert localized.step.check.suspects[0].confidence >= 0.95
    assert (
        len(list(context.run.logs.glob("localize-*.log"))) == len(localized.document["tests"]) >= 4
    )


@pytest.mark.slow
def test_a_slow_uplink_is_a_cut_with_both_sides(local_testbed: LocalTestbed) -> None:
    leaf = ["node-1", "node-3", "node-4", "node-6"]
    uplink = {"switch": leaf, "uplink": "10mbit", "after": "connectivity"}
    with _connected(local_testbed, 8, uplink) as (context, checks):
        localized = localize_run(context, checks, lambda *_: [], time.monotonic() + 3600)
        assert localized
    (finding,) = localized.document["findings"]
    assert (finding["kind"], nodes_of(localized)) == ("cut", [])
    assert leaf in finding["sides"]
    assert len(localized.step.testbed.nodes) == 8


@pytest.mark.slow
def test_a_node_that_dies_in_a_round_is_named_and_the_rest_goes_on(
    local_testbed: LocalTestbed,
) -> None:
    with _connected(local_testbed, 6) as (context, checks):
        _slow_down(context, "node-4")
        ended = threading.Event()

        def kill_in_the_first_round() -> None:
            while not any(log.stat().st_size for log in context.run.logs.glob("localize-1-*.log")):
                if ended.wait(0.05):
                    return
            pids = subprocess.check_output(
                ["ip", "netns", "pids", _namespace(context, "node-2")], text=True
            ).split()
            subprocess.run(["kill", "-KILL", *pids], check=False)  # some may have ended

        killer = threading.Thread(target=kill_in_the_first_round)
        killer.start()
        try:
            localized = localize_run(context, checks, lambda *_: [], time.monotonic() + 3600)
        finally:
            ended.set()
            killer.join()
        assert localized
    assert set(nodes_of(localized)) == {"node-2", "node-4"}
    assert all(suspect.confidence >= 0.95 for suspect in localized.step.check.suspects)
    assert "node-2" not in {node.name for node in localized.step.testbed.nodes}
    assert len(localized.step.testbed.nodes) == 5
