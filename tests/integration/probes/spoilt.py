"""Probes of which one rank spoils its numbers, sleeps or dies."""

import importlib
import math
import os
import signal
from collections.abc import Sequence
from typing import Any

import pytest


def run(program: Any, arguments: Sequence[str]) -> int:
    """Run the program; with `--spoil HOW:RANK` among the arguments, that rank does so."""
    with pytest.MonkeyPatch.context() as patch:
        if "--spoil" in arguments:
            place = arguments.index("--spoil")
            how, _, rank = arguments[place + 1].partition(":")
            arguments = [*arguments[:place], *arguments[place + 2 :]]
            if rank == os.environ["RANK"]:
                _SPOILERS[how](program, patch)
        status: int = program.main(arguments)
        return status


def _element(collective: Any, patch: pytest.MonkeyPatch) -> None:
    """Spoil one element of everything that the rank receives."""
    count_wrong = collective.count_wrong

    def spoilt(target: Any, expected: Any) -> Any:
        target[len(target) // 2] *= -1
        return count_wrong(target, expected)

    patch.setattr(collective, "count_wrong", spoilt)


def _third_sum(all_reduce: Any, patch: pytest.MonkeyPatch) -> None:
    """Spoil one element of the third sum."""
    reduce = all_reduce.dist.all_reduce
    calls: list[object] = []

    def spoilt(summed: Any) -> None:
        reduce(summed)
        calls.append(summed)
        if len(calls) == 3:
            summed[len(summed) // 2] += 1

    patch.setattr(all_reduce.dist, "all_reduce", spoilt)


def _fourth_loss(training: Any, patch: pytest.MonkeyPatch) -> None:
    """Make the fourth loss NaN."""
    loss = training.Trainer.loss
    calls: list[object] = []

    def spoilt(trainer: Any, batch: Any) -> Any:
        calls.append(batch)
        return loss(trainer, batch) * (math.nan if len(calls) == 4 else 1)

    patch.setattr(training.Trainer, "loss", spoilt)


def _parameter(training: Any, patch: pytest.MonkeyPatch) -> None:
    """Change one parameter after the last step, too little to show in a loss."""
    train = training.train

    def spoilt(trainer: Any, watchdog: Any) -> Any:
        history = train(trainer, watchdog)
        next(trainer.model.parameters()).data.view(-1)[0] += 1e-3
        return history

    patch.setattr(training, "train", spoilt)


def _death(training: Any, patch: pytest.MonkeyPatch) -> None:
    """Die in the llama's sixth step."""
    pretraining: Any = importlib.import_module("pretraining")
    run_step = pretraining.Pretraining.run_step

    def spoilt(self: Any, step: int) -> None:
        if step == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        run_step(self, step)

    patch.setattr(pretraining.Pretraining, "run_step", spoilt)


def _sleep(training: Any, patch: pytest.MonkeyPatch) -> None:
    """Sleep before the llama's fourth step, as the first rank of a local node may."""
    patch.setenv("LOCAL_RANK", "0")
    patch.setenv("SEATRIAL_TRAINING_FAULT", "sleeps_at=3")


_SPOILERS = {
    "element": _element,
    "third sum": _third_sum,
    "fourth loss": _fourth_loss,
    "parameter": _parameter,
    "death": _death,
    "sleep": _sleep,
}
