"""On each of four ranks: train a small decoder by each plan of parallel degrees, and plainly on one
rank; print all losses. A plan is fsdp2-tp2, moe-ep4 (with experts), ...
"""

import importlib
import json
import re
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

parallel, pretraining, rendezvous, decoder = (
    importlib.import_module(name) for name in ("parallel", "pretraining", "rendezvous", "decoder")
)

STEPS, GLOBAL_BATCH = 5, 4


def parsed(plan: str, world_size: int, where: Sequence[str] = ()) -> Any:
    """The probe's options of a plan, with a batch that is the same in sum."""
    degrees = {name: int(value) for name, value in re.findall(r"(pp|fsdp|cp|ep|tp)(\d+)", plan)}
    chosen = parallel.choose(dict(degrees), world_size)
    batch = GLOBAL_BATCH // chosen.data
    words = [
        "--model",
        "llama",
        "--size",
        "debug",
        "--sequence",
        "32",
        "--batch",
        str(batch),
        "--lr",
        "1e-2",
    ]
    for name, degree in degrees.items():
        words += [f"--{name}", str(degree)]
    words += ["--experts", "4"] if "moe" in plan else []
    words += ["--activation-checkpointing"] if "ac" in plan.split("-") else []
    return pretraining.parse([*words, "--steps", str(STEPS), "--device", "cpu", *where])


def losses_of(plan: str, here: Any) -> Any:
    options = parsed(plan, here.world_size)
    size, degrees = pretraining.checked(options, here.world_size, "cpu")
    run = pretraining.Pretraining(options, size, degrees, here, "cpu")
    run.report = lambda **_: None
    for step in range(STEPS):
        run.run_step(step)
    run.settle(is_last=True)
    return run.losses


def plain_losses(plan: str, run: Any) -> list[float]:
    """The same training of one rank, without any of the probe's parallel parts."""
    model = decoder.Decoder(run.size, run.options.sequence)
    decoder.initialize(model, "", run.options.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.options.lr, betas=(0.9, 0.95))
    losses = []
    for step in range(STEPS):
        tokens = run.sequences(step * GLOBAL_BATCH, GLOBAL_BATCH)
        loss = pretraining.loss_of(model(tokens[:, :-1]), tokens[:, 1:].contiguous())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def main(arguments: Sequence[str]) -> int:
    """The arguments are plans, then the options that say where ranks meet."""
    first_option = arguments.index("--master-addr")
    plans, where = arguments[:first_option], arguments[first_option:]
    options = parsed("fsdp4", 4, where)
    here = rendezvous.place(options)
    rendezvous.join(here, options)
    answers = {plan: losses_of(plan, here) for plan in plans}
    for kind in ("dense", "moe"):
        options = parsed("fsdp4-" + kind, 4)
        size, degrees = pretraining.checked(options, 4, "cpu")
        run = pretraining.Pretraining(options, size, degrees, here, "cpu")
        answers[kind] = plain_losses(kind, run)
    if here.rank == 0:
        print(json.dumps(answers), flush=True)
    dist.barrier()
    return 0
