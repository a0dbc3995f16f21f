"""A model on a device with its data, data parallel over the ranks. Copied to the nodes next to training.py."""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any

import datasets
import models
import torch
from rendezvous import CannotStart, RankPlacement
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

gc.disable()  # as in rendezvous.py: a fifth of what this import takes
with suppress(ImportError):  # of a torch before 2.0
    import torch._dynamo  # DistributedDataParallel and optimizers import it when they are made
gc.enable()

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_PAIRS = 4  # steps with and without communication that are compared, the first pair left out

Batch = tuple[torch.Tensor, torch.Tensor]


class Trainer:
    """A model on a device, data parallel over the ranks, with its optimizer and its data."""

    def __init__(self, options: argparse.Namespace, here: RankPlacement, device: str) -> None:
        self.options, self.here, self.device = options, here, torch.device(device)
        workload = models.workload(options.model, options.size, options.image_size, options.classes)
        self.batches = (
            synthetic(workload, options, here, device) if options.data == "synthetic" else real(options, device)
        )
        self.model: nn.Module = workload.model.to(device)
        self.flops = None if options.model == "tiny" else flops_per_sample(self.model, workload, device)
        ids = None if device == "cpu" else [here.local_rank]
        self.parallel = DistributedDataParallel(self.model, device_ids=ids)
        self.forward: Callable[..., Any] = torch.compile(self.parallel) if options.compile else self.parallel
        self.optimizer = workload.optimizer(self.model.parameters(), lr=options.lr or workload.lr)
        grad_scaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)  # where torch before 2.3 has it
        self.scaler = grad_scaler(enabled=options.precision == "fp16")

    def autocast(self) -> AbstractContextManager[None]:
        precision = PRECISIONS[self.options.precision]
        return nullcontext() if precision is torch.float32 else torch.autocast(self.device.type, precision)

    def loss(self, batch: Batch) -> torch.Tensor:
        inputs, labels = batch
        with self.autocast():
            logits = self.forward(inputs)
            return cross_entropy(logits.flatten(0, -2), labels.flatten())

    def update(self, loss: torch.Tensor) -> None:
        """The backward pass, in which gradients mix, and the optimizer's step."""
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.wait()

    def wait(self) -> None:
        """Until the device has done what it was told."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def timed(self, work: Callable[[], object]) -> float:
        """Seconds that the work takes."""
        self.wait()
        started = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - started


def synthetic(
    workload: models.Workload, options: argparse.Namespace, here: RankPlacement, device: str
) -> Iterator[Batch]:
    """Batches without end, made on the device; each depends on seed, step and rank alone."""
    generator, step = torch.Generator(device), 0
    while True:
        generator.manual_seed((options.seed * 1_000_003 + step) * 100_003 + here.rank)
        yield workload.batch(options.batch, generator)
        step += 1


def real(options: argparse.Namespace, device: str) -> Iterator[Batch]:
    """Batches without end of this rank's part of the data, shuffled anew for each pass. Raises CannotStart."""
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
        raise CannotStart(f"{len(dataset)} images in {options.data_dir} are no batch of {options.batch} for every rank")
    if options.epochs:
        options.steps = options.epochs * len(loader)
    return _passes(loader, sampler, options.image_size, device)


def _passes(loader: DataLoader, sampler: DistributedSampler, pixels: int, device: str) -> Iterator[Batch]:
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        try:
            for images, labels in loader:
                inputs = datasets.as_inputs(images.to(device, non_blocking=True), pixels)
                yield inputs, labels.to(device, non_blocking=True)
        except CannotStart as error:  # of a loader's process: the last line of its traceback
            raise CannotStart(str(error).strip().splitlines()[-1].rpartition("CannotStart: ")[2]) from error
        epoch += 1


def flops_per_sample(model: nn.Module, workload: models.Workload, device: str) -> float | None:
    """The floating point operations of a forward and a backward pass, a multiplication and an addition being two.

    None by a torch before 2.1, which does not count them.
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
    """The part of a forward and backward pass that is gone when the ranks exchange no gradients; None for one rank."""
    if trainer.here.world_size == 1:
        return None
    batch = next(trainer.batches)

    def alone() -> None:
        with trainer.parallel.no_sync():
            trainer.scaler.scale(trainer.loss(batch)).backward()

    def together() -> None:
        trainer.scaler.scale(trainer.loss(batch)).backward()

    pairs = [(trainer.timed(alone), trainer.timed(together)) for _ in range(1 + _PAIRS)][1:]
    without, with_others = (statistics.median(times) for times in zip(*pairs, strict=True))
    return float(max(0.0, 1 - without / with_others))


def inference_rate(trainer: Trainer) -> float | None:
    """Samples/s of this rank's model without training, in the same precision; None where it was not asked for."""
    count, batch = trainer.options.inference_steps, next(trainer.batches)
    if not count:
        return None
    trainer.model.eval()
    with torch.inference_mode(), trainer.autocast():
        forward = partial(trainer.model, batch[0])
        trainer.timed(lambda: [forward() for _ in range(3)])
        seconds = trainer.timed(lambda: [forward() for _ in range(count)])
    return float(count * len(batch[0]) / seconds)
