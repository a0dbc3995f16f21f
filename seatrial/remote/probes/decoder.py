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
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

_ROPE_THETA = 500_000.0  # the value of Llama 3
_INITIAL_STD = 0.02

Exchange = Callable[[Tensor, "list[int]", "list[int]"], Tensor]
Swap = Callable[[Tensor], Tensor]
_linear = partial(nn.Linear, bias=False)
_norm = partial(nn.RMSNorm, eps=1e-5)


@dataclass(frozen=True)
class DecoderSize:
    """The shape of a decoder; `width` is a multiple of `heads`, and `heads` of `kv_heads`."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    experts: int = 0
    active_experts: int = 2

    def problem(self) -> str | None:
        """Return why the shape is invalid; None if it is valid."""
        sizes = astuple(replace(self, experts=1))
        if min(sizes) < 1 or self.vocabulary < 2:
            return "needs sizes of 1 or more, and a vocabulary of 2 or more"
        left_of_width = self.width % (2 * self.heads)
        left_of_heads = self.heads % self.kv_heads
        if left_of_width or left_of_heads:
            return (
                f"needs heads that divide half of the width, and kv_heads that divide them: {self}"
            )
        if self.experts and self.active_experts > self.experts:
            return f"{self.active_experts} active experts are more than all {self.experts}"
        return None

    def parameters(self, *, active: bool = False) -> int:
        """Return the number of parameters; with `active`, only those that one token uses."""
        networks = self.experts or 1
        if self.experts and active:
            networks = self.active_experts
        width = self.width
        per_head = width // self.heads
        query_and_out = 2 * width * width
        key_and_value = 2 * width * per_head * self.kv_heads
        network = 3 * width * self.hidden
        router = self.experts * width
        norms = 2 * width
        attention = query_and_out + key_and_value
        feed_forward = networks * network + router
        layer = attention + feed_forward + norms
        tokens_and_logits = 2 * self.vocabulary * width
        final_norm = width
        return self.layers * layer + tokens_and_logits + final_norm

    def flops_per_token(self, sequence: int) -> float:
        """Return operations of a token's forward and backward pass: 6 N + 6 layers x width x
        sequence.

        PaLM's formula (https://arxiv.org/abs/2204.02311, appendix B), which torchtitan and Megatron
        use too, with the causal half of attention's 12 layers x width x sequence. N leaves the
        table of tokens out, which multiplies nothing. Recomputed activations do not count.
        """
        table = self.vocabulary * self.width
        weights = self.parameters(active=True) - table
        attention = 6.0 * self.layers * self.width * sequence
        return 6.0 * weights + attention


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
    """Rotary position embedding of queries and keys (https://arxiv.org/abs/2104.09864)."""

    def __init__(self, per_head: int, sequence: int) -> None:
        super().__init__()
        self.per_head = per_head
        self.sequence = sequence
        cosines, sines = self.tables()
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def tables(self) -> tuple[Tensor, Tensor]:
        """Return cosines and sines, each (sequence, per_head / 2), computed on the CPU so that all
        devices get equal values.
        """
        even = torch.arange(0, self.per_head, 2, dtype=torch.float64, device="cpu")
        exponents = even / self.per_head
        frequencies = _ROPE_THETA**-exponents
        positions = torch.arange(self.sequence, dtype=torch.float64, device="cpu")
        angles = torch.outer(positions, frequencies)
        return angles.cos().float(), angles.sin().float()

    def forward(self, x: Tensor, first: int) -> Tensor:
        """Turn `x` (batch, positions, heads, per_head), whose first position is `first`."""
        last = first + x.shape[1]
        positions = slice(first, last)
        cosines = self.cosines[positions, None].to(x.dtype)
        sines = self.sines[positions, None].to(x.dtype)
        even, odd = x.chunk(2, dim=-1)
        turned_even = even * cosines - odd * sines
        turned_odd = odd * cosines + even * sines
        return torch.cat((turned_even, turned_odd), dim=-1)


class Attention(nn.Module):
    """Causal attention, in which groups of query heads share a key and a value.

    `spread` and `gather` swap (batch, part of the positions, heads, ...) with (batch, all
    positions, part of the heads, ...) where ranks share a sequence; `first` is this rank's first
    position.
    """

    def __init__(self, size: DecoderSize, rotary: Rotary) -> None:
        super().__init__()
        width = size.width
        self.per_head = width // size.heads
        kv_width = self.per_head * size.kv_heads
        self.query = _linear(width, width)
        self.key = _linear(width, kv_width)
        self.value = _linear(width, kv_width)
        self.out = _linear(width, width)
        self.rotary = rotary
        self.first = 0
        self.spread: Swap | None = None
        self.gather: Swap | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention output of each position, over itself and earlier positions.

        Input and output are (batch, positions, width).
        """
        batch, length, _ = x.shape
        shape = (batch, length, -1, self.per_head)
        query = self.query(x).view(shape)
        key = self.key(x).view(shape)
        value = self.value(x).view(shape)
        query = self.rotary(query, self.first)
        key = self.rotary(key, self.first)
        if self.spread is not None:
            query = self.spread(query)
            key = self.spread(key)
            value = self.spread(value)
        # The function takes and returns heads before positions
        attended = scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            is_causal=True,
            enable_gqa=True,
        )
        attended = attended.transpose(1, 2)
        if self.gather is not None:
            attended = self.gather(attended)
        heads_joined = attended.reshape(batch, length, -1)
        return self.out(heads_joined)


class FeedForward(nn.Module):
    """SwiGLU (https://arxiv.org/abs/2002.05202)."""

    def __init__(self, size: DecoderSize) -> None:
        super().__init__()
        self.gate = _linear(size.width, size.hidden)
        self.up = _linear(size.width, size.hidden)
        self.down = _linear(size.hidden, size.width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's output for each position."""
        gate = silu(self.gate(x))
        gated = gate * self.up(x)
        return self.down(gated)


class Experts(nn.Module):
    """A mixture of experts: the router sends each token to its `active_experts` best experts.

    `exchange` sends rows to the ranks that have their experts: (rows, number sent to each rank,
    number received from each rank); None if this rank has all experts.
    """

    def __init__(self, size: DecoderSize) -> None:
        super().__init__()
        self.all_experts = size.experts
        self.active = size.active_experts
        self.router = _linear(size.width, size.experts)
        self.networks = nn.ModuleDict()
        for number in range(size.experts):
            self.networks[str(number)] = FeedForward(size)
        self.exchange: Exchange | None = None
        self.ranks = 1

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted sum of the outputs of each token's experts.

        Input and output are (batch, positions, width).
        """
        width = x.shape[-1]
        tokens = x.reshape(-1, width)
        # Weights and indices of the experts of each token, both (tokens, active)
        preferences = self.router(tokens).float().softmax(-1)
        weights, chosen = preferences.topk(self.active, dim=-1)
        sums = weights.sum(-1, keepdim=True)
        shares = (weights / sums).to(tokens.dtype)
        choices = chosen.flatten()
        order = choices.argsort(stable=True)
        rows = tokens[order // self.active]
        counts = torch.bincount(choices, minlength=self.all_experts)
        sorted_answers = self._at_experts(rows, counts)
        answers = _unsorted(sorted_answers, order)
        by_token = answers.view(-1, self.active, width)
        weighted = by_token * shares[..., None]
        mixed = weighted.sum(1)
        return mixed.view_as(x)

    def _at_experts(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Return the experts' outputs for rows sorted by expert; `counts` is the number of rows of
        each expert.
        """
        if self.exchange is None:
            return self._compute(rows, counts.tolist())
        per_rank = counts.view(self.ranks, -1)
        _, own_experts = per_rank.shape
        equal = [own_experts] * self.ranks
        received_counts = self.exchange(counts, equal, equal)
        received_per_rank = received_counts.view_as(per_rank)
        sent = per_rank.sum(1).tolist()
        received = received_per_rank.sum(1).tolist()
        arrived = self.exchange(rows, sent, received)
        order = _by_expert(received_per_rank)
        rows_of_experts = received_per_rank.sum(0).tolist()
        sorted_answers = self._compute(arrived[order], rows_of_experts)
        answers = _unsorted(sorted_answers, order)
        return self.exchange(answers, received, sent)

    def _compute(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Return the outputs of this rank's experts for rows sorted by expert; `counts` is their
        number of rows.

        Every expert computes, so that every parameter has a gradient.
        """
        networks = self.networks.values()
        parts = rows.split(counts)
        answers = []
        for network, part in zip(networks, parts):
            answers.append(network(part))
        return torch.cat(answers)


def _unsorted(rows: Tensor, order: Tensor) -> Tensor:
    """Undo a sort of rows by `order`."""
    return torch.zeros_like(rows).index_copy(0, order, rows)


def _by_expert(counts: Tensor) -> Tensor:
    """Return the order that sorts rows by expert, which are sorted by rank, then by expert.

    `counts` (ranks, experts) is the number of rows that each rank sent to each expert.
    """
    ranks, experts = counts.shape
    numbers = torch.arange(experts, device=counts.device)
    of_each_rank = numbers.repeat(ranks)
    experts_of_rows = of_each_rank.repeat_interleave(counts.flatten())
    return experts_of_rows.argsort(stable=True)


class Block(nn.Module):
    """Attention and a feed-forward network, each with a norm before and a residual connection."""

    def __init__(self, size: DecoderSize, rotary: Rotary) -> None:
        super().__init__()
        self.attention_norm = _norm(size.width)
        self.attention = Attention(size, rotary)
        self.feed_norm = _norm(size.width)
        self.feed: nn.Module
        if size.experts:
            self.feed = Experts(size)
        else:
            self.feed = FeedForward(size)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input plus the outputs of attention and network."""
        normalised = self.attention_norm(x)
        x = x + self.attention(normalised)
        normalised = self.feed_norm(x)
        return x + self.feed(normalised)


class Decoder(nn.Module):
    """Tokens (batch, sequence) to logits (batch, sequence, vocabulary), or the part of one pipeline
    stage.
    """

    def __init__(self, size: DecoderSize, sequence: int) -> None:
        super().__init__()
        width = size.width
        per_head = width // size.heads
        self.rotary = Rotary(per_head, sequence)
        self.tokens: nn.Module | None = nn.Embedding(size.vocabulary, width)
        self.blocks = nn.ModuleDict()
        for number in range(size.layers):
            self.blocks[str(number)] = Block(size, self.rotary)
        self.norm: nn.Module | None = _norm(width)
        self.logits: nn.Module | None = _linear(width, size.vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input of the next stage, or the logits in the last one."""
        if self.tokens is not None:
            x = self.tokens(x)
        for block in self.blocks.values():
            x = block(x)
        if self.norm is not None and self.logits is not None:
            normalised = self.norm(x)
            x = self.logits(normalised)
        return x

    def keep(self, layers: Iterable[int], *, is_first: bool, is_last: bool) -> None:
        """Keep only these layers, and the embedding or output layer if this is the first or last
        stage.
        """
        drop_others(self.blocks, layers)
        if not is_first:
            self.tokens = None
        if not is_last:
            self.norm = None
            self.logits = None


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss of all tokens, in float32.

    `logits` are (batch, positions, vocabulary), and `labels` (batch, positions).
    """
    of_tokens = logits.flatten(0, 1).float()
    return cross_entropy(of_tokens, labels.flatten())


def drop_others(modules: nn.ModuleDict, kept: Iterable[int]) -> None:
    """Remove modules whose numbers are not in `kept`; the rest keep their names, which checkpoints
    use.
    """
    names = {str(number) for number in kept}
    for name in list(modules):
        if name not in names:
            del modules[name]


def initialize(module: nn.Module, prefix: str, seed: int) -> None:
    """Initialize the parameters and tables of a module, depending only on seed and name, however
    ranks share it.
    """
    for name, parameter in module.named_parameters():
        _fill(parameter, prefix + name, seed)
    for each in module.modules():
        if isinstance(each, Rotary):
            device = each.cosines.device
            cosines, sines = each.tables()
            each.cosines = cosines.to(device)
            each.sines = sines.to(device)


def _fill(parameter: Tensor, name: str, seed: int) -> None:
    """Fill a parameter with ones for a norm, else with normal numbers by seed and name; a DTensor
    with its part.
    """
    with torch.no_grad():
        if "norm" in name:
            parameter.fill_(1.0)
            return
        device = parameter.device
        digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
        seven_bytes = digest[:7]  # seeds have 64 bits and may be signed, so 7 bytes fit
        key = int.from_bytes(seven_bytes, "big")
        generator = torch.Generator(device).manual_seed(key)
        whole = torch.empty(parameter.shape, device=device)
        whole.normal_(std=_INITIAL_STD, generator=generator)
        if isinstance(parameter, DTensor):
            whole = distribute_tensor(whole, parameter.device_mesh, parameter.placements)
        parameter.copy_(whole)
