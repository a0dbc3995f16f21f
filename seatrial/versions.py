"""Which nodes differ from the rest in their software. Pure."""

from collections import Counter
from collections.abc import Mapping

from seatrial.result import Suspect

COMPARED = ("kernel", "driver", "cuda", "openmpi", "nccl", "torch", "python")

Versions = Mapping[str, str]


def odd_ones(by_node: Mapping[str, Versions]) -> list[Suspect]:
    """The nodes that are not like most; the confidence is the share of nodes that agree on the common version."""
    return [
        Suspect("node", node, round(min(share for _, share in found), 2), "; ".join(text for text, _ in found))
        for node in by_node
        if (found := [difference for package in COMPARED if (difference := _difference(by_node, node, package))])
    ]


def _difference(by_node: Mapping[str, Versions], node: str, package: str) -> tuple[str, float] | None:
    """How `node` differs in `package` from the commonest version, and how common that one is."""
    seen = Counter(versions.get(package, "none") for versions in by_node.values())
    common, count = seen.most_common(1)[0]
    own = by_node[node].get(package, "none")
    if own == common:
        return None
    return f"{package} is {own}, {common} on {count} of {len(by_node)} nodes", count / len(by_node)
