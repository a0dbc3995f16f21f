"""What a sweep of a log tells of itself, which a run knows beforehand. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from seatrial.checks.collectives.rows import interleaved
from seatrial.nccl import Sweep, classify
from seatrial.remote.mpi import MpiResult

_DTYPES = {"float": "float32", "double": "float64", "half": "float16", "int": "int32"}


def by_kind(sweep: Sweep) -> list[tuple[str, Sweep]]:
    """One sweep for each data type, reduction and root, which -d, -o and -r all print one after the other: each has a
    speed of its own. Beside it what its name ends in.
    """
    kinds = dict.fromkeys((row.type, row.redop, row.root) for row in sweep.rows)
    if len(kinds) < 2 or interleaved([row for row in sweep.rows if row.size]):
        return [("", sweep)]
    varies = [len({kind[place] for kind in kinds}) > 1 for place in range(3)]
    return [(_suffix(part, varies), part) for part in (_of_kind(sweep, kind) for kind in kinds)]


def _of_kind(sweep: Sweep, kind: tuple[object, ...]) -> Sweep:
    return replace(sweep, rows=tuple(row for row in sweep.rows if (row.type, row.redop, row.root) == kind))


def _suffix(part: Sweep, varies: Sequence[bool]) -> str:
    row = part.rows[0]
    words = (dtype_of(part), row.redop, f"root {row.root}")
    return "".join(f" {word}" for word, is_told in zip(words, varies, strict=True) if is_told)


def is_of_cpus(sweep: Sweep) -> bool:
    """Whether it is the gloo probe's, which sweeps where there are no GPUs."""
    return bool(sweep.devices) and all(device.name == "CPU" for device in sweep.devices)


def as_mpi_result(sweep: Sweep) -> MpiResult:
    """What a launcher would have told: its exit status, and the lines that name a cause."""
    broken = (sweep.outcome == "error" and not sweep.empty) or (sweep.outcome == "ok" and bool(classify(sweep.errors)))
    return MpiResult(1 if broken else 0, sweep.errors, 0.0)


def dtype_of(sweep: Sweep) -> str:
    name = next((row.type for row in sweep.rows if row.type), "float")
    return _DTYPES.get(name, name)


def algorithms_of(sweep: Sweep) -> Mapping[int, str]:
    """By message size as NCCL's log has it, and for the largest; one that was asked for holds for all."""
    transport = sweep.transport
    if transport is None or transport.algorithm is None:
        return {}
    chosen = {size: algorithm for size, algorithm, _ in transport.choices}
    return (chosen or {row.size: transport.algorithm for row in sweep.rows}) | {0: transport.algorithm}
