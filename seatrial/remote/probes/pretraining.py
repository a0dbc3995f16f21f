"""Train a decoder of Llama's shape over every rank: tokens per second, where the time goes, who is
slow or hangs.

    training.py --model llama [--size 1b] [--sequence 4096] [--fsdp 8 --tp 2 --pp 2 --cp 2 --ep 2]
        [--precision bf16]

By hand, alone or under torchrun, mpirun or srun. Tokens are synthetic and can be learnt, or those
of a file (--tokens, 32 bit little-endian numbers). Model: decoder.py. How ranks share it:
parallel.py. Checkpoints: checkpoint.py. A step that does not end: hang.py. Silent corruption:
replays.py and copies.py. Seeds are fixed, and every global batch is the same however the ranks
share it.

Rank 0 prints JSON lines: {"event": "start"}, {"event": "step", "step", "loss", "step_time_ms",
"time"}, {"event": "checkpoint"}, and at the end {"event": "llama", ...} with the figures of every
rank. Exit statuses: rendezvous.py.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import math
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import copies
import hang
import parallel
import rendezvous
import replays
import torch
import torch.distributed as dist
from checkpoint import Checkpoints
from communication import shares_of_groups
from decoder import SIZES, DecoderSize, loss_of
from parallel import DEGREES, Degrees, Meshes
from rendezvous import WRONG_RESULT, CannotStart, RankPlacement
from step_clock import PHASES, Step, StepClock
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

PRECISIONS = ("fp32", "bf16", "fp8")
_FAULTS = ("sleep", "lose-loader", "die")
_SETTLED_EVERY = {"cpu": 1, "cuda": 10}  # steps between two looks at the losses and times
_SLEEP_S = 3600.0
_BEFORE_TIMEOUT = 0.8


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    here, device = rendezvous.begin(options)
    size, degrees = checked(options, here.world_size, device)
    add_faults(options, here, os.environ.get("SEATRIAL_TRAINING_FAULT", ""))
    hang.record_collectives()
    rendezvous.join(here, options, device)
    if options.deterministic or options.replays:
        # Else cuBLAS is free to sum in another order
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(mode=bool(options.replays))
    replayed = replays.run(size, options, here, device) if options.replays else None
    torch.use_deterministic_algorithms(mode=options.deterministic)
    run = Pretraining(options, size, degrees, here, device)
    # Before a collective gives up
    limit_s = min(options.hang_s, _BEFORE_TIMEOUT * options.timeout_s)
    with hang.Watchdog(here.rank, here.host, limit_s, options.dump_prefix) as watchdog:
        run.train(watchdog)
    result = run.summary(replayed)
    run.report(**result)
    if options.results and here.rank == 0:
        Path(options.results).write_text(json.dumps(result, indent=2) + "\n")
    dist.barrier()  # all have what they need before any leaves
    dist.destroy_process_group()
    is_right = result["finite"] and not any(
        result[part] and result[part]["odd"] for part in ("replays", "copies")
    )
    return 0 if is_right else WRONG_RESULT


class Pretraining:
    """A decoder over the ranks with its optimizer, tokens, clock and checkpoints."""

    def __init__(
        self,
        options: argparse.Namespace,
        size: DecoderSize,
        degrees: Degrees,
        here: RankPlacement,
        device: str,
    ) -> None:
        self.options, self.size, self.degrees, self.here = options, size, degrees, here
        self.device = torch.device(device)
        self.meshes = Meshes.make(degrees, self.device.type)
        self.model = parallel.build(options, size, degrees, self.meshes, device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=options.lr,
            betas=(0.9, 0.95),
            fused=self.device.type == "cuda",
        )
        self.clock = StepClock(self.device)
        for block in self.model.blocks.values():
            self.clock.watch(block)
        self.loss_of: Callable[..., torch.Tensor] = (
            torch.compile(loss_of) if options.compile else loss_of
        )
        self.is_last_stage = self.meshes.rank("pp") == degrees.pp - 1
        self.schedule = self._schedule() if degrees.pp > 1 else None
        self.tokens = open_tokens(options.tokens) if options.tokens else None
        self.losses: list[float] = []
        self.window: list[torch.Tensor] = []
        self.unread: list[tuple[torch.Tensor, list[Step]]] = []
        self.step_time_ms: list[float] = []
        self.copies: dict[str, Any] | None = None
        self.checkpoints = Checkpoints(options, self.model, self.optimizer, self.device)
        self.first_step = self.checkpoints.restore()
        self.began = time.monotonic()

    def _schedule(self) -> Schedule1F1B:
        stage = PipelineStage(
            self.model,
            self.meshes.rank("pp"),
            self.degrees.pp,
            self.device,
            group=self.meshes.group("pp"),
        )
        return Schedule1F1B(stage, self.options.batch, loss_fn=self.loss_of)

    def report(self, **event: Any) -> None:
        """Print an event, on rank 0 alone."""
        if self.here.rank == 0:
            print(json.dumps({**event, "time": time.time()}), flush=True)

    def train(self, watchdog: hang.Watchdog) -> None:
        """Run the steps from the first or the last checkpoint; a loss that is not finite ends
        them.
        """
        options = self.options
        self.report(
            event="start",
            step=self.first_step,
            steps=options.steps,
            parallel=str(self.degrees),
            restore_s=self.checkpoints.restore_s,
        )
        for step in range(self.first_step, options.steps):
            # Which takes minutes in the first step
            if step > self.first_step or not options.compile:
                watchdog.beat(step)
            self.break_on_purpose(step)
            self.run_step(step)
            is_last = step == options.steps - 1
            saves = self.checkpoints.is_due(step, is_last=is_last)
            is_due = saves or is_last or len(self.window) >= _SETTLED_EVERY[self.device.type]
            if is_due and not self.settle(is_last=is_last or saves):
                break
            if saves:
                watchdog.beat(step)
                self.report(event="checkpoint", step=step + 1, **self.checkpoints.save(step + 1))
            if options.digest_every and (step + 1) % options.digest_every == 0:
                watchdog.beat(step)
                if not self.compare_copies(step + 1):
                    break
        self.checkpoints.finish()

    def compare_copies(self, step: int) -> bool:
        """Compare the parameters that ranks share after so many steps; False if some differ."""
        odd = copies.differing(self.model, self.meshes, self.options, self.here, str(self.device))
        self.copies = {"step": step, "odd": odd}
        return not odd

    def run_step(self, step: int) -> None:
        """Run one optimizer step; its loss waits on the device until `settle`."""
        self.clock.start()
        inputs, labels = self.batch(step)
        self.clock.end("data")
        with parallel.autocast(self.meshes, self.options.precision, self.device):
            if self.schedule is not None:  # in a pipeline forward and backward passes take turns
                loss = self.run_pipeline(inputs, labels)
            else:
                loss = self.loss_of(self.model(inputs), labels)
        if self.schedule is None:
            self.clock.end("forward")
            loss.backward()
        self.clock.end("backward")
        parallel.average_experts(self.model, self.degrees)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.clock.end("optimizer")
        self.window.append(loss.detach().double())

    def run_pipeline(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Run all microbatches through this rank's stage; return the loss on the last stage, 0 on
        others.
        """
        schedule: Any = self.schedule
        losses: list[torch.Tensor] = []
        arguments = (inputs,) if self.meshes.rank("pp") == 0 else ()
        if self.is_last_stage:
            schedule.step(*arguments, target=labels, losses=losses)
            return torch.stack([loss.detach() for loss in losses]).mean()
        schedule.step(*arguments)
        return torch.zeros((), device=self.device)

    def settle(self, *, is_last: bool) -> bool:
        """Report the steps whose results are there; False if a loss is not finite.

        Losses are averaged over the ranks on the device, and read one look later, so that a GPU
        never waits for it.
        """
        if self.window:
            mine = torch.stack(self.window)
            self.window = []
            dist.all_reduce(mine)
            mine /= self.here.world_size // self.degrees.pp  # ranks of the last stage
            self.unread.append((mine, self.clock.close()))
        while self.unread and (is_last or self.device.type == "cpu" or len(self.unread) > 1):
            losses, steps = self.unread.pop(0)
            if not self.read(losses.tolist(), self.clock.settle(steps)):
                return False
        return True

    def read(self, losses: list[float], times: list[float]) -> bool:
        """Report the losses and times of steps; False if a loss is not finite."""
        for loss, time_ms in zip(losses, times, strict=True):
            number = self.first_step + len(self.losses)
            self.losses.append(loss)
            self.step_time_ms.append(time_ms)
            shown = loss if math.isfinite(loss) else None
            self.report(event="step", step=number, loss=shown, step_time_ms=time_ms)
        return all(math.isfinite(loss) for loss in losses)

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and labels (batch, sequence) of this rank, or its part of the sequence if
        ranks share it.
        """
        options, degrees = self.options, self.degrees
        place = self.meshes.rank("fsdp") * degrees.ep + self.meshes.rank("ep")
        first = (step * degrees.data + place) * options.batch
        whole = self.sequences(first, options.batch)
        part = options.sequence // degrees.cp
        start = self.meshes.rank("cp") * part
        return whole[:, start : start + part], whole[:, start + 1 : start + part + 1].contiguous()

    def sequences(self, first: int, count: int) -> torch.Tensor:
        """Return sequences of sequence + 1 tokens: those of the file in order, or 5 x + 7 modulo
        the vocabulary.
        """
        length = self.options.sequence + 1
        if self.tokens is not None:
            rows = [
                self._from_file(number * length, length) for number in range(first, first + count)
            ]
            return torch.stack(rows).to(self.device, non_blocking=True)
        starts = [
            (self.options.seed * 7919 + number * 104_729) % self.size.vocabulary
            for number in range(first, first + count)
        ]
        factors, terms = self.recurrence
        return (
            torch.tensor(starts, device=self.device)[:, None] * factors + terms
        ) % self.size.vocabulary

    def _from_file(self, first: int, length: int) -> torch.Tensor:
        tokens: Any = self.tokens
        places = torch.arange(first, first + length) % len(tokens)
        return tokens[places].long() % self.size.vocabulary

    @cached_property
    def recurrence(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Factors and terms that give token i from the first: 5 x + 7, i times, modulo the
        vocabulary.
        """
        factors, terms = [1], [0]
        for _ in range(self.options.sequence):
            factors.append(5 * factors[-1] % self.size.vocabulary)
            terms.append((5 * terms[-1] + 7) % self.size.vocabulary)
        return torch.tensor(factors, device=self.device), torch.tensor(terms, device=self.device)

    def break_on_purpose(self, step: int) -> None:
        """Do what a fault of the local platform asks for, at its step, in the first attempt
        alone.
        """
        rank, _, seconds = (self.options.die or "-1:0").partition(":")
        if int(rank) == self.here.rank and time.monotonic() - self.began > float(seconds):
            os.kill(os.getpid(), signal.SIGKILL)
        for fault in self.options.fault:
            kind, rank, at = fault
            if rank != self.here.rank or at != step or self.first_step:
                continue
            if kind == "sleep":
                time.sleep(_SLEEP_S)
            if kind == "lose-loader":
                raise RuntimeError("the data loader has ended")
            if kind == "die":
                os.kill(os.getpid(), signal.SIGKILL)

    def summary(self, replayed: dict[str, Any] | None) -> dict[str, Any]:
        """Return the last event, the same on every rank."""
        options, warmup = self.options, self.options.warmup
        finite = all(math.isfinite(loss) for loss in self.losses)
        mine: dict[str, Any] = {
            "rank": self.here.rank,
            "host": self.here.host,
            "parameters": replays.digest_of(self.model.parameters()),
        }
        for name in (*PHASES, "compute", "step"):
            mine[f"{name}_ms"] = rounded(self.clock.median(name, warmup))
        on_gpu = self.device.type == "cuda"
        # Of tensors
        mine["memory_gb"] = rounded(torch.cuda.max_memory_allocated() / 1e9) if on_gpu else None
        shares = (
            shares_of_groups(lambda: self.run_step(options.steps), self.device) if finite else {}
        )
        ranks = rendezvous.report(mine, str(self.device))
        counted = self.step_time_ms[warmup:] or self.step_time_ms
        tokens = options.batch * options.sequence * self.degrees.data
        seconds = sum(counted) / 1e3
        rate = tokens * len(counted) / seconds / self.here.world_size if seconds else None
        tflops = rate * self.size.flops_per_token(options.sequence) / 1e12 if rate else None
        return {
            "event": "llama",
            "size": size_name(self.size),
            "parameters": self.size.parameters(),
            "parallel": asdict(self.degrees),
            "sequence": options.sequence,
            "batch": options.batch,
            "precision": options.precision,
            "torch": torch.__version__,
            "backend": dist.get_backend(),
            "world_size": self.here.world_size,
            "steps": len(self.losses),
            "finite": finite,
            "first_loss": next(iter(self.losses), None),
            "last_loss": next(reversed(self.losses), None),
            "losses_digest": hashlib.sha256(repr(self.losses).encode()).hexdigest()[:16],
            "tokens_s_per_gpu": rate,
            "model_tflops": tflops,
            "mfu": tflops / options.peak_tflops if tflops and options.peak_tflops else None,
            "step_ms_p50": statistics.median(counted) if counted else None,
            "step_ms_p99": sorted(counted)[math.ceil(0.99 * len(counted)) - 1] if counted else None,
            "communication": shares,
            "checkpoint": self.checkpoints.result(),
            "replays": replayed,
            "copies": self.copies,
            "ranks": ranks,
        }


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def size_name(size: DecoderSize) -> str:
    """Return the size's name; "4x64" where it has none."""
    names = [name for name, known in SIZES.items() if known == size]
    return names[0] if names else f"{size.layers}x{size.width}"


def open_tokens(path: str) -> torch.Tensor:
    """Return the tokens of a file of 32 bit numbers, read as they are needed.

    Raises CannotStart.
    """
    try:
        count = Path(path).stat().st_size // 4
        return torch.from_file(path, shared=False, size=count, dtype=torch.int32)
    except (OSError, RuntimeError) as error:
        raise CannotStart(f"{path}: cannot be read as tokens: {error}") from error


def checked(options: argparse.Namespace, ranks: int, device: str) -> tuple[DecoderSize, Degrees]:
    """Return the size and the degrees, if they fit together. Raises CannotStart."""
    overrides = {field.name: getattr(options, field.name) for field in fields(DecoderSize)}
    size = replace(
        SIZES[options.size],
        **{name: value for name, value in overrides.items() if value is not None},
    )
    if problem := size.problem():
        raise CannotStart(problem)
    degrees = parallel.choose({name: getattr(options, name) for name in DEGREES}, ranks)
    for problem in problems(options, size, degrees, device):
        raise CannotStart(problem)
    return size, degrees


def problems(
    options: argparse.Namespace, size: DecoderSize, degrees: Degrees, device: str
) -> Iterator[str]:
    """Yield why the options do not fit together, or not this machine."""
    yield from parallel.problems(degrees, size, options.sequence, options.batch)
    yield from parallel.too_old(degrees, device)
    if options.precision == "fp8" and device == "cpu":
        yield "--precision fp8 needs a GPU; processors take fp32 and bf16"
    if options.precision == "fp8" and importlib.util.find_spec("torchao") is None:
        yield f"--precision fp8 needs torchao, which {sys.executable} does not have"


def add_faults(options: argparse.Namespace, here: RankPlacement, text: str) -> None:
    """Add what the local platform lets this node's training break: sleeps_at=3,checkpoint_s=5."""
    faults = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    options.slow_checkpoint_s = float(faults.get("checkpoint_s", options.slow_checkpoint_s))
    if here.local_rank:
        return
    for name, kind in (("sleeps_at", "sleep"), ("loses_loader_at", "lose-loader")):
        if name in faults:
            options.fault.append((kind, here.rank, int(faults[name])))
    if "replays_wrong" in faults:
        once = "-once" if faults["replays_wrong"] == "once" else ""
        options.wrong = f"{here.rank}:compute{once}"


def _fault(text: str) -> tuple[str, int, int]:
    kind, rank, step = text.split(":")
    if kind not in _FAULTS:
        raise ValueError(kind)
    return kind, int(rank), int(step)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="training.py --model llama", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--model", choices=("llama",))
    parser.add_argument(
        "--size", choices=tuple(SIZES), default="debug", help="a published shape; debug"
    )
    for field in fields(DecoderSize):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}", type=int, help="in place of the size's own"
        )
    parser.add_argument("--sequence", type=int, default=128, help="tokens of a sequence")
    parser.add_argument(
        "--batch", type=int, default=1, help="sequences per data-parallel rank and step"
    )
    for name in DEGREES:
        parser.add_argument(
            f"--{name}", type=int, help="degree; fsdp takes the rest of the ranks where it is unset"
        )
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="fp8 needs torchao")
    parser.add_argument(
        "--compile", action="store_true", help="compile each block, which needs a C compiler"
    )
    parser.add_argument(
        "--activation-checkpointing", action="store_true", help="recompute each block's activations"
    )
    parser.add_argument(
        "--tokens", metavar="FILE", help="32 bit little-endian tokens, in place of synthetic ones"
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=2, help="first steps, which are not timed")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="only algorithms that give the same bits each time",
    )
    parser.add_argument(
        "--replays",
        type=int,
        default=0,
        help="steps that each rank trains alone first, and compares",
    )
    parser.add_argument(
        "--digest-every", type=int, default=0, help="steps between comparisons of ranks' parameters"
    )
    shared = "leave out of the replays' times what others have the processors"
    parser.add_argument("--shared-processors", action="store_true", help=shared)
    parser.add_argument(
        "--hang-s", type=float, default=300.0, help="a step that takes longer hangs; 0 for never"
    )
    parser.add_argument(
        "--dump-prefix", metavar="PATH", help="where to write the flight recorder's dump, by rank"
    )
    parser.add_argument(
        "--peak-tflops", type=float, help="of one GPU in that precision, for the MFU"
    )
    parser.add_argument("--results", metavar="FILE", help="write the last event there, as JSON")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), help="a GPU if there is one, when unset"
    )
    Checkpoints.add_arguments(parser)
    # For tests
    parser.add_argument("--fault", type=_fault, action="append", default=[], help=argparse.SUPPRESS)
    # Interrupted on purpose
    parser.add_argument("--die", metavar="RANK:SECONDS", help=argparse.SUPPRESS)
    parser.add_argument("--wrong", metavar="RANK:KIND", help=argparse.SUPPRESS)
    rendezvous.add_arguments(parser)
    options = parser.parse_args(arguments)
    if min(options.sequence, options.steps, options.batch) < 1 or options.sequence < 2:
        parser.error("needs --steps and --batch of 1 or more, --sequence of 2 or more")
    if options.warmup < 0 or options.warmup >= options.steps:
        parser.error(f"--warmup {options.warmup} leaves none of {options.steps} steps to time")
    return options


if __name__ == "__main__":
    rendezvous.run("training", main)
    sys.exit(0)
