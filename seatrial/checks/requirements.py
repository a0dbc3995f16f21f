"""What the steps of a suite need of a node, and which nodes lack it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from seatrial.config.suite import Suite
from seatrial.text.words import some_of

Facts = Mapping[str, Mapping[str, Any]]  # by node, as seatrial/remote/probes/facts.py tells them


def lacking(facts: Facts, suite: Suite, *, gpus: bool, image: str | None) -> dict[str, str]:
    """Why a step cannot be done with what the nodes have, by step; a version that nobody could tell counts as there."""
    return {
        step: f"{name} is missing {_where(facts, missing, image)}: {how}"
        for step, needs in _needs(suite, gpus).items()
        for name, how in needs
        if (missing := [node for node, fact in facts.items() if _is_missing(name, fact)])
    }


def _needs(suite: Suite, gpus: bool) -> dict[str, list[tuple[str, str]]]:
    nccl = ("nccl-tests", "put all_reduce_perf on PATH (images/common/build-nccl-tests)")
    torch = ("torch", "install PyTorch where the nodes' Python finds it")
    needs = {
        "connectivity": [
            ("sshd", "install openssh-server"),
            ("mpirun", "install Open MPI (openmpi-bin) or set mpi.mpirun"),
        ]
    }
    if suite.collectives:
        needs["collectives"] = [nccl if gpus else torch]
    if suite.training:
        needs["training"] = [torch]
    return needs


def _is_missing(name: str, fact: Mapping[str, Any]) -> bool:
    """Told, and told to be empty."""
    found = fact["versions"].get("torch") if name == "torch" else fact.get(name.replace("-", "_"))
    return found == ""


def _where(facts: Facts, missing: Sequence[str], image: str | None) -> str:
    if len(missing) < len(facts):
        return f"on {some_of(missing)}"
    return f"in image {image}" if image else "on every node"
