"""A nightly run on a thousand nodes of eight GPUs, a few of them ill, and the runs before it: for
limits of size.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from seatrial.history import RunRow
from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import uncoded
from seatrial.model.result import Judgement, RunResult, Suspect
from seatrial.model.verdict import Verdict
from seatrial.report.context import EarlierRuns, LogFile, Number, ReportContext, headlines
from seatrial.text.headline import conclude
from tests import sample_sweeps, samples

NODES = 1000
NIGHTS = 60
_PER_NODE = (
    ("connectivity", "tcp_egress", "MB/s", 11_800.0),
    ("connectivity", "tcp_ingress", "MB/s", 11_750.0),
    ("devices", "hbm_bandwidth", "GB/s", 3020.0),
    ("devices", "gemm", "TFLOPS", 712.0),
    ("devices", "pcie_h2d", "GB/s", 55.1),
    ("training", "step_time", "ms", 412.0),
)


def fleet_run() -> RunResult:
    """Three nodes are slow, one did not answer."""
    random.seed(7)
    base = samples.faulty_h100()
    names = [f"gpu-rack{n // 16:02}-node{n % 16:02}" for n in range(NODES)]
    ill = {names[17]: 0.62, names[380]: 0.81, names[999]: 0.86}
    checks = [
        replace(check, judgements=(*check.judgements, *_judged(check.name, names, ill)))
        for check in base.checks
    ]
    suspects = [
        Suspect("node", name, 0.9, uncoded(f"{name}: reaches {part:.0%} of its peers"))
        for name, part in ill.items()
    ]
    nodes = [
        {
            "name": name,
            "address": f"10.{n >> 8}.{n & 255}.7",
            "port": 222,
            "slots": 8,
            "gpus": 8,
            "gpu_model": "H100",
        }
        for n, name in enumerate(names)
    ]
    verdict, reason = conclude(checks)
    return replace(
        base, nodes=nodes, checks=checks, suspects=suspects, verdict=verdict, reason=reason
    )


def _judged(check: str, names: list[str], ill: dict[str, float]) -> Iterator[Judgement]:
    for of, metric, unit, centre in _PER_NODE:
        for name in names if of == check else ():
            if name == names[500]:
                continue  # it did not answer
            part = ill.get(name, 1.0) if metric in ("tcp_egress", "gemm") else 1.0
            m = Measurement(
                metric, centre * part * random.gauss(1, 0.004), unit, Subject("node", name)
            )
            yield from (
                sample_sweeps.judge(m, centre, 0.05, source) for source in ("history", "peers")
            )


def fleet_context(result: RunResult) -> ReportContext:
    """Sixty nights, of which one brought a new driver and less busbw; and a log per node."""
    rows = tuple(_night(result, n) for n in range(NIGHTS, 0, -1))
    numbers = {
        m.series(): {
            row.run_id: Number(m.value * (2 if n < 40 else 1) * random.gauss(1, 0.01), Verdict.PASS)
            for n, row in enumerate(rows)
        }
        for m in headlines(result)
    }
    logs = tuple(
        LogFile(f"nodes/{node['name']}.log", f"logs/nodes/{node['name']}.log", 4096)
        for node in result.nodes
    )
    return ReportContext(EarlierRuns(rows, rows[-1], numbers), logs, ("the last line",))


def _night(result: RunResult, days: int) -> RunRow:
    at = result.started - timedelta(days=days)
    fingerprint = {**result.fingerprint, "driver": "565.57.01" if days > 20 else "570.124.06"}
    return RunRow(
        f"night-{days}",
        result.cluster,
        result.suite,
        at,
        at,
        Verdict.PASS,
        fingerprint,
        "/runs",
        reason=uncoded("all pass"),
    )
