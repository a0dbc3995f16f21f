"""Whether a node is Ready, as Kubernetes sees it. Pure but for `health`, which asks."""

from seatrial.platforms.kubernetes.api import NODE, Api
from seatrial.platforms.kubernetes.conditions import conditions, holding
from seatrial.platforms.kubernetes.plan import Object


def health(api: Api) -> dict[str, str | None]:
    """Why each node is not Ready, None where it is. Raises MissingError for who may not look at nodes."""
    return {node["metadata"]["name"]: not_ready(node) for node in api.list(NODE)}


def not_ready(node: Object) -> str | None:
    """Why the node is not Ready, in Kubernetes' words; None where it is."""
    if holding(node, "Ready"):
        return None
    ready = conditions(node).get("Ready", {})
    since = ready.get("lastTransitionTime") or "ever"
    return f"NotReady since {since}: {ready.get('message') or 'the kubelet is silent'}"
