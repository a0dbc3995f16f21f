"""How many files a run has open at once, connections among them, and how many this process may open."""

import os
import resource

_OWN = 64  # of the run itself: its logs, its libraries, its server
_PER_NODE = 4  # a connection, the stream under it and, on Kubernetes, its port-forward


def open_files_problem(nodes: int) -> str | None:
    """What to do about it, where a run on so many nodes may open too few: it would blame nodes for that."""
    needed = _OWN + _PER_NODE * nodes
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # a run raises its own limit so far by itself
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return None
    command = f"ulimit -n {needed}" if os.geteuid() == 0 else f"sudo prlimit --pid $$ --nofile={needed}"
    return f"{hard} may be open at once, {nodes} nodes need {needed}: {command}"
