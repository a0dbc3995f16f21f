"""What a training came to: the summary that its ranks agree on, and the results that people keep as a file.

Copied to the nodes next to training.py.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import rendezvous
import torch
import torch.distributed as dist
from torch import nn
from trainer import Trainer, communication_share, inference_rate


@dataclass
class History:
    """What one rank saw. Times are milliseconds; `compute_ms` ends where the rank first waits for the others."""

    losses: list[float] = field(default_factory=list)
    step_time_ms: list[float] = field(default_factory=list)
    compute_ms: list[float] = field(default_factory=list)
    finite: bool = True


def checksum(model: nn.Module) -> str:
    """SHA-256 of the parameters' bytes, in order."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        values = parameter.detach().cpu().contiguous()  # held while its bytes are read; numpy may be missing
        digest.update(ctypes.string_at(values.data_ptr(), values.numel() * values.element_size()))
    return digest.hexdigest()


def all_finite(model: nn.Module) -> bool:
    return all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


def settled(times: Sequence[float], warmup: int) -> Sequence[float]:
    """The steps whose time counts: without the first ones, which build buckets, connections and kernels."""
    return times[warmup:] or times


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def smoothed(losses: Sequence[float], steps: int) -> tuple[float | None, float | None]:
    """(first, last) loss, each the mean over a tenth of the steps, at most ten; None where it is not finite."""
    span = min(10, max(1, steps // 10))
    means = [sum(part) / len(part) for part in (losses[:span], losses[-span:])]
    first, last = (mean if math.isfinite(mean) else None for mean in means)
    return first, last


def model_name(options: argparse.Namespace) -> str:
    """The model, with its size where that can be chosen: "transformer 6x512"."""
    return f"{options.model} {options.size}" if options.model == "transformer" else str(options.model)


def summary(trainer: Trainer, history: History) -> dict[str, Any]:
    """The last event, the same on every rank."""
    options, here, model = trainer.options, trainer.here, trainer.model
    step_time_ms = list(settled(history.step_time_ms, options.warmup))
    finite = history.finite and all_finite(model)
    mine = {
        "rank": here.rank,
        "host": here.host,
        "checksum": checksum(model),
        "finite": finite,
        "step_time_ms_median": median(step_time_ms),
        "compute_ms_median": median(settled(history.compute_ms, options.warmup)),
    }
    broke_off = not all(math.isfinite(loss) for loss in history.losses)
    mine["communication_share"] = None if broke_off else communication_share(trainer)
    mine["inference_samples_s"] = None if broke_off else inference_rate(trainer)
    ranks = [json.loads(text) for text in rendezvous.share(json.dumps(mine), str(trainer.device))]
    shares, rates = ([rank.pop(name) for rank in ranks] for name in ("communication_share", "inference_samples_s"))
    first_loss, last_loss = smoothed(history.losses, options.steps)
    seconds = sum(step_time_ms) / 1e3
    return {
        "event": "summary",
        "model": model_name(options),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "torch": torch.__version__,
        "backend": dist.get_backend(),
        "world_size": here.world_size,
        "steps": len(history.step_time_ms),
        "first_loss": first_loss,
        "last_loss": last_loss,
        "throughput_samples_s": options.batch * here.world_size * len(step_time_ms) / seconds if seconds else None,
        "flops_per_sample": trainer.flops,
        "communication_share": None if None in shares else statistics.median(shares),
        "inference_samples_s": None if None in rates else sum(rates),
        "step_time_ms": step_time_ms,
        "ranks": ranks,
    }


def results(summary: dict[str, Any], options: argparse.Namespace, device: str) -> dict[str, Any]:
    """The summary as people keep it, of the steps after the warm-up; `mfu` as a fraction of --peak-tflops."""
    seconds = [time_ms / 1e3 for time_ms in summary["step_time_ms"]]
    samples = options.batch * summary["world_size"]
    rate, flops = summary["throughput_samples_s"], summary["flops_per_sample"]
    tflops = rate * flops / summary["world_size"] / 1e12 if rate and flops else None
    first, last = summary["first_loss"], summary["last_loss"]
    return {
        "model": model_name(options),
        "data": options.data,
        "precision": options.precision,
        "compile": options.compile,
        "world_size": summary["world_size"],
        "device": torch.cuda.get_device_name() if device != "cpu" else "cpu",
        "backend": summary["backend"],
        "torch": summary["torch"],
        "parameters": summary["parameters"],
        "batch_size_per_gpu": options.batch,
        "global_batch_size": samples,
        "total_samples": samples * len(seconds),
        "total_time_seconds": sum(seconds),
        "average_step_time_seconds": statistics.mean(seconds) if seconds else None,
        "median_step_time_seconds": median(seconds),
        "p99_step_time_seconds": sorted(seconds)[math.ceil(0.99 * len(seconds)) - 1] if seconds else None,
        "throughput_samples_per_second": rate,
        "inference_samples_per_second": summary["inference_samples_s"],
        "tflops_per_gpu": tflops,
        "mfu": tflops / options.peak_tflops if tflops and options.peak_tflops else None,
        "communication_share": summary["communication_share"],
        "loss_start": first,
        "loss_end": last,
        **({"transformer": asdict(options.size)} if options.model == "transformer" else {}),
        "improved": first is not None and last is not None and last < first,
    }
