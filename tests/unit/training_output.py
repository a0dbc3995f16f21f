"""What the probe of the step `training` prints, and the nodes that it ran on."""

import json
from collections.abc import Sequence
from typing import Any

from seatrial.config.cluster import Cluster
from seatrial.remote.ranks import RankLine

LAB = Cluster.model_validate({"name": "lab", "nodes": 4, "platform": {"kind": "local"}})


def rank(i: int, **changes: Any) -> dict[str, Any]:
    same = {"rank": i, "host": f"node-{i}", "checksum": "ab" * 32, "finite": True}
    return {**same, "step_time_ms_median": 10.0 + i, "compute_ms_median": 4.0, **changes}


def printed(
    losses: Sequence[float | None] = (4.0, 3.0, 2.0, 1.0), **changes: Any
) -> list[RankLine]:
    """What the ranks print: rank 0 one line per step, each rank its part, then rank 0 the
    summary.
    """
    steps = [
        {"event": "step", "step": i, "loss": loss, "step_time_ms": 10.0}
        for i, loss in enumerate(losses)
    ]
    summary: dict[str, Any] = {
        "event": "summary",
        "steps": len(losses),
        "world_size": 4,
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "throughput_samples_s": 800.0,
    }
    summary |= {"step_time_ms": [9.0, 10.0, 30.0], "ranks": [rank(i) for i in range(4)], **changes}
    events = [RankLine(json.dumps(event), 0) for event in [*steps, summary]]
    parts = [
        RankLine(json.dumps({"event": "part", **part}), part["rank"]) for part in summary["ranks"]
    ]
    return [*events[:-1], *parts, events[-1]]
