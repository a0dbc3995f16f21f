"""Two runs with realistic numbers, for tests of everything that reads a RunResult: a healthy and a
faulty one.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

from seatrial.catalog import physics, with_links
from seatrial.checks.connectivity.rates import measurements
from seatrial.checks.connectivity.slow_streams import slow_suspects
from seatrial.judge.assess import assess
from seatrial.judge.knowledge import Knowledge
from seatrial.model.measurement import ConditionValue, Measurement, Subject
from seatrial.model.reason import Reason, join, placed, uncoded
from seatrial.model.result import Check, Expected, Judgement, RunResult, Suspect, merge_suspects
from seatrial.model.setup import Setup
from seatrial.model.verdict import Verdict
from seatrial.qualify.coverage import Coverage
from seatrial.text.headline import conclude, next_steps
from tests.sample_sweeps import CLUSTER, h100_collectives, judge, local_collectives

STARTED = datetime(2026, 3, 14, 2, 0, 7, tzinfo=UTC)

_H100_SOFTWARE = {
    "image": "registry.example.com/acceptance@sha256:5b0f3c",
    "driver": "570.124.06",
    "cuda": "12.8",
    "nccl": "2.26.2",
    "kernel": "5.15.0-1078-nvidia",
    "openmpi": "4.1.7",
    "torch": "2.7.1",
}
_H100_TIMINGS = {
    "image": 4.2,
    "launch": 96.8,
    "connectivity": 5.9,
    "devices": 61.4,
    "collectives": 248.3,
    "training": 73.5,
    "localize": 88.1,
    "compare": 0.2,
    "teardown": 7.7,
}


def healthy_local() -> RunResult:
    """Suite quick on four local nodes, gloo: everything passes."""
    checks = [
        _connectivity(4, ranks=4),
        local_collectives(),
        _training(20, ranks=4, per_second=212.4),
    ]
    return _run(
        "20260314-0200-h4x9t",
        "local",
        "quick",
        checks,
        [
            {"name": f"node-{i}", "address": f"10.77.3.{i + 1}", "port": 222, "slots": 1, "gpus": 0}
            for i in range(4)
        ],
        {
            "kernel": "6.1.0-28-amd64",
            "openmpi": "4.1.4",
            "python": "3.11.9",
            "torch": "2.13.0",
            "backend": "gloo",
        },
        {
            "launch": 2.41,
            "connectivity": 3.12,
            "collectives": 21.74,
            "training": 9.63,
            "compare": 0.05,
            "teardown": 0.62,
        },
    )


def faulty_h100() -> RunResult:
    """Suite nightly on 8 x 8 H100: node-5's slow NIC drags every operation down; clocks and
    training are fine.
    """
    checks = [
        _connectivity(8, ranks=64),
        h100_collectives(),
        _training(100, ranks=64, per_second=11840.0),
        Check(
            "devices",
            Verdict.INCONCLUSIVE,
            uncoded(
                "node-2: DCGM diagnostics did not answer within 60 s; try dcgmi diag -r 1 there"
            ),
            61.4,
        ),
    ]
    return _run(
        "20260314-0200-k3f9a",
        "h100-east",
        "nightly",
        checks,
        [
            {
                "name": f"node-{i}",
                "address": f"10.20.0.{i + 11}",
                "port": 222,
                "slots": 8,
                "gpus": 8,
            }
            for i in range(8)
        ],
        _H100_SOFTWARE,
        _H100_TIMINGS,
    )


def broken_local() -> RunResult:
    """README's broken cluster on its first night: node-1 refuses connections, node-2 sends a
    sixtieth of its peers.
    """
    rates_by_sender = {"node-0": 1268.0, "node-2": 23.6, "node-3": 1250.0}
    streams = {(a, b): rates_by_sender[a] for a, b in permutations(rates_by_sender, 2)}
    refused = Suspect(
        "node", "node-1", 1.0, Reason.of("ssh-refused", address="10.77.0.3", port=222)
    )
    suspects = (refused, *slow_suspects(streams))
    reason = join(placed(suspect.name, suspect.evidence) for suspect in suspects)
    check = Check(
        "connectivity", Verdict.FAIL, reason, 5.6, tuple(measurements(streams)), suspects=suspects
    )
    nodes = [{"name": f"node-{n}", "address": f"10.77.0.{n + 2}"} for n in range(4)]
    checks = assess([check], Knowledge(Setup("cpu", 4, 0, 1))).checks
    verdict, why = conclude(checks, 4)
    run = replace(healthy_local(), verdict=verdict, reason=why, nodes=nodes, checks=checks)
    run = replace(
        run, suspects=merge_suspects(checks), since="since this run, the first of this suite here"
    )
    return replace(run, next_steps=next_steps(run))


def with_shares(result: RunResult) -> RunResult:
    """The run with what its plateaus are of what 8x400G InfiniBand carries."""
    setup = with_links(Setup("H100-SXM", 8, 8, 8, "IB-8x400G"))
    return replace(result, checks=[physics.with_shares(check, setup) for check in result.checks])


def coverage() -> Coverage:
    """One node that passed a day ago, one that never did."""
    nodes = {"n0": timedelta(days=1), "n1": None}
    gpus = {f"{name}/gpu-0": age for name, age in nodes.items()}
    return Coverage(nodes, gpus, {("a", "b"): None}, timedelta(days=7), timedelta(days=30), 1.5)


def night(
    result: RunResult, number: int, factor: float, verdict: Verdict = Verdict.PASS
) -> RunResult:
    """The same run `5 - number` nights before, every number of it times `factor`, with an older
    driver.
    """
    started = result.started - timedelta(days=5 - number)
    checks = [
        replace(
            check,
            measurements=tuple(replace(m, value=m.value * factor) for m in check.measurements),
            judgements=(),
        )
        for check in result.checks
    ]
    fingerprint = {**result.fingerprint, "driver": "565.57.01"}
    return replace(
        result,
        run_id=f"night-{number}",
        started=started,
        checks=checks,
        verdict=verdict,
        fingerprint=fingerprint,
    )


def hostile(text: str) -> RunResult:
    """A run in which every text that comes from outside is `text`."""
    measurement = Measurement(
        text, 1.0, text, Subject("node", text), {"operation": text, text: text}, (1.0,)
    )
    sweep = [
        Measurement(
            "busbw",
            1.0 + size,
            "GB/s",
            CLUSTER,
            {"operation": text, "message_bytes": size, "dtype": text},
        )
        for size in (1024, 4096)
    ]
    judgement = Judgement(measurement, Verdict.FAIL, uncoded(text), text, Expected(2.0, 3.0), -0.5)
    suspects = (Suspect("node", text, 0.9, uncoded(text)),)
    check = Check(
        text, Verdict.FAIL, uncoded(text), 1.0, (measurement, *sweep), (judgement,), suspects
    )
    node = {"name": text, "address": text, text: text}
    end = STARTED + timedelta(seconds=9)
    test = {
        "name": text,
        "nodes": [text, f"{text}2"],
        "gpus": [text],
        "busbw_gb_s": 1.0,
        "ratio": 0.3,
        "slow": True,
    }
    finding = {"code": None, "kind": "cut", "sides": [[text], [f"{text}2"]], "evidence": text}
    localization = {"reason": text, "findings": [finding], "collective": text, "tests": [test]}
    run = RunResult(
        text,
        text,
        text,
        STARTED,
        end,
        Verdict.FAIL,
        uncoded(text),
        [node],
        [check],
        suspects,
        {text: text},
        {text: 1.0},
    )
    return replace(run, localization=localization)


def _run(
    run_id: str,
    cluster: str,
    suite: str,
    checks: Sequence[Check],
    nodes: Sequence[dict[str, Any]],
    fingerprint: dict[str, str],
    timings: dict[str, float],
) -> RunResult:
    verdict, reason = conclude(checks)
    finished = STARTED + timedelta(seconds=sum(timings.values()))
    suspects = merge_suspects(checks)
    return RunResult(
        run_id,
        cluster,
        suite,
        STARTED,
        finished,
        verdict,
        reason,
        nodes,
        checks,
        suspects,
        fingerprint,
        timings,
    )


def _connectivity(nodes: int, ranks: int) -> Check:
    skews = [
        Measurement(
            "clock_skew", 0.0004 * (i % 3 - 1), "s", Subject("node", f"node-{i}"), better=None
        )
        for i in range(nodes)
    ]
    pings = [
        Measurement(
            "ssh_connect", 0.8 + 0.11 * (i % 4), "ms", Subject("node", f"node-{i}"), better=None
        )
        for i in range(nodes)
    ]
    reason = f"{nodes} of {nodes} nodes answer, reach each other and run MPI ({ranks} ranks)"
    return Check("connectivity", Verdict.PASS, uncoded(reason), 3.1, (*skews, *pings))


def _training(steps: int, ranks: int, per_second: float) -> Check:
    loss = tuple(
        5.55 * math.exp(-n / (steps * 0.45)) + 1.32 + 0.05 * math.sin(3 * n) for n in range(steps)
    )
    at: dict[str, ConditionValue] = {"ranks": ranks, "dtype": "float32"}
    drop = Measurement("loss_drop", 1 - loss[-1] / loss[0], "", CLUSTER, at)
    throughput = Measurement("throughput", per_second, "samples/s", CLUSTER, at)
    measured = (
        Measurement("loss", loss[-1], "", CLUSTER, at, loss, better=None),
        drop,
        throughput,
        Measurement("step_time", ranks * 8e3 / per_second, "ms", CLUSTER, at, better="lower"),
    )
    sane = Judgement(
        drop, Verdict.PASS, uncoded("the loss fell as it should"), "sanity", Expected(low=0.2), None
    )
    judged = (sane, judge(throughput, per_second * 1.02, 0.1, "history"))
    return Check(
        "training",
        Verdict.PASS,
        uncoded(f"loss {loss[0]:.2f} to {loss[-1]:.2f} in {steps} steps"),
        9.6,
        measured,
        judged,
    )


def with_codes(result: RunResult) -> RunResult:
    """The same run with reasons of the catalog, and one code that this version does not know."""
    (first, second, *others), suspect = result.checks, result.suspects[0]
    checks = [
        replace(first, verdict=Verdict.FAIL, reason=Reason.of("ranks-output-flood", seconds="3 s")),
        replace(second, reason=Reason("code-of-later", {}, "of a later version")),
        *others,
    ]
    blamed = replace(
        suspect, evidence=Reason.of("output-flood", excess="its ranks printed 90% of all output")
    )
    return replace(result, checks=checks, suspects=[blamed])
