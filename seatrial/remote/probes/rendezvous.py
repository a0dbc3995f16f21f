"""How the ranks of a probe find each other, and how a probe leaves. Copied to the nodes next to the probes.

Exit statuses, the same for every probe: 0 done; 1 the ranks lost each other or something else broke; 2 bad arguments;
3 a prerequisite is missing (`cannot start: ...` on standard error); 7 done, and the numbers are wrong.
"""

from __future__ import annotations

import argparse
import fcntl
import ipaddress
import os
import re
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # read when torch is imported; its warnings would fill the log

try:
    import torch
    import torch.distributed as dist
except ImportError as missing:
    sys.stderr.write(f"{socket.gethostname()}: cannot start: torch is missing for {sys.executable}: {missing}\n")
    sys.exit(3)

BROKEN, CANNOT_START, WRONG_RESULT = 1, 3, 7

# (rank, world size, local rank) as each launcher names them. mpirun first: it may run inside another one's job.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("PMIX_RANK", "SLURM_NTASKS", "SLURM_LOCALID"),
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
_SIOCGIFADDR = 0x8915
_TEXT_BYTES = 1024  # what one rank may tell the others in `share`


class CannotStart(Exception):
    """A prerequisite is missing; the message names it."""


@dataclass(frozen=True)
class RankPlacement:
    """Which of how many ranks this process is, and where."""

    rank: int
    world_size: int
    local_rank: int
    host: str


def place(environ: Mapping[str, str]) -> RankPlacement:
    """This process's place, from whichever launcher started it. Raises CannotStart when none did."""
    for rank, size, local in _LAUNCHERS:
        if rank in environ and size in environ:
            return RankPlacement(
                int(environ[rank]), int(environ[size]), int(environ.get(local, "0")), socket.gethostname()
            )
    raise CannotStart("no launcher's rank in the environment: start it by mpirun, srun or torchrun")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that every probe takes."""
    parser.add_argument("--master-addr", required=True, help="address of rank 0's node")
    parser.add_argument("--master-port", required=True, type=int, help="a free port there")
    parser.add_argument("--network", help="CIDR or interface that the ranks talk over; the way to rank 0 when unset")
    parser.add_argument("--timeout-s", type=float, default=60.0, help="for the ranks to meet, and for one collective")


def addresses() -> dict[str, str]:
    """The primary IPv4 address of every interface that has one, by interface name."""
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
    """The interface to use: the one named, the one with an address in the CIDR, or the one that leads to `master`.

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
    """The local address that packets to `master` leave from (connecting a UDP socket sends nothing)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((master, 9))
        except OSError as error:
            raise CannotStart(f"no way to {master}: {error}") from error
        return str(sock.getsockname()[0])


def join(here: RankPlacement, options: argparse.Namespace, backend: str = "gloo") -> None:
    """Make the process group of all ranks. Raises CannotStart, or RuntimeError naming where the ranks did not meet."""
    os.environ["GLOO_SOCKET_IFNAME"] = interface(options.network, options.master_addr, addresses())
    meeting = f"{options.master_addr}:{options.master_port}"
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
            raise CannotStart(f"port {options.master_port} on {options.master_addr} is already in use") from error
        raise RuntimeError(f"the ranks did not meet at {meeting} within {options.timeout_s:g} s: {text}") from error


def share(text: str, device: str = "cpu") -> list[str]:
    """What every rank said, by rank. Bytes in a tensor, because all_gather_object needs numpy."""
    encoded = text.encode()
    if len(encoded) > _TEXT_BYTES:
        raise ValueError(f"{len(encoded)} bytes to share, at most {_TEXT_BYTES} fit")
    mine = torch.tensor(list(encoded.ljust(_TEXT_BYTES)), dtype=torch.uint8, device=device)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return [bytes(theirs.tolist()).decode().rstrip() for theirs in everyone]


def one_line(error: BaseException) -> str:
    """The first line of what went wrong, without the place in gloo's source; torch puts C++ stack traces below it."""
    lines = [re.sub(r"^\[\S+:\d+\] ", "", line.strip()) for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:400]


def run(probe: str, main: Callable[[Sequence[str]], int]) -> None:
    """Run a probe's main and leave, whatever happened, with one line that names host, rank and cause.

    Leaves by os._exit: the destructors of a broken process group abort the process or wait for peers that are gone.
    """
    try:
        status = main(sys.argv[1:])
    except SystemExit as leaving:  # argparse
        status = leaving.code if isinstance(leaving.code, int) else BROKEN
    except CannotStart as error:
        status = complain(probe, f"cannot start: {error}", CANNOT_START)
    except BaseException as error:
        status = complain(probe, f"{type(error).__name__}: {one_line(error)}", BROKEN)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def complain(probe: str, cause: str, status: int) -> int:
    """Say on standard error, in one line, which rank where has which problem; returns `status`."""
    ranks = [os.environ[name] for name, _, _ in _LAUNCHERS if name in os.environ]
    sys.stderr.write(f"{probe} probe: {socket.gethostname()} rank {ranks[0] if ranks else '?'}: {cause}\n")
    return status
