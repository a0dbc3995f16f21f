"""What a rank says when its step does not end: its collectives, where it stands, whether its GPU is
busy.

The collectives are those of PyTorch's flight recorder
(https://pytorch.org/tutorials/unstable/flight_recorder_tutorial.html), which records each one when
a rank enters it. A thread of every rank says, in one line of JSON, how far the rank has come in
each of its groups; from the lines of all ranks follows who did not enter what
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

from rendezvous import Json, dist, torch  # which says so where torch is missing
from torch_device import smi_line

_RECORDED = "2000"  # collectives
# The second one before torch 2.9
_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")

_EVERY_S = 0.25
_GRACE_S = 8.0  # for the others to say the same, before the first rank that leaves ends all
_FRAMES = 8
_MOST_GROUPS = 16
_MOST_CALLS = 64  # the latest sends and receives
_SMI_TIMEOUT_S = 5
_RAS = "localhost:28028"  # where NCCL listens, from 2.24 on, unless NCCL_RAS_ADDR says otherwise
_RAS_S, _MOST_RAS_BYTES = 6.0, 16 << 10  # RAS itself waits 5 s for silent ranks
_GPU_WAITS = ("synchronize", "between_ms", "settle")


def record_collectives() -> None:
    """Turn the flight recorder on; call it before a process group is made."""
    is_old = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 9)
    os.environ.setdefault(_VARIABLES[is_old], _RECORDED)


class Watchdog:
    """Ends the process with status 1 when `beat` was not called for `limit_s`, after it has said
    where it stands.

    It watches from the first `beat` on, and never a rank that is alone.
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
        """Say that a step begins."""
        self.step = step
        self.last = time.monotonic()

    def _watch(self) -> None:
        looked = time.monotonic()
        while not self.over.wait(_EVERY_S):
            now = time.monotonic()
            # This rank itself was stopped: it is silent, as those that wait saw it
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
        entries = pickle.loads(trace)["entries"] if trace else []  # written by this very process
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
        """Return NCCL's RAS report on the whole job; one rank asks, and another in case that one is
        gone.
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
    """Return for each group of this rank its id, name, ranks, and the number and operation of the
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
    """Return the latest sends and receives of this rank, and the ends of their batches; gloo
    records none.
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
    """Return the ranks of each group of this process, by the group's id; empty where torch keeps
    them elsewhere.
    """
    with suppress(AttributeError):
        names = dist.distributed_c10d._world.pg_names
        return {str(name): dist.get_process_group_ranks(group) for group, name in names.items()}
    return {}


def innermost(thread: int) -> list[traceback.FrameSummary]:
    """Return the innermost calls of a thread, the last one last."""
    frame = sys._current_frames().get(thread)
    return traceback.extract_stack(frame)[-_FRAMES:] if frame else []


def stack_of(thread: int) -> list[str]:
    """Return where a thread is, the innermost call first: "decoder.py:118 forward"."""
    return [
        f"{Path(call.filename).name}:{call.lineno} {call.name}"
        for call in reversed(innermost(thread))
    ]


def waits_for_others(thread: int) -> bool:
    """Return whether a thread waits for other ranks, in PyTorch's communication, or for the end of
    a GPU's work.
    """
    return any(
        "/torch/distributed/" in call.filename or call.name in _GPU_WAITS
        for call in innermost(thread)
    )


def ras_status(address: str) -> list[str]:
    """Return what NCCL's RAS answers to `verbose status`, as ncclras prints it; empty where nothing
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
    """Return how busy this process's GPU is, percent, and its power, W; None where nvidia-smi does
    not say.
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
