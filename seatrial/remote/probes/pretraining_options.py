"""The options of pretraining.py, the checks whether they fit together and this machine, and faults
on purpose.

Copied to the nodes next to training.py.
"""

from __future__ import annotations

import importlib.util
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import fields, replace

import checkpoint
import parallel
from command_line import HIDDEN, OF_RANKS, PEAK_TFLOPS, Option, asked, option_of
from decoder import SIZES, DecoderSize
from parallel import DEGREES, Degrees
from rendezvous import CannotStart, RankPlacement

PRECISIONS = ("fp32", "bf16", "fp8")

OPTIONS: tuple[Option, ...] = (
    ("--model", ("llama",), None, None),
    ("--size", tuple(SIZES), "debug", "a published shape; debug"),
    *(option_of(field, "in place of the size's own") for field in fields(DecoderSize)),
    ("--sequence", int, 128, "tokens of a sequence"),
    ("--batch", int, 1, "sequences per data-parallel rank and step"),
    *(
        (f"--{name}", int, None, "degree; fsdp takes the rest of the ranks where it is unset")
        for name in DEGREES
    ),
    ("--precision", PRECISIONS, "fp32", "fp8 needs torchao"),
    ("--compile", bool, False, "compile each block, which needs a C compiler"),
    ("--activation-checkpointing", bool, False, "recompute each block's activations"),
    ("--tokens FILE", str, None, "32 bit little-endian tokens, in place of synthetic ones"),
    ("--steps", int, 20, None),
    ("--warmup", int, 2, "first steps, which are not timed"),
    ("--lr", float, 3e-4, None),
    ("--seed", int, 1, None),
    ("--deterministic", bool, False, "only algorithms that give the same bits each time"),
    ("--replays", int, 0, "steps that each rank trains alone first, and compares"),
    ("--digest-every", int, 0, "steps between comparisons of ranks' parameters"),
    (
        "--shared-processors",
        bool,
        False,
        "leave out of the replays' times what others have the processors",
    ),
    ("--hang-s", float, 300.0, "a step that takes longer hangs; 0 for never"),
    ("--dump-prefix PATH", str, None, "where to write the flight recorder's dump, by rank"),
    PEAK_TFLOPS,
    ("--results FILE", str, None, "write the last event there, as JSON"),
    ("--device", ("cpu", "cuda"), None, "a GPU if there is one, when unset"),
    *checkpoint.OPTIONS,
    # For interruptions on purpose
    ("--die RANK:SECONDS", str, None, HIDDEN),
    ("--wrong RANK:KIND", str, None, HIDDEN),
    *OF_RANKS,
)


def checked(options: Namespace, ranks: int, device: str) -> tuple[DecoderSize, Degrees]:
    """Return the size and the degrees of the options, after checking them. Raises CannotStart."""
    size = replace(SIZES[options.size], **asked(options, fields(DecoderSize)))
    if problem := size.problem():
        raise CannotStart(problem)
    asked_degrees = {name: getattr(options, name) for name in DEGREES}
    degrees = parallel.choose(asked_degrees, ranks)
    for problem in problems(options, size, degrees, device):
        raise CannotStart(problem)
    return size, degrees


def problems(options: Namespace, size: DecoderSize, degrees: Degrees, device: str) -> Iterator[str]:
    """Yield why the options do not fit together, or not this machine."""
    yield from parallel.problems(degrees, size, options.sequence, options.batch)
    yield from parallel.too_old(degrees, device)
    if options.precision != "fp8":
        return
    if device == "cpu":
        yield "--precision fp8 needs a GPU; processors take fp32 and bf16"
    if importlib.util.find_spec("torchao") is None:
        yield f"--precision fp8 needs torchao, which {sys.executable} does not have"


def add_faults(options: Namespace, here: RankPlacement, text: str) -> None:
    """Add the faults that the local platform asks for, such as sleeps_at=3,checkpoint_s=5, to the
    options; those at a step by their steps.
    """
    parts = [part.split("=", 1) for part in text.split(",") if "=" in part]
    faults: dict[str, str] = dict(parts)
    if "checkpoint_s" in faults:
        options.slow_checkpoint_s = float(faults["checkpoint_s"])
    if here.local_rank:
        return
    for name in ("sleeps_at", "loses_loader_at"):
        if name in faults:
            options.fault[int(faults[name])] = name
    if "replays_wrong" in faults:
        once = "-once" if faults["replays_wrong"] == "once" else ""
        options.wrong = f"{here.rank}:compute{once}"
