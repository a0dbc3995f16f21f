"""Train a transformer or a ResNet, data parallel over every rank; all ranks must end with the same numbers.

    training.py [--model resnet50] [--data cifar10 --data-dir ./data] [--precision bf16] [--results results.json] ...

By hand, alone or under torchrun, mpirun or srun: on a GPU it trains resnet50 with 32 synthetic images per rank, 50
warm-up and 100 more steps; without one `tiny`, in seconds. Models: models.py. Data: synthetic samples that can be
learnt, or those of datasets.py. Seeds are fixed.

Rank 0 prints JSON lines: {"event": "step", "step", "loss", "step_time_ms"} and at the end {"event": "summary", ...}
with a checksum of every rank's parameters. A loss that is not finite ends the run, and is null in JSON. Exit statuses:
rendezvous.py.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

try:
    import datasets  # type: ignore[import-not-found]
    import models  # type: ignore[import-not-found]
    import rendezvous  # type: ignore[import-not-found]
    from rendezvous import WRONG_RESULT, CannotStart, RankPlacement, placement
except ModuleNotFoundError as missing:
    absent = (
        f"torch is missing for {sys.executable}"
        if missing.name == "torch"
        else f"{missing.name}.py is missing beside it"
    )
    sys.stderr.write(f"{sys.argv[0]}: cannot start: {absent}\n")
    sys.exit(3)
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

_BY_HAND = {  # what is trained where nothing is asked for, by the kind of device
    "cpu": {"model": "tiny", "batch": 8, "steps": 20, "warmup": 2},
    "cuda": {"model": "resnet50", "batch": 32, "steps": 150, "warmup": 50},
}
_PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_PAIRS = 4  # steps with and without communication that are compared, the first pair left out

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass
class History:
    """What one rank saw. Times are milliseconds; `compute_ms` ends where the rank first waits for the others."""

    losses: list[float] = field(default_factory=list)
    step_time_ms: list[float] = field(default_factory=list)
    compute_ms: list[float] = field(default_factory=list)
    finite: bool = True


def over_ranks(value: float, device: str) -> list[float]:
    """Every rank's value, by rank."""
    mine = torch.tensor([value], dtype=torch.float64, device=device)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return [float(theirs) for theirs in everyone]


class Trainer:
    """A model on a device, data parallel over the ranks, with its optimizer and its data."""

    def __init__(self, options: argparse.Namespace, here: RankPlacement, device: str) -> None:
        self.options, self.here, self.device = options, here, torch.device(device)
        workload = models.WORKLOADS[options.model](options.image_size, options.classes)
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
        precision = _PRECISIONS[self.options.precision]
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


def train(trainer: Trainer) -> History:
    """Run the steps. The ranks' losses are compared before gradients mix, so a NaN is seen where it arose."""
    options, here, history = trainer.options, trainer.here, History()
    for step in range(options.steps):
        started = time.perf_counter()
        loss = trainer.loss(next(trainer.batches))
        if options.poison == here.rank and step == options.steps // 2:
            loss = loss * math.nan
        mine = float(loss.detach())
        history.compute_ms.append((time.perf_counter() - started) * 1e3)
        losses = over_ranks(mine, str(trainer.device))
        history.losses.append(sum(losses) / len(losses))
        if not math.isfinite(history.losses[-1]):
            history.finite = math.isfinite(mine)
            report(here, event="step", step=step, loss=None, step_time_ms=None)
            break
        trainer.update(loss)
        history.step_time_ms.append((time.perf_counter() - started) * 1e3)
        report(here, event="step", step=step, loss=history.losses[-1], step_time_ms=history.step_time_ms[-1])
    return history


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


def report(here: RankPlacement, **event: Any) -> None:
    if here.rank == 0:
        print(json.dumps(event), flush=True)


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
        "model": options.model,
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
        "model": options.model,
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
        "improved": first is not None and last is not None and last < first,
    }


def diverge(model: nn.Module) -> None:
    """Change one parameter in a way that no loss shows."""
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3


def choose_device(requested: str, here: RankPlacement) -> str:
    """The torch device of this rank. Raises CannotStart when there is no GPU for it."""
    if requested == "cpu":
        return "cpu"
    index = int(placement.gpu_index(os.environ, here))
    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        raise CannotStart(f"torch {torch.__version__} sees {gpus} GPUs, local rank {here.local_rank} needs one")
    torch.cuda.set_device(index)
    return f"cuda:{index}"


def default_device() -> str:
    """That of BACKEND; where it is unset, a GPU if there is one."""
    if os.environ.get("BACKEND"):
        return str(placement.device(os.environ))
    return "cuda" if torch.cuda.is_available() else "cpu"


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    torch.set_num_threads(1)
    here = rendezvous.place(options)
    device = choose_device(options.device, here)
    rendezvous.join(here, options, "gloo" if device == "cpu" else "nccl")
    if options.download and options.data != "synthetic" and here.local_rank == 0:
        datasets.download(options.data, options.data_dir)
    over_ranks(0, device)  # nobody reads what is still being written
    torch.manual_seed(options.seed)
    torch.backends.cudnn.benchmark = True  # shapes never change: the fastest convolution is worth looking for
    trainer = Trainer(options, here, device)
    history = train(trainer)
    if options.diverge == here.rank:
        diverge(trainer.model)
    result = summary(trainer, history)
    report(here, **result)
    if options.results and here.rank == 0:
        Path(options.results).write_text(json.dumps(results(result, options, device), indent=2) + "\n")
    over_ranks(0, device)  # all have what they need before any leaves
    dist.destroy_process_group()
    same = len({rank["checksum"] for rank in result["ranks"]}) == 1
    return 0 if same and all(rank["finite"] for rank in result["ranks"]) else WRONG_RESULT


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="training.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=tuple(models.WORKLOADS), help="resnet50; on processors tiny")
    parser.add_argument("--data", choices=("synthetic", *datasets.SOURCES), default="synthetic")
    parser.add_argument("--data-dir", default="./data", help="where the data is")
    parser.add_argument("--download", action="store_true", help="fetch the data that is not there, not imagenet")
    parser.add_argument("--classes", type=int, help="1000, or as many as the data has")
    parser.add_argument("--image-size", type=int, help="pixels of an image's side: 224; 32 for small images")
    parser.add_argument("--batch", type=int, help="samples per rank and step: 32; on processors 8")
    parser.add_argument("--steps", type=int, help="150; on processors 20")
    parser.add_argument("--warmup", type=int, help="the first steps, whose time does not count: 50; on processors 2")
    parser.add_argument("--epochs", type=int, help="passes over the data, in place of --steps")
    parser.add_argument("--lr", type=float, help="0.01 for a ResNet; the model's own where unset")
    parser.add_argument("--precision", choices=tuple(_PRECISIONS), default="fp32", help="fp16 scales the loss")
    parser.add_argument("--compile", action="store_true", help="by torch.compile, which needs a C compiler")
    parser.add_argument("--workers", type=int, default=0, help="processes that read images, for each rank")
    parser.add_argument("--inference-steps", type=int, default=0, help="batches to infer after training, timed")
    parser.add_argument("--peak-tflops", type=float, help="of one GPU in that precision, for the MFU")
    parser.add_argument("--results", metavar="FILE", help="write the figures there, as JSON")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="that of BACKEND, or a GPU if there is one")
    parser.add_argument("--poison", type=int, metavar="RANK", help=argparse.SUPPRESS)  # these two are for tests
    parser.add_argument("--diverge", type=int, metavar="RANK", help=argparse.SUPPRESS)
    rendezvous.add_arguments(parser)
    options = parser.parse_args(arguments)
    options.device = options.device or default_device()
    for name, value in _BY_HAND[options.device].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    known = datasets.SOURCES.get(options.data, datasets.SOURCES["imagenet"])
    options.classes = options.classes or known.classes
    options.image_size = options.image_size or known.pixels
    for problem in problems(options):
        parser.error(problem)
    return options


def problems(options: argparse.Namespace) -> Iterator[str]:
    """What cannot be trained."""
    if min(options.steps, options.batch) < 1 or min(options.warmup, options.workers, options.inference_steps) < 0:
        yield "needs --steps and --batch of 1 or more, --warmup, --workers and --inference-steps of 0 or more"
    if options.image_size < 32 or options.classes < 2:
        yield "needs --image-size of 32 or more and --classes of 2 or more"
    if options.data != "synthetic" and not options.model.startswith("resnet"):
        yield f"{options.data} is for resnet18 and resnet50; {options.model} learns synthetic data alone"
    if options.data != "synthetic" and options.classes < datasets.SOURCES[options.data].classes:
        yield f"{options.data} has {datasets.SOURCES[options.data].classes} classes, --classes is {options.classes}"
    if options.epochs is not None and (options.epochs < 1 or options.data == "synthetic"):
        yield "needs --epochs of 1 or more, and data that ends"
    if options.compile and not hasattr(torch, "compile"):
        yield f"--compile needs torch 2.0 or later; this is {torch.__version__}"
    if options.precision == "fp16" and options.device == "cpu":
        yield "fp16 needs a GPU; bf16 runs on processors too"


if __name__ == "__main__":
    rendezvous.run("training", main)
