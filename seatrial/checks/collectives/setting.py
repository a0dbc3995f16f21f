"""What a sweep was asked to measure, and on what."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from seatrial.catalog import is_sockets
from seatrial.model.measurement import Subject

_INSIDE_A_NODE = ("NVLink", "xGMI", "MNNVL")  # fabrics that NCCL needs no network for


@dataclass(frozen=True, slots=True)
class Setting:
    """What a sweep was asked to measure, and over how many ranks of which cluster.

    `sizes` are bytes, smallest first; `fabric` is what the data must go over, None where sockets will do; `nodes` how
    many the ranks must be spread over, None where nobody said. `algorithms` are NCCL's by message size, 0 for the
    largest, where its log is to say under which conditions a number holds. `is_whole_on_gpus`: a sweep of GPUs that is
    no repeat of some sizes, so that a plateau must come of it. `arm`: which of seatrial/model/arms.py, empty for none.
    `node`: the one that all ranks are on, where each node is measured by itself.
    """

    operation: str
    dtype: str
    ranks: int
    cluster: str
    sizes: tuple[int, ...]
    fabric: str | None = None
    nodes: int | None = None
    algorithms: Mapping[int, str] = field(default_factory=dict)
    is_whole_on_gpus: bool = False
    arm: str = ""
    node: str = ""

    @property
    def name(self) -> str:
        """As reasons call the sweep: all_reduce, "all_reduce (network)", "all_reduce (intra)"."""
        return f"{self.operation} ({self.arm})" if self.arm else self.operation

    @property
    def subject(self) -> Subject:
        return Subject("node", self.node) if self.node else Subject("cluster", self.cluster)


def network_of(fabric: str | None) -> str | None:
    """What data between nodes must go over; None where sockets, or nothing but the GPUs' own links, do."""
    return None if fabric is None or fabric in _INSIDE_A_NODE or is_sockets(fabric) else fabric
