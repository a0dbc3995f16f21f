"""The conditions by which Kubernetes and its operators say how an object is. Pure."""

from seatrial.platforms.kubernetes.plan import Object


def conditions(manifest: Object | None) -> dict[str, Object]:
    """By type."""
    return {each["type"]: each for each in (manifest or {}).get("status", {}).get("conditions", ())}


def holding(manifest: Object | None, kind: str) -> Object | None:
    """The condition of that type, where it is True."""
    condition = conditions(manifest).get(kind, {})
    return condition if condition.get("status") == "True" else None
