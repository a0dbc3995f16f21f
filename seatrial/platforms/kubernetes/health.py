"""Whether a node is Ready, as Kubernetes sees it. Pure but for `health`, which asks."""

from seatrial.platforms.kubernetes.api import NODE, Api
from seatrial.platforms.kubernetes.plan import Object


def health(api: Api) -> dict[str, str | None]:
    """Why each node is not Ready, None where it is. Raises MissingError for who may not look at nodes."""
    return {node["metadata"]["name"]: not_ready(node) for node in api.list(NODE)}


def not_ready(node: Object) -> str | None:
    """Why the node is not Ready, in Kubernetes' words; None where it is."""
    conditions = node.get("status", {}).get("conditions", ())
    ready: Object = next((each for each in conditions if each["type"] == "Ready"), {})
    if ready.get("status") == "True":
        return None
    return f"NotReady since {_since(ready)}: {ready.get('message') or 'the kubelet is silent'}"


def _since(condition: Object) -> str:
    return str(condition.get("lastTransitionTime") or "ever")
