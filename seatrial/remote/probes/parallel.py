"""How ranks share a decoder: degrees, groups, and PyTorch's own parts applied to it.

Ranks are numbered pp, fsdp, cp, ep, tp, from the outermost to the innermost. Each degree is done
by:

- fsdp: `fully_shard` of each block
  (https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html); its group is fsdp x cp x ep,
  since those ranks have the same parameters. A rank alone in it shards nothing, and uses autocast.
- tp: DTensor, with the sequence divided between the layers (https://arxiv.org/abs/2205.05198).
- pp: `torch.distributed.pipelining`, schedule 1F1B; each sequence of a batch is one microbatch.
- ep: experts on different ranks, tokens sent to them by all_to_all_single.
- cp: the sequence divided between ranks, whose attention has part of the heads: DTensor's
  redistribution (https://arxiv.org/abs/2309.14509).

Copied to the nodes next to training.py.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from decoder import Block, Decoder, DecoderSize, Experts, drop_others, initialize
from rendezvous import CannotStart
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils.checkpoint import checkpoint

DEGREES = ("pp", "fsdp", "cp", "ep", "tp")  # from the outermost to the innermost


@dataclass(frozen=True)
class Degrees:
    """The number of ranks that share each dimension, 1 if it is not shared; their product is the
    number of ranks.
    """

    pp: int = 1
    fsdp: int = 1
    cp: int = 1
    ep: int = 1
    tp: int = 1

    @property
    def data(self) -> int:
        """The number of different parts of a batch."""
        return self.fsdp * self.ep

    def __str__(self) -> str:
        """Format the degrees above 1: "fsdp 8, tp 2"."""
        used = [f"{name} {degree}" for name, degree in zip(DEGREES, astuple(self)) if degree > 1]
        return ", ".join(used) or "one rank"


def choose(requested: dict[str, int | None], ranks: int) -> Degrees:
    """Return the degrees for `ranks` ranks; fsdp takes the rest if it is not given.

    `requested` has the degrees by name, None if not given. Raises CannotStart if their product does
    not divide `ranks`, or, with fsdp, is not `ranks`.
    """
    degrees = {name: requested.get(name) or 1 for name in DEGREES}
    others = math.prod(degree for name, degree in degrees.items() if name != "fsdp")
    rest = ranks // others
    is_other = requested.get("fsdp") and degrees["fsdp"] != rest
    if ranks % others or is_other:
        product = " x ".join(
            f"{name} {degree}" for name, degree in degrees.items() if requested.get(name)
        )
        raise CannotStart(
            f"{product} does not make {ranks} ranks; degrees whose product is {ranks} do: "
            f"of {divisors(ranks)}"
        )
    degrees["fsdp"] = rest
    return Degrees(**degrees)


def divisors(number: int) -> str:
    """Name the divisors of a number, the smallest first: "1, 2, 3, 6"."""
    return ", ".join(str(n) for n in range(1, number + 1) if number % n == 0)


def problems(degrees: Degrees, size: DecoderSize, sequence: int, batch: int) -> Iterator[str]:
    """Yield why the degrees do not divide a model, its sequence or the batch of a data-parallel
    rank.
    """
    divided = (
        ("tp", degrees.tp, "heads", size.heads),
        ("tp", degrees.tp, "hidden", size.hidden),
        ("tp", degrees.tp, "vocabulary", size.vocabulary),
        ("tp x cp", degrees.tp * degrees.cp, "kv_heads", size.kv_heads),
        ("tp x cp", degrees.tp * degrees.cp, "sequence", sequence),
        ("ep", degrees.ep, "experts", size.experts),
        ("pp", degrees.pp, "layers", size.layers),
    )
    for name, degree, dimension, value in divided:
        if value % degree:
            yield f"{name} {degree} does not divide {dimension} {value}; {divisors(value)} do"
    if degrees.ep > 1 and not size.experts:
        yield f"ep {degrees.ep} needs a model with experts"
    if size.experts and degrees.tp > 1:
        yield f"tp {degrees.tp} does not divide experts; use ep for them, and tp 1"
    if batch < degrees.pp:
        yield f"pp {degrees.pp} needs at least as many sequences per rank; the batch is {batch}"


@dataclass
class Meshes:
    """The groups of ranks as meshes over the same ranks in the same order.

    `whole` has a dimension for each degree, `dense` one dimension for the ranks with the same
    parameters, and `experts` one for the ranks with the same experts; None without ep.
    """

    whole: DeviceMesh
    dense: DeviceMesh
    experts: DeviceMesh | None

    @classmethod
    def make(cls, degrees: Degrees, device_type: str) -> Meshes:
        """Create the groups. Every rank calls this."""
        d = degrees
        whole = init_device_mesh(device_type, astuple(d), mesh_dim_names=DEGREES)
        dense = init_device_mesh(
            device_type, (d.pp, d.fsdp * d.cp * d.ep, d.tp), mesh_dim_names=("_pp", "shard", "tp")
        )
        experts = None
        if d.ep > 1:
            names = ("_pp", "expert_shard", "_ep")
            experts = init_device_mesh(
                device_type, (d.pp, d.fsdp * d.cp, d.ep * d.tp), mesh_dim_names=names
            )
        return cls(whole, dense, experts)

    @property
    def is_sharded(self) -> bool:
        """Whether this rank shares parameters with another."""
        return int(self.dense["shard"].size()) > 1

    def group(self, name: str) -> Any:
        """Return the process group of a degree that this rank is in."""
        return self.whole.get_group(name)

    def rank(self, name: str) -> int:
        """Return this rank's index in the group of that degree."""
        return int(self.whole.get_local_rank(name))


def build(
    options: Namespace, size: DecoderSize, degrees: Degrees, meshes: Meshes, device: str
) -> Decoder:
    """Return this rank's part of an initialized decoder, built block by block, so that no rank ever
    holds the whole.

    The degrees must divide the model (`problems`). Values depend only on the seed and a parameter's
    name, so that all degrees train the same model.
    """
    with torch.device("meta"):
        model = Decoder(size, options.sequence)
    stage = meshes.rank("pp")
    per_stage = size.layers // degrees.pp
    own_layers = range(stage * per_stage, (stage + 1) * per_stage)
    model.keep(own_layers, is_first=stage == 0, is_last=stage == degrees.pp - 1)
    if degrees.tp > 1:
        _divide_tensors(model, meshes.dense["tp"])
    for block in model.blocks.values():
        _place(block, options.sequence, degrees, meshes)
        _prepare(block, options)
    shard = _sharding(meshes, degrees, options.precision)
    for name, block in model.blocks.items():
        block.to_empty(device=device)
        initialize(block, f"blocks.{name}.", options.seed)
        if options.precision == "fp8":  # torchao requires this before sharding
            _to_float8(block)
        if meshes.experts is not None:
            for network in block.feed.networks.values():
                shard(network, mesh=meshes.experts["expert_shard"])
        shard(block, mesh=meshes.dense["shard"])
    for name in ("tokens", "norm", "logits"):
        module = getattr(model, name)
        if module is not None:
            module.to_empty(device=device)
            initialize(module, f"{name}.", options.seed)
    shard(model, mesh=meshes.dense["shard"])
    return model


def too_old(degrees: Degrees, device: str) -> Iterator[str]:
    """Yield features that torch 2.6 lacks: there, pipelines on processors hang, and pipelines of
    sharded tensors fail.
    """
    if hasattr(torch.cpu.Stream, "record_event"):  # torch 2.7
        return
    later = f"torch 2.7 or later, this is {torch.__version__}"
    if degrees.pp > 1 and degrees.tp > 1:
        yield f"pp with tp needs {later}"
    if device == "cpu" and degrees.pp > 1:
        yield f"pp on processors needs {later}"
    if device == "cpu" and degrees.fsdp * degrees.cp * degrees.ep > 1:
        yield f"fsdp, cp and ep on processors need {later}"


def _sharding(meshes: Meshes, degrees: Degrees, precision: str) -> Callable[..., Any]:
    """Return a function that shards a module over the ranks of a mesh; it does nothing if
    parameters are not shared.

    Gradients are summed in float32. A pipeline keeps parameters after the forward pass, since its
    microbatches need them again at once.
    """
    if not meshes.is_sharded:
        return lambda module, **_: module
    policy = MixedPrecisionPolicy()
    if precision != "fp32":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return partial(fully_shard, mp_policy=policy, reshard_after_forward=degrees.pp == 1)


def autocast(meshes: Meshes, precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Return the autocast context for modules that are not sharded; `fully_shard` casts parameters
    itself.
    """
    is_on = precision != "fp32" and not meshes.is_sharded
    context: AbstractContextManager[Any] = torch.autocast(
        device.type, torch.bfloat16, enabled=is_on
    )
    return context


def _divide_tensors(model: Decoder, mesh: DeviceMesh) -> None:
    """Shard the linear layers by DTensor, like torchtitan's plan for Llama."""
    block_plan: dict[str, Any] = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.out": RowwiseParallel(output_layouts=Shard(1)),
        "feed_norm": SequenceParallel(),
        "feed": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
        "feed.gate": ColwiseParallel(),
        "feed.up": ColwiseParallel(),
        "feed.down": RowwiseParallel(output_layouts=Shard(1)),
    }
    for block in model.blocks.values():
        parallelize_module(block, mesh, block_plan)
    if model.tokens is not None:
        rows = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
        parallelize_module(model, mesh, {"tokens": rows})
    if model.logits is not None:
        columns = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
        parallelize_module(model, mesh, {"norm": SequenceParallel(), "logits": columns})


def _place(block: Block, sequence: int, degrees: Degrees, meshes: Meshes) -> None:
    """Give a block its part of the experts and of the sequence; without ep and cp it is
    unchanged.
    """
    if degrees.ep > 1 and isinstance(block.feed, Experts):
        own = block.feed.all_experts // degrees.ep
        first = meshes.rank("ep") * own
        drop_others(block.feed.networks, range(first, first + own))
        block.feed.exchange = partial(_exchange, meshes.group("ep"))
        block.feed.ranks = degrees.ep
    if degrees.cp > 1:
        mesh = meshes.whole["cp"]
        block.attention.first = meshes.rank("cp") * (sequence // degrees.cp)
        block.attention.spread = partial(_redistributed, mesh, 1, 2)
        block.attention.gather = partial(_redistributed, mesh, 2, 1)


def _exchange(group: Any, rows: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
    """Exchange rows between the ranks of a group; gradients return the same way.

    `sent` and `received` are the numbers of rows to and from each rank. Expert indices are
    integers, and have no gradient.
    """
    if not rows.is_floating_point():
        out = rows.new_empty(sum(received))
        dist.all_to_all_single(out, rows.flatten(), received, sent, group=group)
        return out
    return all_to_all_single_autograd(rows, received, sent, group)


def _redistributed(mesh: DeviceMesh, divided: int, to_divide: int, x: torch.Tensor) -> torch.Tensor:
    """Change the dimension along which the ranks of the mesh divide a tensor, from `divided` to
    `to_divide`.

    `x` is this rank's part.
    """
    whole = DTensor.from_local(x.contiguous(), mesh, [Shard(divided)], run_check=False)
    return whole.redistribute(mesh, [Shard(to_divide)]).to_local()


def _prepare(block: Block, options: Namespace) -> None:
    """Apply activation checkpointing and compile a block; its hooks stay outside of the compiled
    code.
    """
    forward: Callable[..., Any] = block.forward
    if options.activation_checkpointing:
        forward = partial(checkpoint, forward, use_reentrant=False)
    if options.compile:
        forward = torch.compile(forward)
    block.forward = forward


def _to_float8(block: nn.Module) -> None:
    """Convert linear layers to float8 by torchao, with a scale for each tensor."""
    from torchao.float8 import convert_to_float8_training  # type: ignore[import-not-found, unused-ignore]

    convert_to_float8_training(block)


def average_experts(model: Decoder, degrees: Degrees) -> None:
    """Divide the gradients of experts by the number of ranks that share them, since they are sums
    over the tokens of all.

    Experts without tokens have no gradient.
    """
    if degrees.ep == 1:
        return
    for module in model.modules():
        if isinstance(module, Experts):
            for parameter in module.networks.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(degrees.ep)
