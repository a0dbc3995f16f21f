"""Which node a rank ran on, and on which of its devices. Pure."""

from seatrial.model.testbed import Testbed


def node_of(rank: int, host: str, testbed: Testbed) -> str:
    """The node's name where its host name is that, else the node that mpirun's mapping by slot puts the rank on."""
    if any(node.name == host for node in testbed.nodes):
        return host
    return next((name for position, (name, _) in enumerate(_slots(testbed)) if position == rank), host)


def device_of(rank: int, testbed: Testbed) -> str:
    """`gpu-3`, the GPU of that rank; empty on processors."""
    slots = _slots(testbed) if testbed.has_gpus else []
    return f"gpu-{slots[rank][1]}" if rank < len(slots) else ""


def _slots(testbed: Testbed) -> list[tuple[str, int]]:
    """Node and place on it, by rank."""
    return [(node.name, place) for node in testbed.nodes for place in range(node.slots)]
