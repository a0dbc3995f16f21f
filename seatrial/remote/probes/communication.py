"""The share of a step that each group's communication takes, from one profiled step.

It is the time of NCCL's kernels by process group, which PyTorch's profiler records with each
kernel. It includes the wait for slower ranks, and overlaps with computation. gloo shows no groups,
so all is `all`. Copied to the nodes next to training.py.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

_GROUP = "Process Group Description"


def shares_of_groups(step: Callable[[], None], device: torch.device) -> dict[str, float]:
    """Run one more step on every rank; return each group's share of its time on rank 0, {} on
    others.

    Shares may add up to more than 1, as kernels of several groups run at once.
    """
    if dist.get_world_size() == 1:
        return {}
    if dist.get_rank():
        step()
        return {}
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CUDA] if on_gpu else []
    with profile(activities=[ProfilerActivity.CPU, *activities]) as profiler:
        began = time.perf_counter()
        step()
        if on_gpu:
            torch.cuda.synchronize()
        step_us = (time.perf_counter() - began) * 1e6
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    return shares(events, step_us)


def shares(events: Iterable[dict[str, Any]], step_us: float) -> dict[str, float]:
    """Return each group's share of a step of `step_us` microseconds, from the events of a trace.

    Only complete events (X) of kernels have a duration; those without a group count as `all`.
    """
    taken: dict[str, float] = {}
    for event in events:
        name = str(event.get("name", ""))
        if event.get("ph") != "X" or not name.startswith(("ncclDevKernel", "ncclKernel", "gloo:")):
            continue
        group = str(event.get("args", {}).get(_GROUP) or "all").removeprefix("mesh_")
        taken[group] = taken.get(group, 0.0) + float(event.get("dur", 0.0))
    return {group: round(us / step_us, 4) for group, us in sorted(taken.items())}
