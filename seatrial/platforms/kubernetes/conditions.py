"""The conditions by which Kubernetes and its operators say how an object is. Pure."""

from seatrial.platforms.kubernetes.plan import Object


def conditions(thing: Object | None) -> dict[str, Object]:
    """By type."""
    return {each["type"]: each for each in (thing or {}).get("status", {}).get("conditions", ())}


def holding(thing: Object | None, kind: str) -> Object | None:
    """The condition of that type, where it is True."""
    found = conditions(thing).get(kind, {})
    return found if found.get("status") == "True" else None
