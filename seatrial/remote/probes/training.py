"""Train a small decoder-only transformer, data parallel over every rank; all ranks must end with the same numbers.

The data is synthetic and learnable: each token is a fixed function of the one before. Seeds are fixed. Rank 0 prints
JSON lines: {"event": "step", "step", "loss", "step_time_ms"} and at the end {"event": "summary", ...} with a checksum
of every rank's parameters. A loss that is not finite ends the run, and is null in JSON. Exit statuses: rendezvous.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

try:  # first: it says so where torch is missing
    import rendezvous  # type: ignore[import-not-found]
    from rendezvous import WRONG_RESULT, CannotStart, RankPlacement, placement
except ModuleNotFoundError as missing:
    sys.stderr.write(f"{sys.argv[0]}: cannot start: {missing.name}.py is missing beside it\n")
    sys.exit(3)
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, SEQUENCE, WIDTH, HEADS, LAYERS = 64, 32, 64, 4, 2
_WARMUP_STEPS = 2  # left out of step times: the first steps build buckets, connections and kernels


class Block(nn.Module):  # type: ignore[misc]
    """Causal self-attention and a feed-forward network, normalised before each."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """`x` is (batch, sequence, width); `future` (sequence, sequence) is True where attention must not look."""
        batch, length, _ = x.shape
        heads = self.qkv(self.attention_norm(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = heads[0], heads[1], heads[2]
        scores = (query @ key.transpose(-2, -1)) / math.sqrt(WIDTH / HEADS)
        attended = scores.masked_fill(future, -math.inf).softmax(-1) @ value
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.feed(self.feed_norm(x))


class Transformer(nn.Module):  # type: ignore[misc]
    """Tokens (batch, sequence) to logits (batch, sequence, vocabulary)."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(SEQUENCE, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.logits = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(SEQUENCE, device=tokens.device))
        future = torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool, device=tokens.device).triu(1)
        for block in self.blocks:
            x = block(x, future)
        return self.logits(self.norm(x))


@dataclass
class History:
    """What one rank saw. Times are milliseconds; `compute_ms` ends where the rank first waits for the others."""

    losses: list[float] = field(default_factory=list)
    step_time_ms: list[float] = field(default_factory=list)
    compute_ms: list[float] = field(default_factory=list)
    finite: bool = True


def batch(options: argparse.Namespace, rank: int, step: int) -> torch.Tensor:
    """Token ids (batch, sequence + 1): each is 5 x + 7 modulo the vocabulary, from a random start."""
    generator = torch.Generator().manual_seed((options.seed * 1_000_003 + step) * 100_003 + rank)
    tokens = [torch.randint(VOCABULARY, (options.batch,), generator=generator)]
    for _ in range(SEQUENCE):
        tokens.append((5 * tokens[-1] + 7) % VOCABULARY)
    return torch.stack(tokens, 1)


def over_ranks(value: float, device: str) -> list[float]:
    """Every rank's value, by rank."""
    mine = torch.tensor([value], dtype=torch.float64, device=device)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return [float(theirs) for theirs in everyone]


def train(model: nn.Module, options: argparse.Namespace, here: RankPlacement, device: str) -> History:
    """Run the steps. The ranks' losses are compared before gradients mix, so a NaN is seen where it arose."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    history = History()
    for step in range(options.steps):
        started = time.perf_counter()
        tokens = batch(options, here.rank, step).to(device)
        loss = cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        if options.poison == here.rank and step == options.steps // 2:
            loss = loss * math.nan
        mine = float(loss.detach())
        history.compute_ms.append((time.perf_counter() - started) * 1e3)
        losses = over_ranks(mine, device)
        history.losses.append(sum(losses) / len(losses))
        if not math.isfinite(history.losses[-1]):
            history.finite = math.isfinite(mine)
            report(here, event="step", step=step, loss=None, step_time_ms=None)
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if device != "cpu":
            torch.cuda.synchronize()
        history.step_time_ms.append((time.perf_counter() - started) * 1e3)
        report(here, event="step", step=step, loss=history.losses[-1], step_time_ms=history.step_time_ms[-1])
    return history


def report(here: RankPlacement, **event: Any) -> None:
    if here.rank == 0:
        print(json.dumps(event), flush=True)


def checksum(model: nn.Module) -> str:
    """SHA-256 of the parameters' bytes, in order."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(bytes(parameter.detach().cpu().contiguous().view(-1).view(torch.uint8).tolist()))
    return digest.hexdigest()


def all_finite(model: nn.Module) -> bool:
    return all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


def settled(times: Sequence[float]) -> Sequence[float]:
    """The steps whose time counts: without the first ones where there are enough."""
    return times[_WARMUP_STEPS:] if len(times) > 2 * _WARMUP_STEPS else times


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def smoothed(losses: Sequence[float], steps: int) -> tuple[float | None, float | None]:
    """(first, last) loss, each the mean over a tenth of the steps, at most ten; None where it is not finite."""
    span = min(10, max(1, steps // 10))
    means = [sum(part) / len(part) for part in (losses[:span], losses[-span:])]
    first, last = (mean if math.isfinite(mean) else None for mean in means)
    return first, last


def summary(
    model: nn.Module, history: History, options: argparse.Namespace, here: RankPlacement, device: str
) -> dict[str, Any]:
    """The last event, the same on every rank."""
    mine = {
        "rank": here.rank,
        "host": here.host,
        "checksum": checksum(model),
        "finite": history.finite and all_finite(model),
        "step_time_ms_median": median(settled(history.step_time_ms)),
        "compute_ms_median": median(settled(history.compute_ms)),
    }
    ranks = [json.loads(text) for text in rendezvous.share(json.dumps(mine), device)]
    first_loss, last_loss = smoothed(history.losses, options.steps)
    step_time_ms = list(settled(history.step_time_ms))
    seconds = sum(step_time_ms) / 1e3
    return {
        "event": "summary",
        "torch": torch.__version__,
        "backend": dist.get_backend(),
        "world_size": here.world_size,
        "steps": len(history.step_time_ms),
        "first_loss": first_loss,
        "last_loss": last_loss,
        "throughput_samples_s": options.batch * here.world_size * len(step_time_ms) / seconds if seconds else None,
        "step_time_ms": step_time_ms,
        "ranks": ranks,
    }


def diverge(model: nn.Module) -> None:
    """Change one parameter in a way that no loss shows."""
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3


def choose_device(requested: str, here: RankPlacement) -> str:
    """The torch device of this rank. Raises CannotStart when there is no GPU for it."""
    if requested == "cpu":
        return "cpu"
    if not torch.cuda.is_available() or here.local_rank >= torch.cuda.device_count():
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        raise CannotStart(f"torch {torch.__version__} sees {gpus} GPUs, local rank {here.local_rank} needs one")
    torch.cuda.set_device(here.local_rank)
    return f"cuda:{here.local_rank}"


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    torch.set_num_threads(1)
    here = rendezvous.place(options)
    device = choose_device(options.device or placement.device(os.environ), here)
    rendezvous.join(here, options, "gloo" if device == "cpu" else "nccl")
    torch.manual_seed(options.seed)
    model = Transformer().to(device)
    parallel = DistributedDataParallel(model, device_ids=None if device == "cpu" else [here.local_rank])
    history = train(parallel, options, here, device)
    if options.diverge == here.rank:
        diverge(model)
    result = summary(model, history, options, here, device)
    report(here, **result)
    over_ranks(0, device)  # all have what they need before any leaves
    dist.destroy_process_group()
    same = len({rank["checksum"] for rank in result["ranks"]}) == 1
    return 0 if same and all(rank["finite"] for rank in result["ranks"]) else WRONG_RESULT


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="training.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8, help="sequences per rank and step")
    parser.add_argument("--lr", type=float, default=3e-3, help="of AdamW")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="where unset: cuda if BACKEND is nccl, else cpu")
    parser.add_argument("--poison", type=int, metavar="RANK", help=argparse.SUPPRESS)  # these two are for tests
    parser.add_argument("--diverge", type=int, metavar="RANK", help=argparse.SUPPRESS)
    rendezvous.add_arguments(parser)
    options = parser.parse_args(arguments)
    if options.steps < 1 or options.batch < 1:
        parser.error("needs --steps and --batch of 1 or more")
    return options


if __name__ == "__main__":
    rendezvous.run("training", main)
