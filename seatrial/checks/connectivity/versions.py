"""Which nodes differ from the rest in their software. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from seatrial.model.reason import Reason, join
from seatrial.model.result import Suspect
from seatrial.text.words import some_of

COMPARED = ("kernel", "driver", "cuda", "openmpi", "nccl", "torch", "python")
_OF_THE_HOST = frozenset({"kernel", "driver"})  # another model may need others; the rest must agree between all ranks

Versions = Mapping[str, str | None]  # "" is not installed, None is not known: only what is known can differ


def odd_ones(by_node: Mapping[str, Versions], models: Mapping[str, str] | None = None) -> list[Suspect]:
    """The nodes that are not like most; the confidence is the share of nodes that agree on the common version.

    Kernels and drivers are compared between nodes of the same model only, where `models` tells it by node.
    """
    differences: dict[str, list[tuple[str, float]]] = {node: [] for node in by_node}
    for package in COMPARED:
        model_by_node = (models or {}) if package in _OF_THE_HOST else {}
        for peers in _by_model(by_node, model_by_node):
            for node, difference in _differences(peers, package):
                differences[node].append(difference)
    return [
        Suspect("node", node, round(min(share for _, share in own), 2), join(text for text, _ in own))
        for node, own in differences.items()
        if own
    ]


def _by_model(by_node: Mapping[str, Versions], models: Mapping[str, str]) -> Iterable[Mapping[str, Versions]]:
    peers: dict[str, dict[str, Versions]] = defaultdict(dict)
    for node, versions in by_node.items():
        peers[models.get(node, "")][node] = versions
    return peers.values()


def unknown(by_node: Mapping[str, Versions]) -> list[str]:
    """One sentence per package whose version some nodes could not tell: it is held against nothing there."""
    silent = {package: [node for node in by_node if by_node[node].get(package, "") is None] for package in COMPARED}
    return [
        Reason.of("version-unknown", package=package, nodes=some_of(nodes))
        for package, nodes in silent.items()
        if nodes
    ]


def _differences(by_node: Mapping[str, Versions], package: str) -> Iterator[tuple[str, tuple[str, float]]]:
    """The nodes that differ in `package` from the commonest version, how, and how common that one is."""
    known = {node: version for node, versions in by_node.items() if (version := versions.get(package)) is not None}
    if not known:
        return
    common, count = Counter(known.values()).most_common(1)[0]
    for node, own in known.items():
        if own != common:
            reason = Reason.of(
                "version-differs",
                package=package,
                own=own or "missing",
                common=common or "missing",
                count=count,
                nodes=len(known),
            )
            yield node, (reason, count / len(known))
