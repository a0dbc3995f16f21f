"""Models that the training probe trains, in plain torch, each with synthetic data that it can
learn.

`tiny` is a transformer for processors: seconds on any machine. `transformer` (6 layers of width
512, where nothing else is asked for), `resnet18` and `resnet50` are what accelerators are measured
with. The ResNets are those of https://arxiv.org/abs/1512.03385, with the stride of a bottleneck on
its 3x3 convolution, as torchvision has them. Copied to the nodes next to training.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn.functional import interpolate, relu

_SEEN_CLASSES = 10  # that synthetic images are of: few enough to be learnt in tens of steps

Batch = tuple[torch.Tensor, torch.Tensor]  # inputs and labels
Draw = Callable[[int, torch.Generator], Batch]  # a batch of so many inputs
_RESNETS = {"resnet18": ((2, 2, 2, 2), False), "resnet50": ((3, 4, 6, 3), True)}
MODELS = ("tiny", "transformer", *_RESNETS)


@dataclass(frozen=True)
class Workload:
    """A model, its optimizer's class and learning rate, and what makes a synthetic batch of
    (inputs, labels) for it.

    Logits are labels by classes: one label for an image, one for each token of a sequence. A batch
    is made where its random generator is.
    """

    model: nn.Module
    optimizer: Callable[..., torch.optim.Optimizer]
    lr: float
    batch: Draw


@dataclass(frozen=True)
class TransformerSize:
    """Sizes of a decoder-only transformer; `width` is a multiple of `heads`."""

    layers: int = 6
    width: int = 512
    heads: int = 8
    sequence_length: int = 128
    vocabulary: int = 1024

    def __str__(self) -> str:
        """Return layers by width."""
        return f"{self.layers}x{self.width}"


class Block(nn.Module):
    """Causal self-attention and a feed-forward network, normalised before each."""

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        width, self.heads = size.width, size.heads
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Transform `x` (batch, sequence, width).

        `future` (sequence, sequence) is True where attention must not look.
        """
        batch, length, width = x.shape
        per_head = width // self.heads
        heads = (
            self.qkv(self.attention_norm(x))
            .view(batch, length, 3, self.heads, per_head)
            .permute(2, 0, 3, 1, 4)
        )
        query, key, value = heads[0], heads[1], heads[2]
        scores = (query @ key.transpose(-2, -1)) / math.sqrt(per_head)
        attended = scores.masked_fill(future, -math.inf).softmax(-1) @ value
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.feed_norm(x))


class Transformer(nn.Module):
    """Tokens (batch, sequence) to logits (batch, sequence, vocabulary)."""

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.positions = nn.Embedding(size.sequence_length, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm, self.logits = nn.LayerNorm(size.width), nn.Linear(size.width, size.vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.positions(torch.arange(length, device=tokens.device))
        future = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
        for block in self.blocks:
            x = block(x, future)
        return self.logits(self.norm(x))


class Residual(nn.Module):
    """Convolutions, each normalised, added to their input, which is projected where shapes differ.

    `convolutions` are (channels out, kernel, stride) in order.
    """

    def __init__(self, channels: int, convolutions: tuple[tuple[int, int, int], ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width, stride = channels, 1
        for out, kernel, step in convolutions:
            layers += [*_convolution(width, out, kernel, step), nn.ReLU()]
            width, stride = out, stride * step
        self.residual = nn.Sequential(*layers[:-1])
        # So that SGD is stable from the first step: https://arxiv.org/abs/1706.02677
        nn.init.zeros_(layers[-2].weight)
        same = (width, stride) == (channels, 1)
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(*_convolution(channels, width, 1, stride))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return relu(self.residual(x) + self.shortcut(x))


def _convolution(channels: int, out: int, kernel: int, stride: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out)


def resnet(blocks: tuple[int, ...], classes: int, *, bottleneck: bool) -> nn.Module:
    """Return images (batch, 3, height, width) to logits (batch, classes); `blocks` is how many each
    stage has.
    """
    layers: list[nn.Module] = [*_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, (width, count) in enumerate(zip((64, 128, 256, 512), blocks, strict=True)):
        for index in range(count):
            stride = 2 if stage and not index else 1
            convolutions: tuple[tuple[int, int, int], ...] = ((width, 3, stride), (width, 3, 1))
            if bottleneck:
                convolutions = ((width, 1, 1), (width, 3, stride), (4 * width, 1, 1))
            layers.append(Residual(channels, convolutions))
            channels = convolutions[-1][0]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    )


def _token_batch(vocabulary: int, sequence: int) -> Draw:
    """Return tokens and the ones after them, both (batch, sequence): each is 5 x + 7 modulo the
    vocabulary.
    """

    def batch(count: int, generator: torch.Generator) -> Batch:
        tokens = [torch.randint(vocabulary, (count,), generator=generator, device=generator.device)]
        for _ in range(sequence):
            tokens.append((5 * tokens[-1] + 7) % vocabulary)
        whole = torch.stack(tokens, 1)
        return whole[:, :-1], whole[:, 1:]

    return batch


def _image_batch(pixels: int, classes: int) -> Draw:
    """Return images (batch, 3, pixels, pixels), each its class's pattern in noise, and their
    classes (batch,).
    """
    patterns = torch.randn(_SEEN_CLASSES, 3, 8, 8, generator=torch.Generator().manual_seed(1))

    def batch(count: int, generator: torch.Generator) -> Batch:
        at, shape = generator.device, (count, 3, pixels, pixels)
        labels = torch.randint(
            min(_SEEN_CLASSES, classes), (count,), generator=generator, device=at
        )
        images = interpolate(patterns.to(at)[labels], size=(pixels, pixels))
        return images + 0.5 * torch.randn(shape, generator=generator, device=at), labels

    return batch


_TINY = TransformerSize(layers=2, width=64, heads=4, sequence_length=32, vocabulary=64)


def workload(model: str, size: TransformerSize, pixels: int, classes: int) -> Workload:
    """Return the workload of a model: a transformer of that size, or a ResNet for images of
    `pixels` a side.
    """
    if model in _RESNETS:
        blocks, bottleneck = _RESNETS[model]
        network = resnet(blocks, classes, bottleneck=bottleneck).to(
            memory_format=torch.channels_last
        )
        sgd = partial(torch.optim.SGD, momentum=0.9)
        return Workload(network, sgd, 0.01, _image_batch(pixels, classes))
    size, lr = (_TINY, 3e-3) if model == "tiny" else (size, 3e-4)
    return Workload(
        Transformer(size),
        torch.optim.AdamW,
        lr,
        _token_batch(size.vocabulary, size.sequence_length),
    )
