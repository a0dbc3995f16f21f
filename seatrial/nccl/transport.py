"""Which network NCCL used, as its own log (NCCL_DEBUG=INFO) says: the proof against a silent fallback to sockets."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from seatrial.nccl.text import clean

_USING = re.compile(r"Using network (\S.*?)\s*$|Assigned NET plugin (\S.*?) to comm")
_VIA = re.compile(r"via NET/([^/]+)/\d+(/GDRDMA)?")
_PLUGIN = re.compile(
    r"Loaded net plugin (.+?)(?: \(v\d+\))?\s*$|NET/OFI (?:Using|Initializing) (aws-ofi-nccl \S+)"
    r"|Successfully loaded external (?:network|net) plugin (\S+)|Plugin load \((\S+)\) returned"
)
_NODES = re.compile(r"nNodes (\d+)")
_NO_IB = re.compile(r"NET/IB ?: No device found")
_MAX_NETWORKS = 16


@dataclass(frozen=True, slots=True)
class Transport:
    """What NCCL's log says about the network.

    `networks` are the names in use (`IB`, `gIB`, `FasTrak`, `AWS Libfabric`, `Socket`, ...), first seen first;
    `plugin` the external network plugin that was loaded. `gpu_direct` is None where no network channel was logged.
    `nodes` is the number of nodes of the communicator: on one node the network is named but carries nothing.
    """

    networks: tuple[str, ...]
    plugin: str | None = None
    gpu_direct: bool | None = None
    nodes: int | None = None
    no_ib_device: bool = False
    evidence: str = ""

    @property
    def sockets_only(self) -> bool:
        """Whether all that was used is TCP sockets."""
        return bool(self.networks) and all(name.lower() == "socket" for name in self.networks)


class TransportReader:
    """Collects the evidence line by line; memory does not grow with the log."""

    def __init__(self) -> None:
        self._networks: dict[str, str] = {}
        self._plugin: str | None = None
        self._gpu_direct: bool | None = None
        self._nodes: int | None = None
        self._no_ib = False

    def feed(self, raw: str) -> None:
        """Takes one line."""
        if not any(word in raw for word in ("NET", "network", "nNodes", "plugin")):
            return
        text = clean(raw).text
        if match := _USING.search(text):
            self._network(match[1] or match[2], text)
        elif match := _VIA.search(text):
            self._network(match[1], text)
            self._gpu_direct = bool(self._gpu_direct or match[2])
        elif match := _NODES.search(text):
            self._nodes = max(self._nodes or 0, int(match[1][:9]))
        elif match := _PLUGIN.search(text):
            self._plugin = self._plugin or next(group for group in match.groups() if group)
        self._no_ib = self._no_ib or bool(_NO_IB.search(text))

    def transport(self) -> Transport | None:
        """The evidence so far; None where no network was named."""
        if not self._networks:
            return None
        names = tuple(self._networks)
        evidence = self._networks[names[0]]
        return Transport(names, self._plugin, self._gpu_direct, self._nodes, self._no_ib, evidence)

    def _network(self, name: str, text: str) -> None:
        if len(self._networks) < _MAX_NETWORKS:
            self._networks.setdefault(name[:80], text.strip()[:300])


def transport(lines: Iterable[str]) -> Transport | None:
    """Which networks NCCL used, by its own log; None where the log does not say."""
    reader = TransportReader()
    for raw in lines:
        reader.feed(raw)
    return reader.transport()
