"""The report of a rank whose step does not end: its collectives, its stack, and whether its GPU is
busy.

The collectives come from PyTorch's flight recorder
(https://pytorch.org/tutorials/unstable/flight_recorder_tutorial.html), which records each one when
a rank enters it. A thread of every rank prints, as one line of JSON, how far the rank has come in
each of its groups; the lines of all ranks show which rank did not enter which collective
(seatrial/readers/flight_recorder.py). Copied to the nodes next to the probes.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rendezvous import Json, dist, torch  # reports a missing torch
from torch_device import smi_line

_RECORDED = "2000"  # number of collectives to record
# The second name is for torch before 2.9
_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")

_EVERY_S = 0.25
_GRACE_S = 8.0  # time for other ranks to report too, since the first rank that exits ends all
_FRAMES = 8
_MOST_GROUPS = 16
_MOST_CALLS = 64  # most sends and receives to report, the latest ones
_SMI_TIMEOUT_S = 5
_RAS = "localhost:28028"  # default address of NCCL's RAS, from NCCL 2.24 on
_RAS_S, _MOST_RAS_BYTES = 6.0, 16 << 10  # RAS itself waits 5 s for silent ranks
_GPU_WAITS = ("synchronize", "between_ms", "settle")


def record_collectives() -> None:
    """Enable the flight recorder; call this before creating a process group."""
    is_old = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 9)
    os.environ.setdefault(_VARIABLES[is_old], _RECORDED)


class Watchdog:
    """Ends the process with status 1, after a report, if `beat` was not called for `limit_s`.

    It starts with the first `beat`, and never watches a single rank.
    """

    def __init__(
        self, rank: int, host: str, limit_s: float, dump_prefix: str | None = None
    ) -> None:
        self.place = {"rank": rank, "host": host}
        self.limit_s = limit_s
        self.dump_prefix = dump_prefix
        self.watched = threading.main_thread().ident or 0
        self.step = -1
        self.last = math.inf
        self.over = threading.Event()

    def __enter__(self) -> Watchdog:
        if self.limit_s > 0 and dist.get_world_size() > 1:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()

    def beat(self, step: int) -> None:
        """Record that a step begins."""
        self.step = step
        self.last = time.monotonic()

    def _watch(self) -> None:
        looked = time.monotonic()
        while not self.over.wait(_EVERY_S):
            now = time.monotonic()
            # This rank itself was stopped, so it stays silent; the ranks that waited report it
            if now - looked > self.limit_s / 2:
                self.last = now
            looked = now
            if now - self.last < self.limit_s:
                continue
            sys.stdout.write(json.dumps(self._report()) + "\n")
            sys.stdout.flush()
            time.sleep(_GRACE_S)
            os._exit(1)

    def _report(self) -> Json:
        trace = recorded()
        if self.dump_prefix and trace is not None:
            with suppress(OSError):
                Path(f"{self.dump_prefix}{self.place['rank']}").write_bytes(trace)
        # Safe to unpickle, as this process wrote it
        entries = pickle.loads(trace)["entries"] if trace else []
        return {
            "event": "stuck",
            **self.place,
            "step": self.step,
            "groups": groups_of(entries) if trace is not None else [],
            "calls": calls_of(entries),
            "stack": stack_of(self.watched),
            "waits": waits_for_others(self.watched),
            "gpu": gpu_state(),
            "ras": self._ras(),
        }

    def _ras(self) -> list[str]:
        """Return NCCL's RAS report on the whole job, on the first and the last rank, in case one of
        them is gone.
        """
        is_asked = (
            self.place["rank"] in (0, dist.get_world_size() - 1) and dist.get_backend() == "nccl"
        )
        return ras_status(os.environ.get("NCCL_RAS_ADDR") or _RAS) if is_asked else []


def recorded() -> bytes | None:
    """Return the flight recorder's dump of this process, a pickle of plain values.

    None where this torch records none.
    """
    c10d: Any = torch._C._distributed_c10d
    for name in ("_dump_fr_trace", "_dump_nccl_trace"):
        with suppress(AttributeError, RuntimeError, TypeError):
            dump: Callable[..., bytes] = getattr(c10d, name)
            return dump(includeCollectives=True, includeStackTraces=False, onlyActive=False)
    return None


def groups_of(entries: Sequence[Json]) -> list[Json]:
    """Return id, name and ranks of each of this rank's groups, with number and operation of its
    last collective.
    """
    members = _members()
    groups = {}
    for name in (*members, *(entry["process_group"][0] for entry in entries)):
        groups[name] = {
            "id": name,
            "name": "",
            "ranks": members.get(name, []),
            "collective": 0,
            "operation": "",
        }
    for entry in entries:
        name, description = entry["process_group"]
        groups[name]["name"] = description
        if not entry["is_p2p"] and entry["collective_seq_id"] > groups[name]["collective"]:
            groups[name] |= {
                "collective": entry["collective_seq_id"],
                "operation": entry["profiling_name"],
            }
    return [group for group in groups.values() if len(group["ranks"]) != 1][:_MOST_GROUPS]


def calls_of(entries: Sequence[Json]) -> list[Json]:
    """Return this rank's latest sends and receives, and the ends of their batches; gloo records
    none.
    """
    calls = [
        entry
        for entry in entries
        if entry["is_p2p"] or entry["profiling_name"].endswith(":coalesced")
    ]
    return [
        {
            "group": str(call["process_group"][0]),
            "operation": call["profiling_name"],
            "number": call["p2p_seq_id"],
            "is_done": call["state"] == "completed" or bool(call.get("retired")),
        }
        for call in calls[-_MOST_CALLS:]
    ]


def _members() -> dict[str, list[int]]:
    """Return the ranks of each group of this process, by group id; {} if this torch stores them
    elsewhere.
    """
    with suppress(AttributeError):
        names = dist.distributed_c10d._world.pg_names
        return {str(name): dist.get_process_group_ranks(group) for group, name in names.items()}
    return {}


def innermost(thread: int) -> list[traceback.FrameSummary]:
    """Return the innermost frames of a thread, the innermost last."""
    frame = sys._current_frames().get(thread)
    return traceback.extract_stack(frame)[-_FRAMES:] if frame else []


def stack_of(thread: int) -> list[str]:
    """Return the stack of a thread, the innermost frame first: "decoder.py:118 forward"."""
    return [
        f"{Path(call.filename).name}:{call.lineno} {call.name}"
        for call in reversed(innermost(thread))
    ]


def waits_for_others(thread: int) -> bool:
    """Return whether a thread waits for other ranks, in PyTorch's communication, or for the GPU."""
    return any(
        "/torch/distributed/" in call.filename or call.name in _GPU_WAITS
        for call in innermost(thread)
    )


def ras_status(address: str) -> list[str]:
    """Return the answer of NCCL's RAS to `verbose status`, as ncclras prints it; empty if nothing
    listens.
    """
    host, _, port = address.rpartition(":")
    answer = b""
    ends = time.monotonic() + _RAS_S
    with suppress(OSError, ValueError), socket.create_connection((host, int(port)), _RAS_S) as ras:
        ras.sendall(b"verbose status\n")
        while len(answer) < _MOST_RAS_BYTES and (left := ends - time.monotonic()) > 0:
            ras.settimeout(left)
            if not (piece := ras.recv(4096)):
                break
            answer += piece
    return answer[:_MOST_RAS_BYTES].decode(errors="replace").splitlines()


def gpu_state() -> dict[str, float] | None:
    """Return utilization (percent) and power (W) of this process's GPU; None if nvidia-smi does not
    report them.
    """
    if not torch.cuda.is_initialized():
        return None
    uuid = str(getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", ""))
    line: str = smi_line(f"GPU-{uuid}", ("utilization.gpu", "power.draw"), _SMI_TIMEOUT_S)
    try:
        busy, power = map(float, line.split(","))
    except ValueError:
        return None
    return {"busy_percent": busy, "power_w": power}
