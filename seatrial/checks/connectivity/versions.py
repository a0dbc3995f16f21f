"""Nodes whose software differs from the others, or does not fit together. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import takewhile

from seatrial.checks.connectivity.rates import Models
from seatrial.model.reason import Reason, join
from seatrial.model.result import Suspect
from seatrial.text.words import some_of

# The least driver of each major version of CUDA, by NVIDIA's table of minor version compatibility
# (docs.nvidia.com/deploy/cuda-compatibility).
_LEAST_DRIVER = {11: (450, 80), 12: (525, 60), 13: (580, 65)}
COMPARED = ("kernel", "driver", "cuda", "openmpi", "nccl", "torch", "python")
# Packages that may differ between models; all others must agree between all ranks
_OF_THE_HOST = frozenset({"kernel", "driver"})
# Version by package: "" if not installed, None if unknown; unknown ones are not compared
Versions = Mapping[str, str | None]
VersionsByNode = Mapping[str, Versions]
Difference = tuple[Reason, float]  # the reason, and the share of nodes with the common version


def old_drivers(versions: VersionsByNode) -> list[Reason]:
    """Return a remark for each driver that is too old for the CUDA version of the node's
    software.
    """
    old = defaultdict(list)
    for node, own_versions in versions.items():
        driver = own_versions.get("driver") or ""
        cuda = own_versions.get("cuda") or ""
        driver_numbers = _numbers(driver)
        cuda_numbers = _numbers(cuda)
        if not driver_numbers or not cuda_numbers:
            continue
        least = _LEAST_DRIVER.get(cuda_numbers[0])
        if least and driver_numbers[:2] < least:
            old[driver, cuda, least].append(node)
    return [
        Reason.of(
            "driver-too-old",
            nodes=some_of(nodes),
            driver=driver,
            cuda=cuda,
            least=f"{major}.{minor}",
        )
        for (driver, cuda, (major, minor)), nodes in old.items()
    ]


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version such as 550.54.15."""
    leading = takewhile(_is_number, version.split("."))
    return tuple(int(part[:9]) for part in leading)


def _is_number(part: str) -> bool:
    return part.isascii() and part.isdigit()


def odd_ones(by_node: VersionsByNode, models: Models | None = None) -> list[Suspect]:
    """Return the nodes whose version is not the most common one; the confidence is the share of
    nodes with that one.

    Kernels and drivers are compared between nodes of the same model only, if `models` has the model
    by node.
    """
    differences: dict[str, list[Difference]] = {node: [] for node in by_node}
    for package in COMPARED:
        model_by_node: Models = {}
        if models and package in _OF_THE_HOST:
            model_by_node = models
        for peers in _by_model(by_node, model_by_node):
            for node, difference in _differences(peers, package):
                differences[node].append(difference)
    suspects = []
    for node, own in differences.items():
        if not own:
            continue
        reasons, shares = zip(*own, strict=True)
        confidence = round(min(shares), 2)
        suspects.append(Suspect("node", node, confidence, join(reasons)))
    return suspects


def _by_model(by_node: VersionsByNode, model_by_node: Models) -> list[VersionsByNode]:
    """Group the nodes of the same model, and those whose model is unknown."""
    by_model: dict[str, dict[str, Versions]] = defaultdict(dict)
    for node, versions in by_node.items():
        by_model[model_by_node.get(node, "")][node] = versions
    return [*by_model.values()]


def _differences(by_node: VersionsByNode, package: str) -> Iterator[tuple[str, Difference]]:
    """Yield each node whose version of `package` differs from the most common one, with the
    difference.
    """
    of_package = {node: versions.get(package) for node, versions in by_node.items()}
    reported = {node: version for node, version in of_package.items() if version is not None}
    if not reported:
        return
    nodes = len(reported)
    common, count = Counter(reported.values()).most_common(1)[0]
    for node, own in reported.items():
        if own == common:
            continue
        reason = Reason.of(
            "version-differs",
            package=package,
            own=own or "missing",
            common=common or "missing",
            count=count,
            nodes=nodes,
        )
        yield node, (reason, count / nodes)


def unknown(by_node: VersionsByNode) -> list[Reason]:
    """Return a sentence for each package whose version some nodes do not report, so it is not
    compared there.
    """
    reasons = []
    for package in COMPARED:
        silent = [node for node, versions in by_node.items() if versions.get(package, "") is None]
        if silent:
            nodes = some_of(silent)
            reasons.append(Reason.of("version-unknown", package=package, nodes=nodes))
    return reasons
