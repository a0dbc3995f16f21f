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
from torch import Tensor, nn
from torch.nn.functional import interpolate, relu

_SEEN_CLASSES = 10  # classes of synthetic images: few enough to be learnt in tens of steps

Batch = tuple[Tensor, Tensor]  # inputs and labels
Draw = Callable[[int, torch.Generator], Batch]  # makes a batch of a number of inputs
Convolution = tuple[int, int, int]  # channels out, kernel, stride
# Number of blocks of each stage, and whether they are bottlenecks
_RESNETS = {"resnet18": ((2, 2, 2, 2), False), "resnet50": ((3, 4, 6, 3), True)}
MODELS = ("tiny", "transformer", *_RESNETS)


@dataclass(frozen=True)
class Workload:
    """A model, its optimizer's class and learning rate, and a function for synthetic batches of
    (inputs, labels).

    Logits are (labels, classes): one label per image, or one per token of a sequence. A batch is
    made on the device of its random generator.
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
        """Format the size as layers by width."""
        return f"{self.layers}x{self.width}"


class Block(nn.Module):
    """Causal self-attention and a feed-forward network, normalised before each."""

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.attention_norm = nn.LayerNorm(width)
        self.feed_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        up = nn.Linear(width, 4 * width)
        down = nn.Linear(4 * width, width)
        self.feed = nn.Sequential(up, nn.GELU(), down)

    def forward(self, x: Tensor, future: Tensor) -> Tensor:
        """Transform `x` (batch, sequence, width).

        `future` (sequence, sequence) is True for positions that attention must mask.
        """
        batch, length, width = x.shape
        per_head = width // self.heads
        normalised = self.attention_norm(x)
        projected = self.qkv(normalised)
        by_head = projected.view(batch, length, 3, self.heads, per_head)
        heads = by_head.permute(2, 0, 3, 1, 4)
        query = heads[0]
        key = heads[1]
        value = heads[2]
        attended = _attend(query, key, value, future)
        by_position = attended.transpose(1, 2)
        heads_joined = by_position.reshape(batch, length, width)
        x = x + self.out(heads_joined)
        normalised = self.feed_norm(x)
        return x + self.feed(normalised)


def _attend(query: Tensor, key: Tensor, value: Tensor, future: Tensor) -> Tensor:
    """Return the mean of the values for each query, weighted by how well their keys fit; each
    tensor is (batch, heads, sequence, width of a head).
    """
    per_head = query.shape[-1]
    products = query @ key.transpose(-2, -1)
    scores = products / math.sqrt(per_head)
    seen = scores.masked_fill(future, -math.inf)
    weights = seen.softmax(-1)
    return weights @ value


class Transformer(nn.Module):
    """Tokens (batch, sequence) to logits (batch, sequence, vocabulary)."""

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        width = size.width
        vocabulary = size.vocabulary
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(size.sequence_length, width)
        blocks = [Block(size) for _ in range(size.layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of each position."""
        length = tokens.shape[1]
        device = tokens.device
        positions = torch.arange(length, device=device)
        of_tokens = self.tokens(tokens)
        of_positions = self.positions(positions)
        x = of_tokens + of_positions
        everywhere = torch.ones(length, length, dtype=torch.bool, device=device)
        future = everywhere.triu(1)
        for block in self.blocks:
            x = block(x, future)
        normalised = self.norm(x)
        return self.logits(normalised)


class Residual(nn.Module):
    """A residual block: convolutions, each with a norm, added to their input, which is projected if
    shapes differ.

    `convolutions` are (channels out, kernel, stride), in order.
    """

    def __init__(self, channels: int, convolutions: tuple[Convolution, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = channels
        stride = 1
        for out, kernel, step in convolutions:
            layers += _convolution(width, out, kernel, step)
            layers.append(nn.ReLU())
            width = out
            stride *= step
        layers.pop()  # the last ReLU comes after the addition
        self.residual = nn.Sequential(*layers)
        # Zero at first, so that SGD is stable from the first step: https://arxiv.org/abs/1706.02677
        nn.init.zeros_(layers[-1].weight)
        self.shortcut: nn.Module = nn.Identity()
        if width != channels or stride != 1:
            projection = _convolution(channels, width, 1, stride)
            self.shortcut = nn.Sequential(*projection)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the convolutions' output and the input, after a ReLU."""
        residual = self.residual(x)
        summed = residual + self.shortcut(x)
        return relu(summed)


def _convolution(channels: int, out: int, kernel: int, stride: int) -> tuple[nn.Module, nn.Module]:
    """Return a convolution, which divides height and width by its stride, and its norm."""
    padding = kernel // 2
    # No bias, as the norm would remove it
    convolution = nn.Conv2d(channels, out, kernel, stride, padding, bias=False)
    return convolution, nn.BatchNorm2d(out)


def _block(width: int, stride: int, *, bottleneck: bool) -> tuple[Convolution, ...]:
    """Return the convolutions of a residual block."""
    strided = (width, 3, stride)
    if bottleneck:
        return ((width, 1, 1), strided, (4 * width, 1, 1))
    return (strided, (width, 3, 1))


def resnet(blocks: tuple[int, ...], classes: int, *, bottleneck: bool) -> nn.Module:
    """Return a ResNet from images (batch, 3, height, width) to logits (batch, classes).

    `blocks` is the number of blocks of each stage.
    """
    layers: list[nn.Module] = [*_convolution(3, 64, 7, 2)]
    layers.append(nn.ReLU())
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels = 64
    stages = zip((64, 128, 256, 512), blocks)
    for stage, (width, count) in enumerate(stages):
        for index in range(count):
            stride = 1
            # Each stage but the first halves height and width
            if stage > 0 and index == 0:
                stride = 2
            convolutions = _block(width, stride, bottleneck=bottleneck)
            layers.append(Residual(channels, convolutions))
            channels, _, _ = convolutions[-1]
    layers.append(nn.AdaptiveAvgPool2d(1))
    layers.append(nn.Flatten())
    layers.append(nn.Linear(channels, classes))
    return nn.Sequential(*layers)


def _token_batch(vocabulary: int, sequence: int) -> Draw:
    """Return a function for batches of tokens and next tokens, both (batch, sequence): token i+1 is
    5 x + 7 modulo the vocabulary.
    """

    def batch(count: int, generator: torch.Generator) -> Batch:
        device = generator.device
        last = torch.randint(vocabulary, (count,), generator=generator, device=device)
        tokens = [last]
        for _ in range(sequence):
            last = (5 * last + 7) % vocabulary
            tokens.append(last)
        whole = torch.stack(tokens, 1)
        inputs = whole[:, :-1]
        labels = whole[:, 1:]
        return inputs, labels

    return batch


def _image_batch(pixels: int, classes: int) -> Draw:
    """Return a function for batches of images (batch, 3, pixels, pixels), each its class's pattern
    with noise, and classes (batch,).
    """
    fixed = torch.Generator().manual_seed(1)
    patterns = torch.randn(_SEEN_CLASSES, 3, 8, 8, generator=fixed)
    seen = min(_SEEN_CLASSES, classes)

    def batch(count: int, generator: torch.Generator) -> Batch:
        device = generator.device
        labels = torch.randint(seen, (count,), generator=generator, device=device)
        coarse = patterns.to(device)[labels]
        clean = interpolate(coarse, size=(pixels, pixels))
        noise = torch.randn(clean.shape, generator=generator, device=device)
        images = clean + 0.5 * noise
        return images, labels

    return batch


_TINY = TransformerSize(layers=2, width=64, heads=4, sequence_length=32, vocabulary=64)


def workload(model: str, size: TransformerSize, pixels: int, classes: int) -> Workload:
    """Return the workload of a model: a transformer of that size, or a ResNet for images of
    `pixels` a side.
    """
    if model in _RESNETS:
        blocks, bottleneck = _RESNETS[model]
        network = resnet(blocks, classes, bottleneck=bottleneck)
        network = network.to(memory_format=torch.channels_last)
        sgd = partial(torch.optim.SGD, momentum=0.9)
        draw = _image_batch(pixels, classes)
        return Workload(network, sgd, 0.01, draw)
    lr = 3e-4
    if model == "tiny":
        size = _TINY
        lr = 3e-3
    transformer = Transformer(size)
    draw = _token_batch(size.vocabulary, size.sequence_length)
    return Workload(transformer, torch.optim.AdamW, lr, draw)
