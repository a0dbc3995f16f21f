"""Which nodes differ from the rest in their software. Pure."""

from collections import Counter
from collections.abc import Mapping

from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.text.words import some_of

COMPARED = ("kernel", "driver", "cuda", "openmpi", "nccl", "torch", "python")

Versions = Mapping[str, str | None]  # "" is not installed, None is not known: only what is known can differ


def odd_ones(by_node: Mapping[str, Versions]) -> list[Suspect]:
    """The nodes that are not like most; the confidence is the share of nodes that agree on the common version."""
    return [
        Suspect(
            "node", node, round(min(share for _, share in differences), 2), "; ".join(text for text, _ in differences)
        )
        for node in by_node
        if (differences := [difference for package in COMPARED if (difference := _difference(by_node, node, package))])
    ]


def unknown(by_node: Mapping[str, Versions]) -> list[str]:
    """One sentence per package whose version some nodes could not tell: it is held against nothing there."""
    silent = {package: [node for node in by_node if by_node[node].get(package, "") is None] for package in COMPARED}
    return [
        Reason.of("version-unknown", package=package, nodes=some_of(nodes))
        for package, nodes in silent.items()
        if nodes
    ]


def _difference(by_node: Mapping[str, Versions], node: str, package: str) -> tuple[str, float] | None:
    """How `node` differs in `package` from the commonest version, and how common that one is."""
    own = by_node[node].get(package)
    known_versions = [version for versions in by_node.values() if (version := versions.get(package)) is not None]
    if own is None:
        return None
    common, count = Counter(known_versions).most_common(1)[0]
    if own == common:
        return None
    return (
        Reason.of(
            "version-differs",
            package=package,
            own=own or "missing",
            common=common or "missing",
            count=count,
            nodes=len(known_versions),
        ),
        count / len(known_versions),
    )
