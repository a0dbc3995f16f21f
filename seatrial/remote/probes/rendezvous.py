"""Rendezvous and exit of a probe's ranks. Copied to the nodes next to the probes.

A rank that gives up reports it in the store through which the ranks met, which rank 0 keeps, so
that the others can name the ranks that are stopped, hang or were killed.

Exit statuses, the same for every probe: 0 done; 1 the ranks lost each other or something else
broke; 2 bad arguments or contradictory variables; 3 a prerequisite is missing (`cannot start: ...`
on standard error); 7 done, and the numbers are wrong.
"""

from __future__ import annotations

import fcntl
import gc
import ipaddress
import json
import os
import re
import socket
import struct
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import Any

import placement
from placement import ContradictoryEnvironment, RankPlacement

# Read when torch is imported; suppresses warnings, which would fill the log
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

gc.disable()  # garbage collection during the import would take a quarter of its time
try:
    import torch
    import torch.distributed as dist
except (ImportError, OSError, MemoryError) as problem:
    here = f"{socket.gethostname()} rank {placement.shown_rank(os.environ)}"
    absent = "is missing for" if isinstance(problem, ModuleNotFoundError) else "cannot be loaded by"
    sys.stderr.write(
        f"{here}: cannot start: torch {absent} {sys.executable}: "
        f"{problem or type(problem).__name__}\n"
    )
    sys.exit(3)
gc.freeze()
gc.enable()

BROKEN = 1
BAD_ARGUMENTS = 2
CANNOT_START = 3
WRONG_RESULT = 7

Json = dict[str, Any]  # a JSON object
Gathered = list[Json]  # the reports of all ranks
_SIOCGIFADDR = 0x8915
_PORT_WAIT_S = 5.0
_PORT_PAUSE_S = 0.02
_TEXT_BYTES = 1024  # most bytes of one rank's text in `share`
# Time for reports of the others, which began to wait for the collective at about the same time
_WAIT_S = 2.0
_ANSWER_S = 1.0  # time for the store's answers after that
_ASK_S = 0.05  # time for the answer about one rank
_NAMED = 8  # most silent ranks to name
_MAX_HOST = 100  # characters
_IN_VAIN = re.compile(
    r"timed out|timeout|connection (?:was )?(?:closed|reset)|broken pipe", re.IGNORECASE
)
_NO_STORE = "no word from rank 0, which keeps the store of the ranks"


class CannotStart(Exception):
    """A prerequisite is missing; the message names it."""


def place(options: Namespace) -> RankPlacement:
    """Return this process's placement, and set the address of rank 0 in the options.

    Raises ContradictoryEnvironment, or CannotStart.
    """
    if options.master_addr and placement.launcher_of(os.environ) is None:
        raise CannotStart(
            "no launcher's rank in the environment: start it by mpirun, srun or torchrun"
        )
    here: RankPlacement = placement.place(os.environ)
    options.master_addr = options.master_addr or placement.master_address(
        os.environ, here.world_size
    )
    options.master_port = options.master_port or placement.master_port(os.environ)
    return here


def choose_device(requested: str | None, here: RankPlacement) -> str:
    """Return the torch device of this rank: a GPU if there is one, unless `cpu` is asked for.

    Raises CannotStart.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if requested == "cpu" or (requested is None and not gpus):
        return "cpu"
    index = int(placement.gpu_index(os.environ, here))
    if index >= gpus:
        raise CannotStart(
            f"torch {torch.__version__} sees {gpus} GPUs, local rank {here.local_rank} needs one"
        )
    torch.cuda.set_device(index)
    return f"cuda:{index}"


def addresses() -> dict[str, str]:
    """Return the primary IPv4 address of every interface that has one, by interface name."""
    addresses_by_name = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # no IPv4 address
            addresses_by_name[name] = socket.inet_ntoa(answer[20:24])
    return addresses_by_name


def interface(network: str | None, master: str, addresses_by_name: Mapping[str, str]) -> str:
    """Return the interface to use: by name, with an address in the CIDR `network`, or on the route
    to `master`.

    Raises CannotStart.
    """
    if network and "/" not in network:
        return network
    requested = ipaddress.ip_network(network or f"{_source_address(master)}/32", strict=False)
    for name, address in addresses_by_name.items():
        if ipaddress.ip_address(address) in requested:
            return name
    here = ", ".join(f"{name} {address}" for name, address in addresses_by_name.items())
    raise CannotStart(f"no interface has an address in {requested}; here: {here or 'none'}")


def _source_address(master: str) -> str:
    """Return the local address from which packets to `master` are sent; connecting a UDP socket
    sends nothing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((master, 9))
        except OSError as error:
            raise CannotStart(f"no way to {master}: {error}") from error
        return str(sock.getsockname()[0])


def begin(options: Namespace) -> tuple[RankPlacement, str]:
    """Return this process's placement and device, as `place` and `choose_device` do; limits torch
    to one thread.
    """
    torch.set_num_threads(1)
    here = place(options)
    return here, choose_device(options.device, here)


def join(here: RankPlacement, options: Namespace, device: str = "cpu") -> None:
    """Create the process group of all ranks: gloo between processors, NCCL between GPUs.

    Raises CannotStart, or RuntimeError if the ranks did not meet.
    """
    backend = "gloo" if device == "cpu" else "nccl"
    if here.world_size == 1:  # a single rank needs no port, which another process might use
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        return
    os.environ["GLOO_SOCKET_IFNAME"] = interface(options.network, options.master_addr, addresses())
    meeting = f"{options.master_addr}:{options.master_port}"
    if here.rank:
        _wait_for_port(
            options.master_addr, options.master_port, min(options.timeout_s, _PORT_WAIT_S)
        )
    try:
        dist.init_process_group(
            backend,
            init_method=f"tcp://{meeting}",
            rank=here.rank,
            world_size=here.world_size,
            timeout=timedelta(seconds=options.timeout_s),
        )
    except (RuntimeError, OSError, ValueError) as error:
        text = one_line(error)
        if "address already in use" in text.lower() or "EADDRINUSE" in text:
            raise CannotStart(
                f"port {options.master_port} on {options.master_addr} is already in use"
            ) from error
        raise RuntimeError(
            f"the ranks did not meet at {meeting} within {options.timeout_s:g} s: {text}"
        ) from error
    announce(here.rank, here.host)


def _wait_for_port(address: str, port: int, seconds: float) -> None:
    """Wait at most `seconds` until rank 0 listens, since torch retries only after up to a
    second.
    """
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        with suppress(OSError):
            socket.create_connection((address, port), timeout=left).close()
            return
        time.sleep(_PORT_PAUSE_S)


def share(text: str, device: str = "cpu") -> list[str]:
    """Return the text of every rank, gathered as tensors of bytes, since all_gather_object needs
    numpy.
    """
    encoded = text.encode()
    if len(encoded) > _TEXT_BYTES:
        raise ValueError(f"{len(encoded)} bytes to share, at most {_TEXT_BYTES} fit")
    mine = torch.tensor(list(encoded.ljust(_TEXT_BYTES)), dtype=torch.uint8, device=device)
    return [bytes(theirs.tolist()).decode().rstrip() for theirs in gathered(mine)]


def gathered(mine: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensor of every rank, by rank."""
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return everyone


def reduced(value: float, device: str = "cpu", operation: Any = dist.ReduceOp.SUM) -> float:
    """Return the sum, or the maximum, of a value over all ranks; true counts as 1.

    Whole numbers are exact up to 2^53.
    """
    number = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(number, op=operation)
    return float(number)


def report(mine: Mapping[str, Any], device: str = "cpu") -> Gathered:
    """Gather the report of every rank on itself.

    Each rank also prints its own report, so that no rank can report for another.
    """
    print(json.dumps({"event": "part", **mine}) + "\n", end="", flush=True)  # in one write
    return exchange(mine, device)


def exchange(mine: Mapping[str, Any], device: str) -> Gathered:
    """Gather the values of every rank, by rank."""
    return [json.loads(text) for text in share(json.dumps(mine), device)]


def one_line(error: BaseException) -> str:
    """Return the first line of an error, without gloo's source location.

    Torch appends C++ stack traces.
    """
    lines = [
        re.sub(r"^\[\S+:\d+\] ", "", line.strip())
        for line in str(error).splitlines()
        if line.strip()
    ]
    return (lines[0] if lines else type(error).__name__)[:400]


def run(probe: str, main: Callable[[Sequence[str]], int]) -> None:
    """Run a probe's main and exit; after an error, print one line with host, rank and cause.

    It exits by os._exit: destructors of a broken process group abort the process, or wait for peers
    that are gone.
    """
    try:
        status = main(sys.argv[1:])
    except SystemExit as leaving:  # argparse
        status = leaving.code if isinstance(leaving.code, int) else BROKEN
    except ContradictoryEnvironment as error:
        status = complain(probe, str(error), BAD_ARGUMENTS)
    except CannotStart as error:
        status = complain(probe, f"cannot start: {error}", CANNOT_START)
    except BaseException as error:
        status = complain(probe, f"{type(error).__name__}: {one_line(error)}", BROKEN)
        if silent := silent_ranks(error):
            complain(probe, silent, BROKEN)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def complain(probe: str, cause: str, status: int) -> int:
    """Print one line on standard error with host, rank and cause; return `status`."""
    rank = placement.shown_rank(os.environ)
    sys.stderr.write(f"{probe} probe: {socket.gethostname()} rank {rank}: {cause}\n")
    return status


def announce(rank: int, host: str) -> None:
    """Record the rank's host in the store."""
    _store().set(f"host/{rank}", host)


def silent_ranks(error: BaseException) -> str:
    """Record in the store that this rank gives up; name the ranks that have not done so.

    `no word from rank 1 on node-1`; "" if all gave up or it is unknown.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return ""
    in_vain = bool(_IN_VAIN.search(str(error)))
    place = (dist.get_rank(), dist.get_world_size())
    answers = list[str]()
    asking = threading.Thread(
        target=lambda: answers.append(_ask(*place, in_vain=in_vain)), daemon=True
    )
    asking.start()
    asking.join(_WAIT_S + 1.5 * _ANSWER_S if in_vain else _ANSWER_S)
    return "".join(answers) if answers or not in_vain or not place[0] else _NO_STORE


def _ask(rank: int, ranks: int, *, in_vain: bool) -> str:
    """Ask the store for silent ranks, on at most two ranks: thousands would send millions of
    queries.
    """
    try:
        store = _store()
        store.set(f"gave up/{rank}", "")
        others = [other for other in range(ranks) if other != rank]
        if not in_vain or _gave_up(store, others, _WAIT_S):
            return ""
        if rank > 1:
            time.sleep(_ANSWER_S)  # mpirun ends all ranks when the first one exits
            return ""
        if not _gave_up(store, [rank], _ASK_S):
            return _NO_STORE
        silent_ones = (other for other in others if not _gave_up(store, [other], _ASK_S))
        silent = list(islice(silent_ones, _NAMED))
        if not 0 < 2 * len(silent) <= ranks:
            return ""
        hosts = [store.get(f"host/{other}").decode()[:_MAX_HOST] for other in silent]
        named = (f"rank {other} on {host}" for other, host in zip(silent, hosts))
        return f"no word from {', '.join(named)}"
    except Exception:
        # Any error of a store that ended with rank 0, or that this torch lacks
        return ""


def _gave_up(store: Any, ranks: list[int], wait_s: float) -> bool:
    try:
        store.wait([f"gave up/{rank}" for rank in ranks], timedelta(seconds=wait_s))
    except RuntimeError:
        return False
    return True


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()
