"""Whose ranks print without end. mpirun mixes the output of all, so it is run once more, with each line's rank."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from seatrial.model.errors import RemoteError
from seatrial.model.reason import Reason
from seatrial.model.result import Suspect
from seatrial.model.testbed import Testbed
from seatrial.remote.mpi import mpirun

_TIMEOUT_S = 20.0
_BYTES = 4 * 1024**2  # some lines, also where a line takes 2 MiB to be one
_BYTES_PER_RANK = 64 * 1024  # what a rank that does not flood prints at most until the others have flooded
# [1,3]<stdout>: in Open MPI 4 and 5; srun begins each line with 3:
_TAG = re.compile(r"(?:\[[^\[\],]{1,64},(\d{1,9})\]<std(?:out|err)>|^ *(\d{1,9})):")


def flooding_nodes(testbed: Testbed, argv: Sequence[str], env: Mapping[str, str]) -> tuple[Suspect, ...]:
    """The node whose ranks print most, where it is most of all that is printed; empty where nobody stands out."""
    printed: Counter[int] = Counter()

    def count(line: str) -> None:
        _, *pieces = _TAG.split(line)
        for by_mpirun, by_srun, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            printed[int(by_mpirun or by_srun)] += len(text)

    tagged = replace(testbed, tag_output=True)
    most = _BYTES + _BYTES_PER_RANK * testbed.world_size
    try:
        mpirun(tagged, argv, timeout_s=_TIMEOUT_S, env=env, on_line=count, max_bytes=most)
    except RemoteError:
        return ()
    return loudest(testbed, printed)


def loudest(testbed: Testbed, printed: Mapping[int, int]) -> tuple[Suspect, ...]:
    """The node with more than half of the characters that were `printed`, by rank. Pure."""
    by_node: Counter[str] = Counter()
    owners = [node.name for node in testbed.nodes for _ in range(node.slots)]
    for rank, characters in printed.items():
        if rank < len(owners):
            by_node[owners[rank]] += characters
    for name, characters in by_node.most_common(1):
        if 2 * characters > by_node.total() > 0:
            share = characters / by_node.total()
            return (
                Suspect(
                    "node", name, 0.9, Reason.of("output-flood", excess=f"its ranks printed {share:.0%} of all output")
                ),
            )
    return ()
