"""A decoder of Llama's shape in plain PyTorch: rotary positions, grouped-query attention, SwiGLU,
experts on request.

The shape is that of "The Llama 3 Herd of Models" (https://arxiv.org/abs/2407.21783, table 3); with
`experts`, each feed-forward network is a mixture of experts as in Mixtral
(https://arxiv.org/abs/2401.04088), without dropped tokens. Copied to the nodes next to training.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, replace

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

_ROPE_THETA = 500_000.0  # Llama 3's
_INITIAL_STD = 0.02

Exchange = Callable[[torch.Tensor, "list[int]", "list[int]"], torch.Tensor]


@dataclass(frozen=True)
class DecoderSize:
    """The shape of a decoder; `heads` divide `width`, and `kv_heads` divide `heads`."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    experts: int = 0
    active_experts: int = 2

    def problem(self) -> str | None:
        """Say why there is no such decoder."""
        if min(astuple(replace(self, experts=1))) < 1 or self.vocabulary < 2:
            return "needs sizes of 1 or more, and a vocabulary of 2 or more"
        if self.width % (2 * self.heads) or self.heads % self.kv_heads:
            return (
                f"needs heads that divide half of the width, and kv_heads that divide them: {self}"
            )
        if self.experts and self.active_experts > self.experts:
            return f"{self.active_experts} active experts are more than all {self.experts}"
        return None

    def parameters(self, *, active: bool = False) -> int:
        """Return how many parameters there are; only those that one token meets, if `active`."""
        networks = (self.active_experts if active else self.experts) if self.experts else 1
        per_head = self.width // self.heads
        attention = 2 * self.width * self.width + 2 * self.width * per_head * self.kv_heads
        feed = networks * 3 * self.width * self.hidden + self.experts * self.width
        layer = attention + feed + 2 * self.width
        return self.layers * layer + 2 * self.vocabulary * self.width + self.width

    def flops_per_token(self, sequence: int) -> float:
        """Return operations of a token's forward and backward pass: 6 N + 6 layers x width x
        sequence.

        PaLM's formula (https://arxiv.org/abs/2204.02311, appendix B), which torchtitan and Megatron
        use too, with the causal half of attention's 12 layers x width x sequence. N leaves the
        table of tokens out, which multiplies nothing. Recomputed activations do not count.
        """
        weights = self.parameters(active=True) - self.vocabulary * self.width
        return 6.0 * weights + 6.0 * self.layers * self.width * sequence


SIZES = {
    "debug": DecoderSize(layers=4, width=64, heads=4, kv_heads=4, hidden=128, vocabulary=128),
    "150m": DecoderSize(layers=12, width=768, heads=12, kv_heads=4, hidden=3072, vocabulary=32_000),
    "1b": DecoderSize(layers=16, width=2048, heads=32, kv_heads=8, hidden=8192, vocabulary=128_256),
    "3b": DecoderSize(layers=28, width=3072, heads=24, kv_heads=8, hidden=8192, vocabulary=128_256),
    "8b": DecoderSize(
        layers=32, width=4096, heads=32, kv_heads=8, hidden=14_336, vocabulary=128_256
    ),
    "70b": DecoderSize(
        layers=80, width=8192, heads=64, kv_heads=8, hidden=28_672, vocabulary=128_256
    ),
    "405b": DecoderSize(
        layers=126, width=16_384, heads=128, kv_heads=8, hidden=53_248, vocabulary=128_256
    ),
}


class Rotary(nn.Module):
    """Cosines and sines that turn queries and keys by their position
    (https://arxiv.org/abs/2104.09864).
    """

    def __init__(self, per_head: int, sequence: int) -> None:
        super().__init__()
        self.per_head, self.sequence = per_head, sequence
        cosines, sines = self.tables()
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def tables(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines and sines, each (sequence, per_head / 2), from the processor: equal for
        every device.
        """
        exponents = (
            torch.arange(0, self.per_head, 2, dtype=torch.float64, device="cpu") / self.per_head
        )
        positions = torch.arange(self.sequence, dtype=torch.float64, device="cpu")
        angles = torch.outer(positions, _ROPE_THETA**-exponents)
        return angles.cos().float(), angles.sin().float()

    def forward(self, x: torch.Tensor, first: int) -> torch.Tensor:
        """Turn `x` (batch, positions, heads, per_head), whose first position is `first`."""
        last = first + x.shape[1]
        cosines = self.cosines[first:last, None].to(x.dtype)
        sines = self.sines[first:last, None].to(x.dtype)
        even, odd = x.chunk(2, dim=-1)
        return torch.cat((even * cosines - odd * sines, odd * cosines + even * sines), dim=-1)


class Attention(nn.Module):
    """Causal attention, in which groups of query heads share a key and a value.

    `spread` and `gather` swap (batch, part of the positions, heads, ...) with (batch, all
    positions, part of the heads, ...) where ranks share a sequence; `first` is this rank's first
    position.
    """

    def __init__(self, size: DecoderSize, rotary: Rotary) -> None:
        super().__init__()
        self.per_head = size.width // size.heads
        kv_width = self.per_head * size.kv_heads
        self.query = nn.Linear(size.width, size.width, bias=False)
        self.key = nn.Linear(size.width, kv_width, bias=False)
        self.value = nn.Linear(size.width, kv_width, bias=False)
        self.out = nn.Linear(size.width, size.width, bias=False)
        self.rotary = rotary
        self.first = 0
        self.spread: Callable[[torch.Tensor], torch.Tensor] | None = None
        self.gather: Callable[[torch.Tensor], torch.Tensor] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        shape = (batch, length, -1, self.per_head)
        query = self.rotary(self.query(x).view(shape), self.first)
        key = self.rotary(self.key(x).view(shape), self.first)
        value = self.value(x).view(shape)
        if self.spread is not None:
            query, key, value = self.spread(query), self.spread(key), self.spread(value)
        attended = scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            is_causal=True,
            enable_gqa=True,
        ).transpose(1, 2)
        if self.gather is not None:
            attended = self.gather(attended)
        return self.out(attended.reshape(batch, length, -1))


class FeedForward(nn.Module):
    """SwiGLU (https://arxiv.org/abs/2002.05202)."""

    def __init__(self, size: DecoderSize) -> None:
        super().__init__()
        self.gate = nn.Linear(size.width, size.hidden, bias=False)
        self.up = nn.Linear(size.width, size.hidden, bias=False)
        self.down = nn.Linear(size.hidden, size.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """A mixture of experts: each token goes to the `active_experts` that its router prefers.

    `exchange` sends rows to the ranks that have their experts: (rows, sent to each rank, received
    from each rank); None where this rank has all of them.
    """

    def __init__(self, size: DecoderSize) -> None:
        super().__init__()
        self.all_experts, self.active = size.experts, size.active_experts
        self.router = nn.Linear(size.width, size.experts, bias=False)
        self.networks = nn.ModuleDict({str(i): FeedForward(size) for i in range(size.experts)})
        self.exchange: Exchange | None = None
        self.ranks = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        weights, chosen = self.router(tokens).float().softmax(-1).topk(self.active, dim=-1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        order = chosen.flatten().argsort(stable=True)
        rows = tokens[order // self.active]
        counts = torch.bincount(chosen.flatten(), minlength=self.all_experts)
        done = self._at_experts(rows, counts)
        back = torch.zeros_like(done).index_copy(0, order, done)
        mixed = back.view(-1, self.active, x.shape[-1]) * weights[..., None]
        return mixed.sum(1).view_as(x)

    def _at_experts(self, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Return the experts' answers to rows that are sorted by expert; `counts` says how many
        each expert has.
        """
        if self.exchange is None:
            return self._compute(rows, counts.tolist())
        per_rank = counts.view(self.ranks, -1)
        own_experts = per_rank.shape[1]
        equal = [own_experts] * self.ranks
        received_counts = self.exchange(counts, equal, equal).view(self.ranks, own_experts)
        sent, received = per_rank.sum(1).tolist(), received_counts.sum(1).tolist()
        arrived = self.exchange(rows, sent, received)
        experts = torch.arange(own_experts, device=rows.device).repeat(self.ranks)
        by_expert = experts.repeat_interleave(received_counts.flatten()).argsort(stable=True)
        done = self._compute(arrived[by_expert], received_counts.sum(0).tolist())
        unsorted = torch.zeros_like(done).index_copy(0, by_expert, done)
        return self.exchange(unsorted, received, sent)

    def _compute(self, rows: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """Return each expert's rows through its network.

        Every expert computes, so that every parameter has a gradient.
        """
        parts = rows.split(counts)
        return torch.cat(
            [network(part) for network, part in zip(self.networks.values(), parts, strict=True)]
        )


class Block(nn.Module):
    """Attention and a feed-forward network, each normalised before and added to its input."""

    def __init__(self, size: DecoderSize, rotary: Rotary) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(size.width, eps=1e-5)
        self.attention = Attention(size, rotary)
        self.feed_norm = nn.RMSNorm(size.width, eps=1e-5)
        self.feed: nn.Module = Experts(size) if size.experts else FeedForward(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed(self.feed_norm(x))


class Decoder(nn.Module):
    """Tokens (batch, sequence) to logits (batch, sequence, vocabulary), or the part of it that a
    pipeline stage has.
    """

    def __init__(self, size: DecoderSize, sequence: int) -> None:
        super().__init__()
        self.rotary = Rotary(size.width // size.heads, sequence)
        self.tokens: nn.Module | None = nn.Embedding(size.vocabulary, size.width)
        self.blocks = nn.ModuleDict({str(i): Block(size, self.rotary) for i in range(size.layers)})
        self.norm: nn.Module | None = nn.RMSNorm(size.width, eps=1e-5)
        self.logits: nn.Module | None = nn.Linear(size.width, size.vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.tokens is not None:
            x = self.tokens(x)
        for block in self.blocks.values():
            x = block(x)
        if self.norm is not None and self.logits is not None:
            x = self.logits(self.norm(x))
        return x

    def keep(self, layers: Iterable[int], *, is_first: bool, is_last: bool) -> None:
        """Drop all but these layers, and the ends that other stages have."""
        drop_others(self.blocks, layers)
        if not is_first:
            self.tokens = None
        if not is_last:
            self.norm = self.logits = None


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of all tokens, in float32."""
    return cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def drop_others(modules: nn.ModuleDict, kept: Iterable[int]) -> None:
    """Drop the modules with other numbers than those; the rest keep their names, by which ranks
    share checkpoints.
    """
    names = {str(number) for number in kept}
    for name in [name for name in modules if name not in names]:
        del modules[name]


def initialize(module: nn.Module, prefix: str, seed: int) -> None:
    """Fill the parameters and tables of a module: each depends on seed and name alone, however
    ranks share it.
    """
    for name, parameter in module.named_parameters():
        _fill(parameter, prefix + name, seed)
    for each in module.modules():
        if isinstance(each, Rotary):
            device = each.cosines.device
            each.cosines, each.sines = (table.to(device) for table in each.tables())


def _fill(parameter: torch.Tensor, name: str, seed: int) -> None:
    """Fill with ones for a norm, else with normal numbers by seed and name; a DTensor with its part
    of them.
    """
    with torch.no_grad():
        if "norm" in name:
            parameter.fill_(1.0)
            return
        key = int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:7], "big")
        generator = torch.Generator(parameter.device).manual_seed(key)
        whole = torch.empty(parameter.shape, device=parameter.device).normal_(
            std=_INITIAL_STD, generator=generator
        )
        if isinstance(parameter, DTensor):
            whole = distribute_tensor(whole, parameter.device_mesh, parameter.placements)
        parameter.copy_(whole)
