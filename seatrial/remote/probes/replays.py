"""Detect silent corruption: computations, and copies of parameters, that differ between ranks.

Replays: every rank trains the same small decoder alone, from the same seed on the same batch, and
    all must get the same bits. A digest of the parameters is taken after each step, so that the
    first wrong step is known, and of each replay, so that a rank that is wrong only once is found
    too. If the digests agree, the gradients are summed over the ranks as whole numbers, whose sum
    is exact in any order: a wrong sum of right gradients is an error of the transport. Ranks are
    compared only with ranks of the same device model, driver and library.

Copies: at intervals, the ranks that share parameters check that they hold the same bits. Each
    gathers its parameters whole, as `fully_shard` and DTensor do for a step, and takes a digest.
    Gathering only moves data, so if digests differ, data changed on its way, in memory, or in a
    part that several ranks hold and computed differently. Parameters are then gathered three times,
    to distinguish a single error from a permanent one. Copied to the nodes next to training.py.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import rendezvous
import torch
import torch.distributed as dist
from decoder import Decoder, DecoderSize, initialize, loss_of
from parallel import Meshes
from processor_wait import own_clock_s
from rendezvous import Gathered, Json, RankPlacement
from step_clock import Marks
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch_device import smi_line

_REPLAYS = 3
_GATHERED = 3  # times to gather if copies differ
# Size of the small decoder, which has the model's width but fits any GPU
_LAYERS = 2
_VOCABULARY = 2048
_SEQUENCE = 1024
_BATCH = 2
_SEED = 17
_WORDS = 1 << 24  # words of a tensor to process at a time, in 64 bits


def run(size: DecoderSize, options: Namespace, here: RankPlacement, device: str) -> Json:
    """Replay on all ranks at once; return which ranks differ, how, and the ms per step by rank and
    replay.

    Every rank calls this, and gets the same answer.
    """
    small = replace(
        size,
        layers=min(_LAYERS, size.layers),
        vocabulary=min(_VOCABULARY, size.vocabulary),
        experts=0,
    )
    sequence = min(_SEQUENCE, options.sequence)
    digests = []
    step_ms = []
    # Gradients of the last replay, to test the transport; equal on all ranks if they are right
    gradients: list[Tensor] = []
    for replay in range(_REPLAYS):
        wrong = is_wrong(options, here, "compute", replay)
        done, times, gradients = _replay(small, sequence, options, device, is_wrong=wrong)
        digests.append(done)
        counted = times[1:] or times  # the first step also allocates memory
        # The mean, as a median would hide a device that is slow in bursts
        step_ms.append(round(statistics.mean(counted), 4))
    wrong = is_wrong(options, here, "transport", 0)
    transport = _wrong_sums(gradients, digests, device, is_wrong=wrong)
    mine = {
        "rank": here.rank,
        "host": here.host,
        "kind": kind_of(torch.device(device)),
        "digests": digests,
        "wrong_sums": transport,
        "step_ms": step_ms,
    }
    ranks = rendezvous.exchange(mine, device)
    return {
        "steps": options.replays,
        "replays": _REPLAYS,
        "odd": odd(ranks),
        "step_ms": [r["step_ms"] for r in ranks],
    }


def _replay(
    size: DecoderSize, sequence: int, options: Namespace, device: str, *, is_wrong: bool
) -> tuple[str, list[float], list[Tensor]]:
    """Return a replay's digest of all steps, the time of each step in ms, and the last gradients.

    `is_wrong`: flip a bit in the middle, to play a fault.
    """
    target = torch.device(device)
    with torch.device("meta"):
        model = Decoder(size, sequence)
    model.to_empty(device=device)
    initialize(model, "", _SEED)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    generator = torch.Generator("cpu").manual_seed(_SEED)
    shape = (_BATCH, sequence + 1)
    tokens = torch.randint(size.vocabulary, shape, generator=generator)
    tokens = tokens.to(device)
    inputs = tokens[:, :-1]
    labels = tokens[:, 1:]
    clock = own_clock_s if options.shared_processors else time.perf_counter
    marks = Marks(target, clock)
    is_mixed = options.precision != "fp32"
    autocast = torch.autocast(target.type, torch.bfloat16, enabled=is_mixed)
    steps = []
    digests = []
    for step in range(options.replays):
        first = marks.now()
        optimizer.zero_grad()
        with autocast:
            logits = model(inputs)
        loss_of(logits, labels).backward()
        optimizer.step()

        steps.append((first, marks.now()))
        if is_wrong and step == options.replays // 2:
            flip_bit(parameters[0])
        digests.append(digest_of(parameters))
    times = [marks.between_ms(*span) for span in steps]
    gradients = [each.grad for each in parameters if each.grad is not None]
    return _short_digest("".join(digests)), times, gradients


def _short_digest(text: str) -> str:
    """Return 16 hexadecimal digits for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest_of(tensors: Iterable[Tensor]) -> str:
    """Return a digest of the tensors' bits: the sum of words weighted by position, modulo 2^64, in
    any order.

    For a sharded tensor it covers this rank's part.
    """
    sums = []
    with torch.no_grad():
        for tensor in tensors:
            words = words_of(local(tensor).detach())
            parts = [_weighted(words, first) for first in range(0, len(words), _WORDS)]
            sums.append(sum(parts))
    values = []
    if sums:  # one copy from the device for all tensors
        values = torch.stack(sums).tolist()
    return _short_digest(repr(values))


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor; the tensor itself where ranks do not share it."""
    part = tensor
    if hasattr(tensor, "to_local"):  # a DTensor
        part = tensor.to_local()
    return part


def words_of(tensor: Tensor) -> Tensor:
    """Return the bits of every element as integers of the same size, in the same memory if
    contiguous.

    Unlike floats, equal NaNs compare as equal, and -0 differs from 0.
    """
    integer: torch.dtype = getattr(torch, f"int{8 * tensor.element_size()}")
    return tensor.contiguous().view(-1).view(integer)


def _weighted(words: Tensor, first: int) -> Tensor:
    """Return the sum of the words, each times an odd number that depends on its position from
    `first` on.

    With odd factors, changing any one word changes the sum modulo 2^64.
    """
    part = words[first : first + _WORDS].long()
    start = first + 1
    places = torch.arange(start, start + len(part), device=words.device)
    weights = places * 0x9E3779B1 | 1
    return (part * weights).sum()


def flip_bit(parameter: Tensor) -> None:
    """Flip the lowest bit of the middle element, to play a fault."""
    with torch.no_grad():
        words = words_of(parameter.detach())
        words[len(words) // 2] ^= 1


def _wrong_sums(
    gradients: Sequence[Tensor], digests: Sequence[str], device: str, *, is_wrong: bool
) -> int:
    """Return the number of wrong elements in the gradients summed over the ranks; 0 if gradients
    differ already.

    With equal gradients, the right sum is a multiple of this rank's own.
    """
    texts = rendezvous.share(digests[-1], device)
    if len(set(texts)) > 1:
        return 0
    ranks = dist.get_world_size()
    wrong = 0
    for bucket, gradient in enumerate(gradients):
        words = words_of(gradient).long()  # wide enough for the sum of all ranks
        total = words.clone()
        dist.all_reduce(total)
        if is_wrong and not bucket:
            total[len(total) // 2] += 1
        differs = total != words * ranks
        wrong += int(differs.sum())
    return wrong


def kind_of(device: torch.device) -> str:
    """Return a text of everything that determines the bits of a computation: device model, driver,
    library, instructions.

    The driver's version is empty if it is unknown, as in a container without nvidia-smi.
    """
    threads = torch.get_num_threads()
    if device.type != "cuda":
        # The number of threads and the vector width affect the order of sums, and so rounding
        instructions = torch.backends.cpu.get_cpu_capability()
        return f"{torch.__version__} {instructions} {threads}"
    name = torch.cuda.get_device_name(device)
    memory = torch.cuda.get_device_properties(device).total_memory
    driver: str = smi_line("0", ("driver_version",)).strip()
    library = torch.version.cuda or torch.version.hip
    hardware = f"{name} {memory} {driver[:20]}"
    return f"{torch.__version__} {library} {hardware}"


def odd(ranks: Sequence[Json]) -> list[Json]:
    """Return the ranks whose bits differ from those of most ranks of their kind, in computing or
    transport.

    Without a majority none is certain, since any of them may be right.
    """
    outliers = []
    for kind in sorted({rank["kind"] for rank in ranks}):
        alike = [rank for rank in ranks if rank["kind"] == kind]
        counts = Counter(digest for rank in alike for digest in rank["digests"])
        common, count = counts.most_common(1)[0]
        is_certain = 2 * count > sum(counts.values())
        for rank in alike:
            differs = sum(digest != common for digest in rank["digests"])
            if differs:
                outliers.append(_outlier(rank, "compute", differs, is_certain=is_certain))
    bad = [rank for rank in ranks if rank["wrong_sums"]]
    is_certain = 2 * len(bad) < len(ranks)
    outliers += [_outlier(rank, "transport", 1, is_certain=is_certain) for rank in bad]
    return outliers


def _outlier(rank: Json, by: str, replays: int, *, is_certain: bool) -> Json:
    """Return the entry of a rank that differs in `replays` replays; `by` is "compute" or
    "transport".
    """
    return {
        "rank": rank["rank"],
        "host": rank["host"],
        "by": by,
        "replays": replays,
        "is_certain": is_certain,
    }


def is_wrong(options: Namespace, here: RankPlacement, kind: str, turn: int) -> bool:
    """Return whether this rank plays a fault, RANK:KIND or RANK:KIND-once, in a replay; `turn`
    counts from 0.
    """
    fault = f"{here.rank}:{kind}"
    wrong: str | None = options.wrong
    return wrong == fault or (wrong == f"{fault}-once" and turn == 0)


def differing_copies(
    model: nn.Module, meshes: Meshes, options: Namespace, here: RankPlacement, device: str
) -> Gathered:
    """Return the ranks whose parameters differ from those of the majority that shares them; every
    rank calls this.
    """
    group = f"{meshes.rank('pp')} {meshes.rank('ep')}"  # the same layers and the same experts
    digests: list[str] = []
    mine = {
        "rank": here.rank,
        "host": here.host,
        "kind": group,
        "digests": digests,
        "wrong_sums": 0,
    }
    outliers: Gathered = []
    for turn in range(_GATHERED):
        wrong = is_wrong(options, here, "copy", turn)
        digests.append(digest_of(_whole(model, is_wrong=wrong)))
        outliers = odd(rendezvous.exchange(mine, device))
        if not outliers:
            break
    return [{**each, "by": "copy"} for each in outliers]


def _whole(model: nn.Module, *, is_wrong: bool) -> Iterator[Tensor]:
    """Yield the parameters of this rank's layers, gathered one at a time to save memory."""
    for number, parameter in enumerate(model.parameters()):
        whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        if is_wrong and not number:
            whole = whole.detach().clone()
            flip_bit(whole)
        yield whole
