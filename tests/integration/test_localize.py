"""A node that slows after connectivity, on real nodes: named by what it tells alone, and by rounds of pairs."""

import subprocess
import time
from dataclasses import replace
from typing import Any

from seatrial.checks.collectives.section import Collectives
from seatrial.checks.connectivity.check import connectivity
from seatrial.checks.contract import CheckContext
from seatrial.config.run import Suite, setup_of
from seatrial.judge.knowledge import RunContext
from seatrial.localize.in_run import Localized, localize_run
from seatrial.model.reason import code_of
from seatrial.model.result import Check
from seatrial.model.verdict import Verdict
from tasks.check import judge_of
from tests.integration.conftest import LocalTestbed

SIZES: dict[str, Any] = {"min_bytes": 1 << 20, "max_bytes": 2 << 20, "warmup_iterations": 1, "iterations": 3}
SLOW = Check("collectives", Verdict.FAIL, "all_reduce is slow")


def with_sizes(suite: Suite) -> Suite:
    section = suite.section(Collectives)
    assert section is not None
    update = {"cpu": section.cpu.model_copy(update=SIZES), "timeout_s": 300}
    return suite.model_copy(update={"collectives": section.model_copy(update=update)})


def nodes_of(found: Localized) -> list[str]:
    return [suspect.name for suspect in found.step.check.suspects]


def test_a_node_that_slows_after_connectivity_is_named(local_testbed: LocalTestbed) -> None:
    rates = [{"node": f"node-{i}", "rate": "200mbit"} for i in range(4)]
    with local_testbed(nodes=4, faults=rates) as (quick, testbed):
        run = replace(quick, suite=with_sizes(quick.suite))
        step = connectivity(CheckContext(run, testbed))
        assert (step.check.verdict, step.check.suspects) == (Verdict.PASS, ())
        context = CheckContext(run, step.testbed, step.facts, (step.kept,))
        shaper = ("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", "10mbit")
        namespace = f"seatrial-{run.run_id}-node-2"
        limits = ("burst", "32kbit", "latency", "400ms")
        subprocess.run(["ip", "netns", "exec", namespace, *shaper, *limits], check=True)
        until = time.monotonic() + 3600
        judge = judge_of(setup_of(run.cluster), None, RunContext("test", "quick"))
        alone = localize_run(context, [step.check, SLOW], judge, until)
        assert (nodes_of(alone), code_of(alone.step.check.reason)) == (["node-2"], "localize-measured-again")
        assert not list(run.logs.glob("localize-*"))
        by_pairs = localize_run(context, [step.check, SLOW], lambda *_: [], until)
    assert (nodes_of(by_pairs), code_of(by_pairs.step.check.reason)) == (["node-2"], "localize-node")
    assert by_pairs.step.check.suspects[0].confidence >= 0.95
    assert len(list(run.logs.glob("localize-*.log"))) == len(by_pairs.document["tests"]) >= 4
