"""Train a transformer or a ResNet, data parallel over every rank; all ranks must end with the same
numbers.

    training.py [--model resnet50] [--data cifar10 --data-dir ./data] [--precision bf16]
        [--results results.json] ...

`--model llama` trains a decoder of Llama's shape instead, shared by the ranks in every way:
pretraining.py.

By hand, alone or under torchrun, mpirun or srun: on a GPU it trains resnet50 with 32 synthetic
images per rank, 50 warm-up and 100 more steps; without one `tiny`, in seconds. Models: models.py.
Data: synthetic samples that can be learnt, or those of datasets.py. Seeds are fixed.

Rank 0 prints JSON lines: {"event": "step", "step", "loss", "step_time_ms"} and at the end {"event":
"summary", ...} with a checksum of every rank's parameters. A loss that is not finite ends the run,
and is null in JSON. Exit statuses: rendezvous.py.
"""

from __future__ import annotations

import json
import math
import os
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

import hang  # before torch, as it reports a missing one
import rendezvous
import torch
import torch.distributed as dist
from command_line import OF_RANKS, PEAK_TFLOPS, Option, asked, option_of, parser_of
from datasets import SOURCES, download
from models import MODELS, TransformerSize
from rendezvous import WRONG_RESULT, CannotStart, RankPlacement, placement
from trainer import PRECISIONS, History, Trainer, results, summary

_BY_HAND = {  # defaults by device type
    "cpu": {"model": "tiny", "batch": 8, "steps": 20, "warmup": 2},
    "cuda": {"model": "resnet50", "batch": 32, "steps": 150, "warmup": 50},
}


# Share of a collective's timeout after which ranks report that they hang
_BEFORE_TIMEOUT = 0.8
_SIZES = fields(TransformerSize)
_OPTIONS: tuple[Option, ...] = (
    (
        "--model",
        (*MODELS, "llama"),
        None,
        "resnet50, on processors tiny; or llama: --model llama --help",
    ),
    ("--data", ("synthetic", *SOURCES), "synthetic", None),
    ("--data-dir", str, "./data", "where the data is"),
    ("--download", bool, False, "fetch the data that is not there, not imagenet"),
    *(option_of(size, f"of a transformer: {size.default}") for size in _SIZES),
    ("--classes", int, None, "1000, or as many as the data has"),
    ("--image-size", int, None, "pixels of an image's side: 224; 32 for small images"),
    ("--batch", int, None, "samples per rank and step: 32; on processors 8"),
    ("--steps", int, None, "150; on processors 20"),
    ("--warmup", int, None, "first steps, which are not timed: 50; on processors 2"),
    ("--epochs", int, None, "passes over the data, in place of --steps"),
    ("--lr", float, None, "0.01 for a ResNet; the model's own where unset"),
    ("--precision", tuple(PRECISIONS), "fp32", "fp16 scales the loss"),
    ("--compile", bool, False, "by torch.compile, which needs a C compiler"),
    ("--workers", int, 0, "processes that read images, for each rank"),
    ("--inference-steps", int, 0, "batches to infer after training, timed"),
    PEAK_TFLOPS,
    ("--results FILE", str, None, "write the figures there, as JSON"),
    ("--seed", int, 1, None),
    ("--device", ("cpu", "cuda"), None, "that of BACKEND, or a GPU if there is one"),
    *OF_RANKS,
)
# Kept until the process ends: torch 1.13 may wait forever when it destroys a distributed model
_KEPT: list[Trainer] = []


def over_ranks(value: float, device: str) -> list[float]:
    """Return the value of every rank, by rank. Every rank calls this, and waits for the others."""
    mine = torch.tensor([value], dtype=torch.float64, device=device)
    return [float(theirs) for theirs in rendezvous.gathered(mine)]


def train(trainer: Trainer, watchdog: hang.Watchdog) -> History:
    """Run the steps.

    The ranks' losses are compared before gradients mix, so a NaN is seen where it arose. A loss
    that is not finite on any rank ends the training on all.
    """
    options = trainer.options
    here = trainer.here
    history = History()
    for step in range(options.steps):
        if step:  # the first step may take long, to compile and select kernels
            watchdog.beat(step)
        started = time.perf_counter()
        loss = trainer.loss(next(trainer.batches))
        mine = float(loss.detach())
        history.compute_ms.append((time.perf_counter() - started) * 1e3)
        # Here the rank waits for the slowest one
        losses = over_ranks(mine, str(trainer.device))
        history.losses.append(sum(losses) / len(losses))
        if not math.isfinite(history.losses[-1]):
            history.finite = math.isfinite(mine)
            report(here, event="step", step=step, loss=None, step_time_ms=None)
            break
        trainer.update(loss)
        history.step_time_ms.append((time.perf_counter() - started) * 1e3)
        report(
            here,
            event="step",
            step=step,
            loss=history.losses[-1],
            step_time_ms=history.step_time_ms[-1],
        )
    return history


def report(here: RankPlacement, **event: Any) -> None:
    """Print an event as a line of JSON, on rank 0 alone."""
    if here.rank == 0:
        print(json.dumps(event), flush=True)


def default_device() -> str:
    """Return the device type for BACKEND, else "cuda" if torch sees a GPU, else "cpu"."""
    if os.environ.get("BACKEND"):
        return str(placement.device(os.environ))
    if torch.cuda.is_available():
        return "cuda"
    return "cpu"


def main(arguments: Sequence[str]) -> int:
    """Train, and report; return the exit status: `WRONG_RESULT` where ranks differ, or not all is
    finite.
    """
    if is_llama(arguments):
        try:
            import pretraining
        except ImportError as error:
            raise CannotStart(
                f"--model llama needs torch 2.6 or later, this is {torch.__version__}: {error}"
            ) from error
        return int(pretraining.main(arguments))
    options = parse(arguments)  # first, so that bad options end all ranks in the same way
    here, device = rendezvous.begin(options)
    hang.record_collectives()
    rendezvous.join(here, options, device)
    if options.download and options.data != "synthetic" and here.local_rank == 0:
        download(options.data, options.data_dir)
    over_ranks(0, device)  # wait until downloads are complete
    torch.manual_seed(options.seed)
    # Shapes never change, so searching for the fastest convolution pays off
    torch.backends.cudnn.benchmark = True
    trainer = Trainer(options, here, device)
    with hang.Watchdog(here.rank, here.host, _BEFORE_TIMEOUT * options.timeout_s) as watchdog:
        history = train(trainer, watchdog)
    result = summary(trainer, history)
    report(here, **result)
    if options.results and here.rank == 0:
        figures = json.dumps(results(result, options), indent=2)
        Path(options.results).write_text(figures + "\n")
    over_ranks(0, device)  # all have what they need before any leaves
    dist.destroy_process_group()
    _KEPT.append(trainer)
    are_equal = len({rank["checksum"] for rank in result["ranks"]}) == 1
    are_finite = all(rank["finite"] for rank in result["ranks"])
    return 0 if are_equal and are_finite else WRONG_RESULT


def is_llama(arguments: Sequence[str]) -> bool:
    """Return whether the arguments select the decoder of pretraining.py.

    It is called before any option is parsed, as the two programs have different options.
    """
    words = " ".join(arguments).replace("=", " ")
    return "--model llama" in words


def parse(arguments: Sequence[str]) -> Namespace:
    """Return the options, with defaults for the device and the data; exit with 2 for bad ones.

    It depends on no other rank, so all ranks get the same result.
    """
    parser = parser_of("training.py", __doc__, _OPTIONS)
    options: Namespace = parser.parse_args(arguments)
    options.device = options.device or default_device()
    for name, value in _BY_HAND[options.device].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    options.size = TransformerSize(**asked(options, _SIZES))
    source = SOURCES.get(options.data, SOURCES["imagenet"])
    options.classes = options.classes or source.classes
    options.image_size = options.image_size or source.pixels
    for problem in problems(options):
        parser.error(problem)
    return options


def problems(options: Namespace) -> Iterator[str]:
    """Yield why the options cannot be trained, a sentence for each."""
    is_trained = min(options.steps, options.batch) >= 1
    if not is_trained or min(options.warmup, options.workers, options.inference_steps) < 0:
        yield (
            "needs --steps and --batch of 1 or more, --warmup, --workers and "
            "--inference-steps of 0 or more"
        )
    if options.image_size < 32 or options.classes < 2:
        yield "needs --image-size of 32 or more and --classes of 2 or more"
    size = options.size
    if asked(options, _SIZES) and options.model != "transformer":
        yield (
            "layers, width, heads, sequence length and vocabulary are of transformer; "
            f"--model is {options.model}"
        )
    is_possible = min(astuple(size)) >= 1 and not size.width % size.heads
    if not is_possible or min(size.sequence_length, size.vocabulary) < 2:
        yield (
            "needs --layers of 1, --sequence-length and --vocabulary of 2 or more, --width "
            "that --heads divides"
        )
    if options.data != "synthetic" and not options.model.startswith("resnet"):
        yield (
            f"{options.data} is for resnet18 and resnet50; {options.model} learns synthetic "
            "data alone"
        )
    if options.data != "synthetic":
        classes = SOURCES[options.data].classes
        if options.classes < classes:
            yield f"{options.data} has {classes} classes, --classes is {options.classes}"
    if options.epochs is not None and (options.epochs < 1 or options.data == "synthetic"):
        yield "needs --epochs of 1 or more, and data that ends"
    if options.compile and not hasattr(torch, "compile"):
        yield f"--compile needs torch 2.0 or later; this is {torch.__version__}"
    if options.precision == "fp16" and options.device == "cpu":
        yield "fp16 needs a GPU; bf16 runs on processors too"


if __name__ == "__main__":
    rendezvous.run("training", main)
