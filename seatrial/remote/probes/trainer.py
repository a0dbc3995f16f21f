"""A model on a device with its data, data parallel over the ranks, and the results of its training.

Copied to the nodes next to training.py.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import math
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from typing import Any

import datasets
import models
import rendezvous
import torch
import torch.distributed as dist
from rendezvous import CannotStart, Json, RankPlacement
from step_clock import median, p99, settled
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

gc.disable()  # as in rendezvous.py
with suppress(ImportError):  # torch before 2.0 lacks it
    import torch._dynamo  # otherwise imported by DistributedDataParallel and optimizers
gc.freeze()
gc.enable()

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_KEPT = (  # fields of the summary that keep their names
    "model",
    "data",
    "precision",
    "compile",
    "world_size",
    "device",
    "backend",
    "torch",
    "parameters",
    "batch_size_per_gpu",
    "communication_share",
)


class Trainer:
    """A model on a device, data parallel over the ranks, with its optimizer and its data.

    Every rank makes one. Raises CannotStart for data that cannot be read or is too little.
    """

    def __init__(self, options: Namespace, here: RankPlacement, device: str) -> None:
        self.options = options
        self.here = here
        self.device = torch.device(device)
        workload = models.workload(options.model, options.size, options.image_size, options.classes)
        if options.data == "synthetic":
            self.batches = synthetic(workload, options, here, device)
        else:
            self.batches = real(options, device)
        self.model: nn.Module = workload.model.to(device)
        self.flops = None
        if options.model != "tiny":
            self.flops = flops_per_sample(self.model, workload, device)
        ids = None if device == "cpu" else [here.local_rank]
        self.parallel = DistributedDataParallel(self.model, device_ids=ids)
        self.forward: Callable[..., Any] = self.parallel
        if options.compile:
            self.forward = torch.compile(self.parallel)
        self.optimizer = workload.optimizer(self.model.parameters(), lr=options.lr or workload.lr)
        # Its place before torch 2.3
        grad_scaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)
        self.scaler = grad_scaler(enabled=options.precision == "fp16")

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context of the precision; for fp32 one that does nothing."""
        precision = PRECISIONS[self.options.precision]
        context: AbstractContextManager[None] = nullcontext()
        if precision is not torch.float32:
            context = torch.autocast(self.device.type, precision)
        return context

    def loss(self, batch: models.Batch) -> torch.Tensor:
        """Return the loss of a batch: the mean cross entropy over all predictions."""
        inputs, labels = batch
        with self.autocast():
            return cross_entropy(self.forward(inputs).flatten(0, -2), labels.flatten())

    def update(self, loss: torch.Tensor) -> None:
        """Run the backward pass, which averages gradients over the ranks, and the optimizer's step.

        Returns when the device has finished.
        """
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.wait()

    def wait(self) -> None:
        """Wait until the device has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def timed(self, work: Callable[[], object]) -> float:
        """Return the seconds until the device has finished the work."""
        self.wait()
        started = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - started


def synthetic(
    workload: models.Workload, options: Namespace, here: RankPlacement, device: str
) -> Iterator[models.Batch]:
    """Yield endless batches, made on the device, which depend only on seed, step and rank.

    The samples can be learnt: labels follow from inputs.
    """
    generator = torch.Generator(device)
    for step in count():
        generator.manual_seed((options.seed * 1_000_003 + step) * 100_003 + here.rank)
        yield workload.batch(options.batch, generator)


def real(options: Namespace, device: str) -> Iterator[models.Batch]:
    """Return endless batches of this rank's part of the data, shuffled again for each epoch.

    Sets `options.steps` if the options give epochs. Raises CannotStart if the data is less than a
    batch for every rank.
    """
    dataset = datasets.open_dataset(options.data, options.data_dir, options.image_size)
    sampler = DistributedSampler(dataset, seed=options.seed, drop_last=True)
    loader = DataLoader(
        dataset,
        options.batch,
        sampler=sampler,
        drop_last=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
        pin_memory=device != "cpu",
    )
    if not len(loader):
        raise CannotStart(
            f"{len(dataset)} images in {options.data_dir} are no batch of {options.batch} "
            "for every rank"
        )
    if options.epochs:
        options.steps = options.epochs * len(loader)
    return _passes(loader, sampler, options.image_size, device)


def _passes(
    loader: DataLoader, sampler: DistributedSampler, pixels: int, device: str
) -> Iterator[models.Batch]:
    """Yield endless batches, epoch by epoch.

    Raises CannotStart for a broken file of the data.
    """
    for epoch in count():
        sampler.set_epoch(epoch)
        try:
            for images, labels in loader:
                inputs = datasets.as_inputs(images.to(device, non_blocking=True), pixels)
                yield inputs, labels.to(device, non_blocking=True)
        # From a loader process: the message is the last line of its traceback
        except CannotStart as error:
            last_line = str(error).strip().splitlines()[-1]
            raise CannotStart(last_line.rpartition("CannotStart: ")[2]) from error


def flops_per_sample(model: nn.Module, workload: models.Workload, device: str) -> float | None:
    """Return the floating point operations of a forward and a backward pass; a multiply-add counts
    as two.

    Counted on two samples, one pass each way. None by a torch before 2.1, which does not count
    them.
    """
    try:
        from torch.utils.flop_counter import FlopCounterMode
    except ModuleNotFoundError:
        return None
    inputs, labels = workload.batch(2, torch.Generator(device).manual_seed(0))
    with FlopCounterMode(display=False) as counter:
        cross_entropy(model(inputs).flatten(0, -2), labels.flatten()).backward()
    model.zero_grad()
    return float(counter.get_total_flops()) / 2


def communication_share(trainer: Trainer) -> float | None:
    """Return the share of a forward and backward pass that exchanging gradients takes; None for one
    rank.

    By the medians of four passes with and without the exchange. Every rank calls this.
    """
    if trainer.here.world_size == 1:
        return None
    batch = next(trainer.batches)

    def together() -> None:
        trainer.scaler.scale(trainer.loss(batch)).backward()

    def alone() -> None:
        with trainer.parallel.no_sync():
            together()

    pairs = [(trainer.timed(alone), trainer.timed(together)) for _ in range(5)]
    # The first pair is the warm-up
    without, with_others = (statistics.median(times) for times in zip(*pairs[1:]))
    return float(max(0.0, 1 - without / with_others))


def inference_rate(trainer: Trainer) -> float | None:
    """Return samples/s of inference with this rank's model, in the same precision.

    None if it was not requested. The model stays in evaluation mode.
    """
    steps = trainer.options.inference_steps
    if not steps:
        return None
    batch = next(trainer.batches)
    trainer.model.eval()
    with torch.inference_mode(), trainer.autocast():
        forward = partial(trainer.model, batch[0])
        trainer.timed(lambda: [forward() for _ in range(3)])
        seconds = trainer.timed(lambda: [forward() for _ in range(steps)])
    return float(steps * len(batch[0]) / seconds)


@dataclass
class History:
    """Losses and times (ms) of one rank; `compute_ms` ends before the rank first waits for others.

    `losses` are means over the ranks; `finite` is whether this rank's own losses were finite.
    """

    losses: list[float] = field(default_factory=list)
    step_time_ms: list[float] = field(default_factory=list)
    compute_ms: list[float] = field(default_factory=list)
    finite: bool = True


def checksum(model: nn.Module) -> str:
    """Return the SHA-256 of the parameters' bytes, in order; equal on two ranks only if all bits
    are.
    """
    digest = hashlib.sha256()
    for parameter in model.parameters():
        # Keep a reference while its bytes are read; without numpy, which may be missing
        values = parameter.detach().cpu().contiguous()
        digest.update(ctypes.string_at(values.data_ptr(), values.numel() * values.element_size()))
    return digest.hexdigest()


def smoothed(losses: Sequence[float], steps: int) -> tuple[float | None, float | None]:
    """Return (first, last) loss, each the mean over a tenth of the steps, at most ten; None if not
    finite.

    `steps` is the requested number of steps.
    """
    span = min(10, max(1, steps // 10))
    means = [sum(part) / len(part) for part in (losses[:span], losses[-span:])]
    first, last = (mean if math.isfinite(mean) else None for mean in means)
    return first, last


def summary(trainer: Trainer, history: History) -> Json:
    """Return the last event, the same on every rank.

    Every rank calls this. After a loss that is not finite, nothing more is measured.
    """
    options = trainer.options
    here = trainer.here
    model = trainer.model
    step_time_ms = list(settled(history.step_time_ms, options.warmup))
    are_finite = (bool(torch.isfinite(parameter).all()) for parameter in model.parameters())
    mine = {
        "rank": here.rank,
        "host": here.host,
        "checksum": checksum(model),
        "finite": history.finite and all(are_finite),
        "step_time_ms_median": median(step_time_ms),
        "compute_ms_median": median(settled(history.compute_ms, options.warmup)),
    }
    broke_off = not all(math.isfinite(loss) for loss in history.losses)
    mine["communication_share"] = None if broke_off else communication_share(trainer)
    mine["inference_samples_s"] = None if broke_off else inference_rate(trainer)
    ranks = rendezvous.report(mine, str(trainer.device))
    shares = [rank.pop("communication_share") for rank in ranks]
    rates = [rank.pop("inference_samples_s") for rank in ranks]
    first_loss, last_loss = smoothed(history.losses, options.steps)
    seconds = sum(step_time_ms) / 1e3
    rate = options.batch * here.world_size * len(step_time_ms) / seconds if seconds else None
    return {
        "event": "summary",
        "model": f"transformer {options.size}" if options.model == "transformer" else options.model,
        "precision": options.precision,
        "data": options.data,
        "compile": options.compile,
        "batch_size_per_gpu": options.batch,
        "image_size": options.image_size,
        "device": torch.cuda.get_device_name() if trainer.device.type == "cuda" else "cpu",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "torch": torch.__version__,
        "backend": dist.get_backend(),
        "world_size": here.world_size,
        "steps": len(history.step_time_ms),
        "first_loss": first_loss,
        "last_loss": last_loss,
        "throughput_samples_s": rate,
        "flops_per_sample": trainer.flops,
        "communication_share": None if None in shares else statistics.median(shares),
        "inference_samples_s": None if None in rates else sum(rates),
        "step_time_ms": step_time_ms,
        "ranks": ranks,
    }


def results(summary: Json, options: Namespace) -> Json:
    """Return the summary for people, over the steps after the warm-up; `mfu` is a fraction of
    --peak-tflops.

    Figures that were not measured are None.
    """
    seconds = [time_ms / 1e3 for time_ms in summary["step_time_ms"]]
    samples = options.batch * summary["world_size"]
    rate = summary["throughput_samples_s"]
    flops = summary["flops_per_sample"]
    tflops = None
    if rate and flops:
        tflops = rate * flops / summary["world_size"] / 1e12
    first = summary["first_loss"]
    last = summary["last_loss"]
    return {
        **{name: summary[name] for name in _KEPT},
        "global_batch_size": samples,
        "total_samples": samples * len(seconds),
        "total_time_seconds": sum(seconds),
        "average_step_time_seconds": statistics.mean(seconds) if seconds else None,
        "median_step_time_seconds": median(seconds),
        "p99_step_time_seconds": p99(seconds),
        "throughput_samples_per_second": rate,
        "inference_samples_per_second": summary["inference_samples_s"],
        "tflops_per_gpu": tflops,
        "mfu": tflops / options.peak_tflops if tflops and options.peak_tflops else None,
        "loss_start": first,
        "loss_end": last,
        **({"transformer": asdict(options.size)} if options.model == "transformer" else {}),
        "improved": first is not None and last is not None and last < first,
    }
