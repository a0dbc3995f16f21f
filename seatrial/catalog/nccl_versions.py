"""The first version of NCCL for a GPU, `nccl_versions.csv`, each with its source. Pure."""

import csv
from functools import cache
from pathlib import Path

from seatrial.model.reason import Reason

_FILE = Path(__file__).with_name("nccl_versions.csv")


@cache
def _first() -> dict[str, str]:
    with _FILE.open(encoding="utf-8", newline="") as rows:
        return {row["gpu"]: row["first"] for row in csv.DictReader(rows)}


def older_nccl(hardware: str, version: str | None) -> Reason | None:
    """Return the reason if this version of NCCL does not know the GPU; None if it does, or if either is unknown."""
    first = _first().get(hardware.partition("-")[0])
    if version is None or first is None or _parts(version) >= _parts(first):
        return None
    return Reason.of("log-nccl-older", version=version, first=first, hardware=hardware)


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
