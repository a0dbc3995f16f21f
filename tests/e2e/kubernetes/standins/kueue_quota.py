"""What Kueue's scheduler decides: flavors for pod sets, whom to preempt, and in which words it says what is missing.

Pure, over objects as the API server shows them. The words are those of release 0.19. Not here: cohorts, borrowing, fair
sharing, taints of flavors, and how full the domains of a topology are.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from kubernetes.utils.quantity import parse_quantity

from tests.e2e.kubernetes.standins.world import Object, holds

Amounts = Counter[tuple[str, str]]  # of a resource, by flavor and resource; Decimals


@dataclass(frozen=True, slots=True)
class Offer:
    """What can be had: a ClusterQueue, ResourceFlavors and Topologies by name, Nodes, and what of it is taken."""

    queue: Object
    flavors: dict[str, Object]
    topologies: dict[str, Object]
    nodes: Sequence[Object]
    used: Amounts


class Assignment(NamedTuple):
    """Flavors by pod set and resource, and what is taken of them. With a message it does not fit; `never`: as it is."""

    flavors: dict[str, dict[str, str]]
    usage: Amounts
    message: str = ""
    never: bool = False


def assign(workload: Object, offer: Offer) -> Assignment:
    """Flavors for all pod sets of a Workload, as far as there is quota."""
    flavors: dict[str, dict[str, str]] = {}
    usage: Amounts = Counter()
    messages = []
    for pod_set in workload["spec"]["podSets"]:
        chosen, reasons = _flavors(pod_set, offer, usage)
        if reasons:
            messages.append(f"couldn't assign flavors to pod set {pod_set['name']}: {', '.join(sorted(reasons))}")
        if chosen is None:
            return Assignment({}, Counter(), "; ".join(messages), never=True)
        flavors[pod_set["name"]] = chosen
        usage += Counter(
            {(chosen[resource], resource): n for resource, n in asked(pod_set).items() if resource in chosen}
        )
    if messages:
        return Assignment(flavors, usage, "; ".join(messages))
    for pod_set in workload["spec"]["podSets"]:
        if reason := _misplaced(pod_set, flavors[pod_set["name"]], offer):
            message = f"couldn't assign flavors to pod set {pod_set['name']}: {reason}"
            return Assignment(flavors, usage, message, never=True)
    return Assignment(flavors, usage)


def victims(workload: Object, offer: Offer, admitted: Iterable[Object]) -> list[Object]:
    """The Workloads of lower priority that have to go so that this one fits; none where that would not help."""
    if offer.queue["spec"].get("preemption", {}).get("withinClusterQueue", "Never") == "Never":
        return []
    lower = [each for each in admitted if priority(each) < priority(workload)]
    lower.sort(key=lambda each: each["metadata"]["creationTimestamp"], reverse=True)
    lower.sort(key=priority)
    used = Counter(offer.used)
    for count, each in enumerate(lower, start=1):
        used -= taken(each)
        if not assign(workload, Offer(offer.queue, offer.flavors, offer.topologies, offer.nodes, used)).message:
            return lower[:count]
    return []


def priority(workload: Object) -> int:
    return int(workload["spec"].get("priority", 0))


def taken(workload: Object) -> Amounts:
    """What the quota that a Workload has reserved comes to."""
    amounts: Amounts = Counter()
    for part in workload["status"]["admission"]["podSetAssignments"]:
        for resource, amount in part.get("resourceUsage", {}).items():
            amounts[part["flavors"][resource], resource] += parse_quantity(amount)
    return amounts


def parts(workload: Object, assignment: Assignment) -> list[Object]:
    """What is said of each pod set where quota is reserved."""
    made = []
    for pod_set in workload["spec"]["podSets"]:
        flavors = assignment.flavors[pod_set["name"]]
        usage = {resource: text(amount) for resource, amount in asked(pod_set).items() if resource in flavors}
        made.append({"name": pod_set["name"], "count": pod_set["count"], "flavors": flavors, "resourceUsage": usage})
    return made


def asked(pod_set: Object) -> dict[str, Decimal]:
    """What all pods of a pod set ask for together; "pods" is their number."""
    spec, count = pod_set["template"]["spec"], pod_set["count"]
    own = sum((_amounts(container) for container in spec["containers"]), Counter[str]())
    for container in spec.get("initContainers", ()):
        own |= _amounts(container)
    return {**{resource: amount * count for resource, amount in own.items()}, "pods": Decimal(count)}


def text(amount: Decimal) -> str:
    """As Kueue writes quantities of what is counted in ones."""
    return f"{amount.normalize():f}"


def _amounts(container: Object) -> Counter[str]:
    resources = container.get("resources", {})
    named = {**resources.get("limits", {}), **resources.get("requests", {})}
    return Counter({resource: parse_quantity(amount) for resource, amount in named.items()})


def _flavors(pod_set: Object, offer: Offer, before: Amounts) -> tuple[dict[str, str] | None, list[str]]:
    """Flavors by resource, and what is not to be had now; None instead where it cannot be had at all."""
    groups = offer.queue["spec"].get("resourceGroups", ())
    requests = asked(pod_set)
    if not any("pods" in group["coveredResources"] for group in groups):
        del requests["pods"]
    chosen: dict[str, str] = {}
    missing: list[str] = []
    for resource in requests:
        if resource in chosen:
            continue
        group = next((group for group in groups if resource in group["coveredResources"]), None)
        if group is None:
            return None, [f"resource {resource} unavailable in ClusterQueue"]
        here = {name: amount for name, amount in requests.items() if name in group["coveredResources"]}
        flavor, reasons = _flavor(pod_set, here, group, offer, before)
        if flavor is None:
            return None, reasons
        chosen |= dict.fromkeys(here, flavor)
        missing += reasons
    return chosen, missing


def _flavor(
    pod_set: Object, requests: dict[str, Decimal], group: Object, offer: Offer, before: Amounts
) -> tuple[str | None, list[str]]:
    """The first flavor that has room, else the first that would have if it were empty; and what the others lack."""
    best, reasons = None, list[str]()
    for flavor in group["flavors"]:
        if mismatch := _mismatch(pod_set, flavor["name"], offer):
            reasons.append(mismatch)
            continue
        lacks = [_lack(flavor, resource, amount, offer, before) for resource, amount in requests.items()]
        if not any(lacks):
            return flavor["name"], []
        reasons += [reason for reason, _ in filter(None, lacks)]
        if best is None and not any(never for _, never in filter(None, lacks)):
            best = flavor["name"]
    return best, reasons


def _lack(flavor: Object, resource: str, amount: Decimal, offer: Offer, before: Amounts) -> tuple[str, bool] | None:
    """What a flavor lacks of a resource, and whether it would if it were empty, too."""
    name, place = flavor["name"], (flavor["name"], resource)
    nominal = next(parse_quantity(each["nominalQuota"]) for each in flavor["resources"] if each["name"] == resource)
    earlier = Decimal(before[place])
    if earlier + amount > nominal:
        sums = f"previously considered podsets requests ({text(earlier)}) + current podset request ({text(amount)})"
        return f"insufficient quota for {resource} in flavor {name}, {sums} > maximum capacity ({text(nominal)})", True
    if (more := earlier + amount - (nominal - Decimal(offer.used[place]))) > 0:
        return f"insufficient unused quota for {resource} in flavor {name}, {text(more)} more needed", False
    return None


def _mismatch(pod_set: Object, flavor: str, offer: Offer) -> str | None:
    """Why pods of that set cannot be of a flavor, however much of it there is."""
    spec = offer.flavors[flavor].get("spec", {})
    selector = pod_set["template"]["spec"].get("nodeSelector", {})
    if any(selector.get(key, value) != value for key, value in spec.get("nodeLabels", {}).items()):
        return f"flavor {flavor} doesn't match node affinity"
    if not (request := pod_set.get("topologyRequest")):
        return None
    if "topologyName" not in spec:
        return f'Flavor "{flavor}" does not support TopologyAwareScheduling'
    level = request.get("required") or request.get("preferred")
    if level and level not in _levels(offer.topologies[spec["topologyName"]]):
        return f'Flavor "{flavor}" does not contain the requested level'
    return None


def _misplaced(pod_set: Object, chosen: dict[str, str], offer: Offer) -> str | None:
    """Why the nodes have no place that is as close together as was asked for."""
    request = pod_set.get("topologyRequest")
    if not request or not chosen:
        return None
    flavor = offer.flavors[next(iter(chosen.values()))]["spec"]
    level = request.get("required") or request.get("preferred")
    level = level or _levels(offer.topologies[flavor["topologyName"]])[-1]
    room: Counter[str] = Counter()
    for node in offer.nodes:
        labels = node["metadata"].get("labels", {})
        if level in labels and flavor["nodeLabels"].items() <= labels.items() and holds(node, "Ready"):
            room[labels[level]] += _room(node, pod_set)
    if not room:
        return f"no topology domains at level: {level}"
    fit, count = max(room.values()) if "required" in request else sum(room.values()), pod_set["count"]
    if fit >= count:
        return None
    allows = f"allows to fit only {fit} out of {count} pod(s)" if fit else f"doesn't allow to fit any of {count} pod(s)"
    return f'topology "{flavor["topologyName"]}" {allows}'


def _room(node: Object, pod_set: Object) -> int:
    """How many pods of that set an empty node takes."""
    offered = node["status"]["allocatable"]
    each = {resource: amount / pod_set["count"] for resource, amount in asked(pod_set).items()}
    return min(int(parse_quantity(offered.get(resource, 0)) // amount) for resource, amount in each.items() if amount)


def _levels(topology: Object) -> list[str]:
    return [level["nodeLabel"] for level in topology["spec"]["levels"]]
