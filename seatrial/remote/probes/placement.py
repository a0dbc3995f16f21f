"""The rank of this process and the address of rank 0, from the variables of the launcher.

Understood: torchrun, Open MPI, PMI (MPICH, Intel MPI) and PMIx, RANK and WORLD_SIZE as people set
them, Slurm's, and the PET_* of Kubeflow. Without any of them this process is rank 0 of 1. Standard
library alone; copied to the nodes.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import Mapping

Environ = Mapping[str, str]
DEFAULT_PORT = 29500  # the default of torch and Kubeflow
_DEVICES = {"gloo": "cpu", "nccl": "cuda"}
_MAX_HOSTS_TEXT = 1 << 20  # most characters of a node list


class ContradictoryEnvironment(Exception):
    """The launcher's environment variables contradict each other; the message names them."""


@dataclass(frozen=True)
class LauncherVariables:
    """The variables in which one launcher sets the rank, the number of ranks, and the rank on the
    node.
    """

    rank: str
    size: str
    local_rank: str
    # A variable that only this launcher sets, if others set the same rank variables
    sign: str | None = None

    def started(self, environ: Environ) -> bool:
        """Return whether this launcher started the process."""
        signed = self.sign is None or self.sign in environ
        return signed and self.rank in environ and self.size in environ


_BY_HAND = LauncherVariables("RANK", "WORLD_SIZE", "LOCAL_RANK")
_SLURM = LauncherVariables("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
_KUBEFLOW = LauncherVariables("PET_NODE_RANK", "PET_NNODES", "LOCAL_RANK")
# The innermost launcher first: mpirun may start torchrun, and a Slurm job or Kubeflow pod may
# contain both.
LAUNCHERS = (
    LauncherVariables("RANK", "WORLD_SIZE", "LOCAL_RANK", sign="TORCHELASTIC_RUN_ID"),
    LauncherVariables("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    LauncherVariables("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    LauncherVariables("PMIX_RANK", "SLURM_NTASKS", "SLURM_LOCALID"),
    _BY_HAND,
    _SLURM,
    _KUBEFLOW,
)


@dataclass(frozen=True)
class RankPlacement:
    """Rank, number of ranks, rank on the node and host of this process."""

    rank: int
    world_size: int
    local_rank: int
    host: str


def place(environ: Environ) -> RankPlacement:
    """Return this process's place; rank 0 of 1 without a launcher.

    Raises ContradictoryEnvironment.
    """
    launcher = launcher_of(environ)
    if launcher is None:
        _refuse_half(environ)
        return RankPlacement(0, 1, 0, socket.gethostname())
    size = _number(environ, launcher.size, at_least=1)
    rank = _number(environ, launcher.rank, at_least=0)
    local_rank = (
        _number(environ, launcher.local_rank, at_least=0) if launcher.local_rank in environ else 0
    )
    if rank >= size:
        raise ContradictoryEnvironment(f"{launcher.rank} is {rank}, but {launcher.size} is {size}")
    if local_rank > rank:  # the local rank is the number of lower ranks on the node
        raise ContradictoryEnvironment(
            f"{launcher.local_rank} is {local_rank}, but {launcher.rank} is {rank}"
        )
    # Kubeflow's RANK and PET_NODE_RANK count nodes, so they are a process's rank only with one
    # process per node.
    per_node = environ.get("PET_NPROC_PER_NODE", "1")
    if launcher in (_BY_HAND, _KUBEFLOW) and "LOCAL_RANK" not in environ and per_node != "1":
        raise ContradictoryEnvironment(
            f"{launcher.rank} is the rank of a node and PET_NPROC_PER_NODE is "
            f"{_quoted(per_node)}: start it by torchrun"
        )
    # If two launchers set the same number of ranks but different ranks, one setting is stale.
    if (
        launcher is _BY_HAND
        and _SLURM.started(environ)
        and _number(environ, _SLURM.size, at_least=1) == size
    ):
        other = _number(environ, _SLURM.rank, at_least=0)
        if other != rank:
            raise ContradictoryEnvironment(
                f"RANK is {rank}, but SLURM_PROCID is {other}, both of {size} ranks"
            )
    return RankPlacement(rank, size, local_rank, socket.gethostname())


def launcher_of(environ: Environ) -> LauncherVariables | None:
    """Return the innermost launcher that started the process, or None."""
    return next((launcher for launcher in LAUNCHERS if launcher.started(environ)), None)


def shown_rank(environ: Environ) -> str:
    """Return the rank for a message, `?` if it is unknown."""
    launcher = launcher_of(environ)
    return environ[launcher.rank][:20] if launcher else "?"


def master_address(environ: Environ, world_size: int) -> str:
    """Return the address of rank 0: MASTER_ADDR, PET_MASTER_ADDR, or the first host of Slurm's node
    list.

    A world on one node meets at localhost. Raises ContradictoryEnvironment if it is unknown.
    """
    for name in ("MASTER_ADDR", "PET_MASTER_ADDR"):
        if environ.get(name):
            return environ[name]
    if world_size == 1 or environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == str(world_size):
        return "127.0.0.1"
    # the node list of mpirun's own Slurm step lacks its first node
    of_step = ("SLURM_STEP_NODELIST",) if launcher_of(environ) is _SLURM else ()
    for name in (*of_step, "SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        if environ.get(name):
            return first_host(name, environ[name])
    raise ContradictoryEnvironment(
        f"{world_size} ranks, but neither MASTER_ADDR nor --master-addr names rank 0's node"
    )


def master_port(environ: Environ) -> int:
    """Return MASTER_PORT, PET_MASTER_PORT, or 29500. Raises ContradictoryEnvironment."""
    for name in ("MASTER_PORT", "PET_MASTER_PORT"):
        if environ.get(name):
            port = _number(environ, name, at_least=1)
            if port > 65535:
                raise ContradictoryEnvironment(f"{name} is {port}, which is no port: 1 to 65535")
            return port
    return DEFAULT_PORT


def gpu_index(environ: Environ, here: RankPlacement) -> int:
    """Return the index of this process's GPU: 0 if srun gave each task one."""
    launcher = launcher_of(environ)
    by_srun = launcher is not None and launcher.rank in ("PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
    return 0 if by_srun and environ.get("SLURM_GPUS_PER_TASK") == "1" else here.local_rank


def device(environ: Environ) -> str:
    """Return the device type for BACKEND (default: gloo): `cpu` or `cuda`.

    Raises ContradictoryEnvironment.
    """
    backend = environ.get("BACKEND") or "gloo"
    if backend not in _DEVICES:
        raise ContradictoryEnvironment(f"BACKEND is {_quoted(backend)}; gloo and nccl are known")
    return _DEVICES[backend]


def first_host(variable: str, nodes: str) -> str:
    """Return the first host of a Slurm node list such as `gpu-[01-03,07],cpu-1`.

    Raises ContradictoryEnvironment.
    """
    if len(nodes) <= _MAX_HOSTS_TEXT:
        first = re.match(r"((?:[^,\[\]]|\[[^\[\]]*\])+)(?:,|$)", nodes.strip())
        host = re.sub(r"\[(\d+)(?:-\d+)?(?:,\d+(?:-\d+)?)*\]", r"\1", first[1]) if first else ""
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", host):
            return host
    raise ContradictoryEnvironment(f"{variable} is {_quoted(nodes)}, which is no node list")


def _number(environ: Environ, name: str, at_least: int) -> int:
    text = environ[name].strip()
    if re.fullmatch(r"\d{1,9}", text, re.ASCII) and int(text) >= at_least:
        return int(text)
    raise ContradictoryEnvironment(
        f"{name} is {_quoted(environ[name])}, not a whole number of {at_least} or more"
    )


def _refuse_half(environ: Environ) -> None:
    """Reject a rank without a number of ranks, and the reverse.

    Raises ContradictoryEnvironment.
    """
    for launcher in LAUNCHERS[1:]:
        halves = [(launcher.rank, launcher.size)]
        # The shell of a job has only the number of ranks
        if launcher not in (_SLURM, _KUBEFLOW) and launcher.rank != "PMIX_RANK":
            halves.append((launcher.size, launcher.rank))
        for present, absent in halves:
            if present in environ and absent not in environ:
                raise ContradictoryEnvironment(f"{present} is set, but {absent} is not")


def _quoted(text: str) -> str:
    """Quote a text for a message, bounded and without control characters."""
    return repr(text[:80])
