"""Checkpoints of a decoder by torch.distributed.checkpoint: write, read back past the page cache,
resume.

`--checkpoint-dir` is a shared file system, or a directory on each node's disk. A checkpoint is
complete when its `.metadata` exists, which is written last; the newest two are kept. Another number
of ranks, or ranks with other degrees, can resume from it if they see all of its files. Copied to
the nodes next to training.py.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from statistics import median_high
from typing import Any

import rendezvous
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from command_line import HIDDEN, Option
from rendezvous import CannotStart, Json
from replays import digest_of, local
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

_KEPT = 2
_METADATA = ".metadata"
_MOST_METADATA = 1 << 28  # bytes
_BYTES_PER_PARAMETER = 12  # float32: the parameter and the two moments of AdamW
OPTIONS: tuple[Option, ...] = (
    ("--checkpoint-dir", str, None, "a directory that all ranks see, or one on each node's disk"),
    ("--checkpoint-every", int, 0, "steps; 0: after the last step alone"),
    ("--checkpoint-async", bool, False, "write while the training goes on"),
    ("--slow-checkpoint-s", float, 0.0, HIDDEN),
)


class Checkpoints:
    """Saves checkpoints every `--checkpoint-every` steps and after the last one; does nothing
    without `--checkpoint-dir`.
    """

    def __init__(
        self,
        options: Namespace,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
    ) -> None:
        self.options = options
        self.model = model
        self.optimizer = optimizer
        self.device = device
        self.folder = Path(options.checkpoint_dir or ".")  # unused without the option
        self.cpu_group = dist.new_group(backend="gloo") if options.checkpoint_async else None
        self.pending: Any = None
        # (bytes of all ranks, seconds of the slowest rank) of each save
        self.writes: list[tuple[float, float]] = []
        self.blocked_s: list[float] = []
        self.read: Json = {}
        self.restore_s: float | None = None
        if options.checkpoint_dir:
            self._look()

    def _look(self) -> None:
        """Check before the first step that the directory exists and has enough free space.

        Raises CannotStart.
        """
        folder = self.folder
        problem = ""
        free = 0
        if not folder.is_dir():
            problem = "there is no such directory"
        elif not os.access(folder, os.W_OK | os.X_OK):
            problem = "this user cannot write there"
        else:
            free = shutil.disk_usage(folder).free
        if self._over_ranks(bool(problem)):
            raise CannotStart(
                f"--checkpoint-dir {folder}: {problem or 'another rank cannot use it'}"
            )
        parameters = sum(local(each).numel() for each in self.model.parameters())
        needed = _KEPT * _BYTES_PER_PARAMETER * parameters
        total = self._over_ranks(needed)
        if total > free:
            free_gb = free / 1e9
            needed_gb = total / 1e9
            raise CannotStart(
                f"--checkpoint-dir {folder}: {free_gb:.3g} GB are free, {_KEPT} "
                f"checkpoints need {needed_gb:.3g} GB"
            )

    def is_due(self, step: int, *, is_last: bool) -> bool:
        """Return whether a checkpoint is saved after this step."""
        if not self.options.checkpoint_dir:
            return False
        every = self.options.checkpoint_every
        return is_last or (every > 0 and (step + 1) % every == 0)

    def save(self, step: int) -> Json:
        """Save, and delete older checkpoints; return the seconds for which training was blocked,
        and the bytes of all ranks.

        Every rank calls this. An asynchronous save waits for the previous one.
        """
        began = time.perf_counter()
        self._wait()
        if self.options.slow_checkpoint_s:
            time.sleep(self.options.slow_checkpoint_s)
        state = self._state()
        size = self._over_ranks(sum(bytes_of(state)))
        target = self._path(step)
        if self.options.checkpoint_async:
            future = dcp.async_save(state, checkpoint_id=target, process_group=self.cpu_group)
            self.pending = (future, began, size, step)
        else:
            dcp.save(state, checkpoint_id=target)
            self._written(began, size, step)
        blocked_s = time.perf_counter() - began
        self.blocked_s.append(blocked_s)
        return {"blocked_s": blocked_s, "bytes": size}

    def _wait(self) -> None:
        """Wait until the last asynchronous save is on disk."""
        if self.pending is None:
            return
        future, began, size, step = self.pending
        self.pending = None
        future.result()
        self._written(began, size, step)

    def _written(self, began: float, size: float, step: int) -> None:
        """Record a finished save, and delete older ones, on one rank of each node, as the directory
        may be local.
        """
        seconds = self._over_ranks(time.perf_counter() - began, dist.ReduceOp.MAX)
        self.writes.append((size, seconds))
        self._spread_metadata(self._path(step))
        if int(os.environ.get("LOCAL_RANK", dist.get_rank())):
            return
        for old in self._steps()[:-_KEPT]:
            shutil.rmtree(self._path(old), ignore_errors=True)

    def _spread_metadata(self, path: Path) -> None:
        """Copy rank 0's metadata to nodes whose disks lack it.

        Every rank calls this. Raises RuntimeError for more than `_MOST_METADATA` bytes.
        """
        file = path / _METADATA
        missing = self._over_ranks(not file.exists())
        if not missing:
            return
        content = file.read_bytes() if dist.get_rank() == 0 else b""
        size = int(self._over_ranks(len(content), dist.ReduceOp.MAX))
        if size > _MOST_METADATA:
            raise RuntimeError(
                f"{file} has {size} bytes, at most {_MOST_METADATA} can be sent to other nodes"
            )
        if content:
            numbers = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(self.device)
        else:
            numbers = torch.zeros(size, dtype=torch.uint8, device=self.device)
        dist.broadcast(numbers, 0)
        if not file.exists():
            partial = file.with_name(f"{_METADATA}.{os.getpid()}")
            partial.write_bytes(bytes(numbers.tolist()))
            partial.replace(file)

    def restore(self) -> int:
        """Load the newest checkpoint that all ranks have; return the next step, 0 without a
        checkpoint.
        """
        if not self.options.checkpoint_dir:
            return 0
        ranks = rendezvous.exchange({"steps": self._steps()[-_KEPT:]}, str(self.device))
        shared = set.intersection(*(set(rank["steps"]) for rank in ranks))
        if not shared:
            return 0
        step = int(max(shared))
        self.restore_s = self._load(step)
        return step

    def _load(self, step: int) -> float:
        """Load a checkpoint past the page cache; return the seconds of the slowest rank."""
        path = self._path(step)
        drop_from_page_cache(path)
        dist.barrier()
        began = time.perf_counter()
        state = self._state()
        dcp.load(state, checkpoint_id=path)
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=_flat(),
        )
        return self._over_ranks(time.perf_counter() - began, dist.ReduceOp.MAX)

    def finish(self) -> None:
        """Wait for the last save, read the newest checkpoint back, and compare it with the
        parameters.
        """
        self._wait()
        steps = self._steps() if self.writes else []
        if not steps:
            return
        before = digest_of(self.model.parameters())
        seconds = self._load(steps[-1])
        differing = self._over_ranks(before != digest_of(self.model.parameters()))
        written_bytes, _ = self.writes[-1]
        self.read = {"read_gb_s": written_bytes / 1e9 / seconds, "read_back": differing == 0}

    def result(self) -> Json | None:
        """Return the figures of all saves; None if there were none."""
        if not self.writes:
            return None
        rates = [size / 1e9 / seconds for size, seconds in self.writes]
        return {
            "saves": len(self.writes),
            "bytes": self.writes[-1][0],
            "write_gb_s": median_high(rates),
            "blocked_s": median_high(self.blocked_s),
            "restore_s": self.restore_s,
            **self.read,
        }

    def _state(self) -> Json:
        """Return the state to save; torch also loads into it in place."""
        model, optimizer = get_state_dict(self.model, self.optimizer, options=_flat())
        return {"model": model, "optimizer": optimizer}

    def _path(self, step: int) -> Path:
        """Return the folder of the checkpoint after `step`."""
        return self.folder / f"step-{step:08d}"

    def _steps(self) -> list[int]:
        """Return the steps of whole checkpoints in the directory, in order."""
        steps = []
        for path in self.folder.iterdir():
            match = re.fullmatch(r"step-(\d{8})", path.name)
            if match and (path / _METADATA).is_file():
                steps.append(int(match[1]))
        return sorted(steps)

    def _over_ranks(self, value: float, operation: Any = dist.ReduceOp.SUM) -> float:
        """Return the sum, or the maximum, of a value over all ranks; true counts as 1."""
        return float(rendezvous.reduced(value, str(self.device), operation))


def _flat() -> StateDictOptions:
    """Return options that give each pipeline rank's optimizer state distinct names."""
    return StateDictOptions(flatten_optimizer_state_dict=True)


def bytes_of(state: Any) -> Iterator[int]:
    """Yield the bytes of this rank's part of each tensor in a state, ignoring other values."""
    if isinstance(state, torch.Tensor):
        yield local(state).numel() * state.element_size()
    elif isinstance(state, dict):
        for value in state.values():
            yield from bytes_of(value)


def drop_from_page_cache(folder: Path) -> None:
    """Have the kernel drop the files' pages, so that they are read from disk; they were synced when
    written.
    """
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
