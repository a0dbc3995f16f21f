"""Train a decoder of Llama's shape over every rank: tokens per second, where the time goes, who is
slow or hangs.

    training.py --model llama [--size 1b] [--sequence 4096] [--fsdp 8 --tp 2 --pp 2 --cp 2 --ep 2]
        [--precision bf16]

By hand, alone or under torchrun, mpirun or srun. Tokens are synthetic and can be learnt, or those
of a file (--tokens, 32 bit little-endian numbers). Model: decoder.py. How ranks share it:
parallel.py. Checkpoints: checkpoint.py. A step that does not end: hang.py. Silent corruption:
replays.py. Seeds are fixed, and every global batch is the same however the ranks
share it.

Rank 0 prints JSON lines: {"event": "start"}, {"event": "step", "step", "loss", "step_time_ms",
"time"}, {"event": "checkpoint"}, and at the end {"event": "llama", ...} with the figures of every
rank. Exit statuses: rendezvous.py.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hang
import parallel
import rendezvous
import replays
import torch
import torch.distributed as dist
from checkpoint import Checkpoints
from command_line import parser_of
from communication import shares_of_groups
from decoder import SIZES, DecoderSize, loss_of
from parallel import Degrees, Meshes
from pretraining_options import OPTIONS, add_faults, checked
from rendezvous import WRONG_RESULT, Json, RankPlacement
from step_clock import PHASES, Step, StepClock, median, p99, settled
from token_sequences import TokenSequences
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

_SETTLED_EVERY = {"cpu": 1, "cuda": 10}  # steps between two reads of losses and times
_SLEEP_S = 3600.0
_BEFORE_TIMEOUT = 0.8


def main(arguments: Sequence[str]) -> int:
    """Train, and report; return the exit status."""
    options = parse(arguments)
    here, device = rendezvous.begin(options)
    size, degrees = checked(options, here.world_size, device)
    add_faults(options, here, os.environ.get("SEATRIAL_TRAINING_FAULT", ""))
    hang.record_collectives()
    rendezvous.join(here, options, device)
    if options.deterministic or options.replays:
        # Otherwise cuBLAS may sum in a different order each time
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    replayed = None
    if options.replays:
        torch.use_deterministic_algorithms(mode=True)
        replayed = replays.run(size, options, here, device)
    torch.use_deterministic_algorithms(mode=options.deterministic)
    run = Pretraining(options, size, degrees, here, device)
    # The watchdog has to report before a collective times out
    limit_s = min(options.hang_s, _BEFORE_TIMEOUT * options.timeout_s)
    with hang.Watchdog(here.rank, here.host, limit_s, options.dump_prefix) as watchdog:
        run.train(watchdog)
    result = run.summary(replayed)
    run.report(**result)
    if options.results and here.rank == 0:
        document = json.dumps(result, indent=2) + "\n"
        Path(options.results).write_text(document)
    dist.barrier()  # no rank exits before all have finished communicating
    dist.destroy_process_group()
    return 0 if _is_right(result) else WRONG_RESULT


def _is_right(result: Json) -> bool:
    """Return whether losses are finite, and replays and parameter copies agree, if compared."""
    for comparison in (result["replays"], result["copies"]):
        if comparison and comparison["odd"]:
            return False
    return bool(result["finite"])


class Pretraining:
    """A decoder over the ranks with its optimizer, tokens, clock and checkpoints."""

    def __init__(
        self,
        options: Namespace,
        size: DecoderSize,
        degrees: Degrees,
        here: RankPlacement,
        device: str,
    ) -> None:
        self.options = options
        self.size = size
        self.degrees = degrees
        self.here = here
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
        self.loss_of: Callable[..., Tensor] = loss_of
        if options.compile:
            self.loss_of = torch.compile(loss_of)
        self.is_last_stage = self.meshes.rank("pp") == degrees.pp - 1
        self.schedule: Schedule1F1B | None = None
        if degrees.pp > 1:
            self.schedule = self._schedule()
        self.sequences = TokenSequences(options, size.vocabulary, self.device).take
        self.losses: list[float] = []
        self.window: list[Tensor] = []
        self.unread: list[tuple[Tensor, list[Step]]] = []
        self.step_time_ms: list[float] = []
        self.copies: Json | None = None
        self.checkpoints = Checkpoints(options, self.model, self.optimizer, self.device)
        self.first_step = self.checkpoints.restore()
        self.began = time.monotonic()

    def _schedule(self) -> Schedule1F1B:
        """Return the schedule in which forward and backward passes of microbatches alternate."""
        stage = PipelineStage(
            self.model,
            self.meshes.rank("pp"),
            self.degrees.pp,
            self.device,
            group=self.meshes.group("pp"),
        )
        return Schedule1F1B(stage, self.options.batch, loss_fn=self.loss_of)

    def report(self, **event: Any) -> None:
        """Print an event on rank 0."""
        if self.here.rank == 0:
            event["time"] = time.time()
            line = json.dumps(event)
            print(line, flush=True)

    def train(self, watchdog: hang.Watchdog) -> None:
        """Run the steps from the first one or from the last checkpoint; stop at a loss that is not
        finite.
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
            # Not in the first step, in which compilation takes minutes
            if step > self.first_step or not options.compile:
                watchdog.beat(step)
            self.break_on_purpose(step)
            self.run_step(step)
            done = step + 1
            is_last = done == options.steps
            saves = self.checkpoints.is_due(step, is_last=is_last)
            reads_all = saves or is_last
            is_full = len(self.window) >= _SETTLED_EVERY[self.device.type]
            if reads_all or is_full:
                are_finite = self.settle(is_last=reads_all)
                if not are_finite:
                    break
            if saves:
                watchdog.beat(step)
                saved = self.checkpoints.save(done)
                self.report(event="checkpoint", step=done, **saved)
            if options.digest_every and done % options.digest_every == 0:
                watchdog.beat(step)
                device = str(self.device)
                odd = replays.differing_copies(self.model, self.meshes, options, self.here, device)
                self.copies = {"step": done, "odd": odd}
                if odd:
                    break
        self.checkpoints.finish()

    def run_step(self, step: int) -> None:
        """Run one optimizer step; its loss waits on the device until `settle`."""
        clock = self.clock
        clock.start()
        inputs, labels = self.batch(step)
        clock.end("data")
        with parallel.autocast(self.meshes, self.options.precision, self.device):
            if self.schedule is not None:
                loss = self.run_pipeline(inputs, labels)
            else:
                logits = self.model(inputs)
                loss = self.loss_of(logits, labels)
        if self.schedule is None:
            clock.end("forward")
            loss.backward()
        clock.end("backward")
        parallel.average_experts(self.model, self.degrees)
        self.optimizer.step()
        self.optimizer.zero_grad()
        clock.end("optimizer")
        self.window.append(loss.detach().double())

    def run_pipeline(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Run all microbatches through this rank's stage; return the loss on the last stage, 0 on
        others.
        """
        schedule: Any = self.schedule
        is_first_stage = self.meshes.rank("pp") == 0
        arguments = (inputs,) if is_first_stage else ()
        if not self.is_last_stage:
            schedule.step(*arguments)
            return torch.zeros((), device=self.device)
        losses: list[Tensor] = []
        schedule.step(*arguments, target=labels, losses=losses)
        detached = [loss.detach() for loss in losses]
        return torch.stack(detached).mean()

    def settle(self, *, is_last: bool) -> bool:
        """Report the steps whose results are available; return false if a loss is not finite.

        Losses are averaged over the ranks on the device, and read one call later, so that the GPU
        never waits.
        """
        if self.window:
            self._average_window()
        reads_all = is_last or self.device.type == "cpu"
        left = 0 if reads_all else 1
        while len(self.unread) > left:
            losses, steps = self.unread.pop(0)
            times = self.clock.settle(steps)
            if not self.read(losses.tolist(), times):
                return False
        return True

    def _average_window(self) -> None:
        """Average the losses of the steps since the last call over the ranks, on the device."""
        losses = torch.stack(self.window)
        self.window = []
        dist.all_reduce(losses)
        ranks_of_last_stage = self.here.world_size // self.degrees.pp
        losses /= ranks_of_last_stage
        steps = self.clock.close()
        self.unread.append((losses, steps))

    def read(self, losses: list[float], times: list[float]) -> bool:
        """Report losses and times of steps; return false if a loss is not finite."""
        for loss, time_ms in zip(losses, times):
            step = self.first_step + len(self.losses)
            self.losses.append(loss)
            self.step_time_ms.append(time_ms)
            shown = loss if math.isfinite(loss) else None
            self.report(event="step", step=step, loss=shown, step_time_ms=time_ms)
        return _are_finite(losses)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and labels (batch, sequence) of this rank, or its part of the sequence if
        ranks share it.
        """
        options = self.options
        degrees = self.degrees
        rank_of = self.meshes.rank
        place = rank_of("fsdp") * degrees.ep + rank_of("ep")
        batches_before = step * degrees.data + place
        first = batches_before * options.batch
        sequences = self.sequences(first, options.batch)
        length = options.sequence // degrees.cp
        start = rank_of("cp") * length
        end = start + length
        inputs = sequences[:, start:end]
        labels = sequences[:, start + 1 : end + 1]
        return inputs, labels.contiguous()

    def break_on_purpose(self, step: int) -> None:
        """Play a fault of the local platform at its step, in the first attempt only."""
        self._die_in_time()
        if self.first_step:
            return
        fault = self.options.fault.get(step)
        if fault == "sleeps_at":
            time.sleep(_SLEEP_S)
        if fault == "loses_loader_at":
            raise RuntimeError("the data loader has ended")

    def _die_in_time(self) -> None:
        """Kill this rank after the seconds given by --die, in any attempt."""
        if not self.options.die:
            return
        rank, _, seconds = self.options.die.partition(":")
        elapsed_s = time.monotonic() - self.began
        if int(rank) == self.here.rank and elapsed_s > float(seconds):
            pid = os.getpid()
            os.kill(pid, signal.SIGKILL)

    def summary(self, replayed: Json | None) -> Json:
        """Return the last event, which is the same on every rank.

        Every rank calls this.
        """
        options = self.options
        finite = _are_finite(self.losses)
        mine = self._of_this_rank()
        shares = {}
        if finite:
            shares = shares_of_groups(lambda: self.run_step(options.steps), self.device)
        losses = repr(self.losses).encode()
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
            "losses_digest": hashlib.sha256(losses).hexdigest()[:16],
            **self._rates(),
            "communication": shares,
            "checkpoint": self.checkpoints.result(),
            "replays": replayed,
            "copies": self.copies,
            "ranks": rendezvous.report(mine, str(self.device)),
        }

    def _of_this_rank(self) -> Json:
        """Return this rank's report: parameter digest, times and memory."""
        mine: Json = {
            "rank": self.here.rank,
            "host": self.here.host,
            "parameters": replays.digest_of(self.model.parameters()),
        }
        for name in (*PHASES, "compute", "step"):
            typical_ms = self.clock.median(name, self.options.warmup)
            if typical_ms is not None:
                typical_ms = round(typical_ms, 4)
            mine[f"{name}_ms"] = typical_ms
        mine["memory_gb"] = self._memory_gb()
        return mine

    def _memory_gb(self) -> float | None:
        """Return the peak memory of tensors; None without a GPU."""
        if self.device.type != "cuda":
            return None
        tensor_bytes: int = torch.cuda.max_memory_allocated()
        return round(tensor_bytes / 1e9, 4)

    def _rates(self) -> dict[str, float | None]:
        """Return tokens/s and TFLOP/s per GPU, and the times of a step.

        None for values without a measured time.
        """
        options = self.options
        times_ms = settled(self.step_time_ms, options.warmup)
        rate = tflops = mfu = None
        if seconds := sum(times_ms) / 1e3:
            tokens = options.batch * options.sequence * self.degrees.data
            rate = tokens * len(times_ms) / seconds / self.here.world_size
            flops_per_token = self.size.flops_per_token(options.sequence)
            tflops = rate * flops_per_token / 1e12
        if tflops and options.peak_tflops:
            mfu = tflops / options.peak_tflops
        return {
            "tokens_s_per_gpu": rate,
            "model_tflops": tflops,
            "mfu": mfu,
            "step_ms_p50": median(times_ms),
            "step_ms_p99": p99(times_ms),
        }


def size_name(size: DecoderSize) -> str:
    """Return the name of the size, else layers by width, such as "4x64"."""
    for name, known in SIZES.items():
        if known == size:
            return str(name)
    return f"{size.layers}x{size.width}"


def _are_finite(losses: Sequence[float]) -> bool:
    return all(map(math.isfinite, losses))


def parse(arguments: Sequence[str]) -> Namespace:
    """Return the options; exit with 2 for bad ones."""
    parser = parser_of("training.py --model llama", __doc__, OPTIONS)
    options: Namespace = parser.parse_args(arguments)
    options.fault = {}
    if min(options.steps, options.batch) < 1 or options.sequence < 2:
        parser.error("needs --steps and --batch of 1 or more, --sequence of 2 or more")
    if not 0 <= options.warmup < options.steps:
        parser.error(f"--warmup {options.warmup} leaves none of {options.steps} steps to time")
    return options


if __name__ == "__main__":
    rendezvous.run("training", main)
