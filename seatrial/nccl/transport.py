"""Which network, algorithm and protocol NCCL used, as its own log says: the proof against a silent fallback to sockets.

The network is in NCCL_DEBUG=INFO, the algorithm in the subsystem TUNING; what was set, in the subsystem ENV, or on the
command line or in the script that the log quotes.
"""

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
_CHOSEN = re.compile(r"NCCL INFO \w+: (\d{1,18}) Bytes -> Algo (\w+) proto (\w+)")
_SET = re.compile(
    r"\b(?:NCCL_)?(ALGO|PROTO|NET|P2P_DISABLE|P2P_LEVEL|SHM_DISABLE|IB_DISABLE|MNNVL_ENABLE|NVLS_ENABLE)"
    r"(?:=| set by environment to )[\"']?([\w.-]*\w)"
)
_NUMBERED = {  # before 2.24 the log names them by number
    "algorithm": ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"),
    "protocol": ("LL", "LL128", "Simple"),
}
_NETWORK_WORDS = ("NET", "network", "nNodes", "plugin")
_WORDS = (*_NETWORK_WORDS, " -> Algo ", "NCCL_", "ALGO=")
_MAX_NETWORKS = 16
_MAX_CHOICES = 256


@dataclass(frozen=True, slots=True)
class Transport:
    """What NCCL's log says about the network.

    `networks` are the names in use (`IB`, `gIB`, `FasTrak`, `AWS Libfabric`, `Socket`, ...), first seen first;
    `plugin` the external network plugin that was loaded. `gpu_direct` is None where no network channel was logged.
    `nodes` is the number of nodes of the communicator: on one node the network is named but carries nothing.
    `choices` are algorithm and protocol by message size in bytes, smallest first; `settings` the variables of NCCL that
    steer any of this, without their `NCCL_`.
    """

    networks: tuple[str, ...]
    plugin: str | None = None
    gpu_direct: bool | None = None
    nodes: int | None = None
    evidence: str = ""
    choices: tuple[tuple[int, str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def sockets_only(self) -> bool:
        """Whether all that was used is TCP sockets."""
        return bool(self.networks) and all(name.lower() == "socket" for name in self.networks)

    @property
    def algorithm(self) -> str | None:
        """What the largest message took, by NCCL's own word, else what was asked for; None where neither is known."""
        if self.choices:
            return self.choices[-1][1]
        requested = dict(self.settings).get("ALGO")
        return _named("algorithm", requested) if requested else None

    @property
    def words(self) -> str:
        """The way that the data took, as far as it is known: "over IB with GPUDirect RDMA, by Ring/Simple"."""
        direct = {True: " with GPUDirect RDMA", False: " without GPUDirect RDMA", None: ""}[self.gpu_direct]
        network = f"over {' and '.join(self.networks)}{direct}" if self.networks and self.nodes != 1 else ""
        chosen = "/".join(self.choices[-1][1:]) if self.choices else self.algorithm
        return ", ".join(part for part in (network, f"by {chosen}" if chosen else "") if part)


class TransportReader:
    """Collects the evidence line by line; memory does not grow with the log."""

    def __init__(self) -> None:
        self._networks: dict[str, str] = {}
        self._plugin: str | None = None
        self._gpu_direct: bool | None = None
        self._nodes: int | None = None
        self._choices: dict[int, tuple[str, str]] = {}
        self._settings: dict[str, str] = {}

    def feed(self, raw: str) -> None:
        """Takes one line."""
        if any(word in raw for word in _WORDS):
            self.take(clean(raw).text)

    def take(self, text: str) -> None:
        """Takes one line that is already `clean`."""
        if "NCCL_" in text or "ALGO=" in text:
            self._settings.update({name: value[:80] for name, value in _SET.findall(text)})
        if " Bytes -> Algo " in text:
            if match := _CHOSEN.search(text):
                self._choose(int(match[1]), _named("algorithm", match[2]), _named("protocol", match[3]))
        elif any(word in text for word in _NETWORK_WORDS):
            self._network_line(text)

    def _network_line(self, text: str) -> None:
        if match := _USING.search(text):
            self._network(match[1] or match[2], text)
        elif match := _VIA.search(text):
            self._network(match[1], text)
            self._gpu_direct = bool(self._gpu_direct or match[2])
        elif match := _NODES.search(text):
            self._nodes = max(self._nodes or 0, int(match[1][:9]))
        elif match := _PLUGIN.search(text):
            self._plugin = self._plugin or next(group for group in match.groups() if group)

    def transport(self) -> Transport | None:
        """The evidence so far; None where neither a network nor an algorithm nor a setting was named."""
        if not (self._networks or self._choices or self._settings):
            return None
        evidence = next(iter(self._networks.values()), "")
        choices = tuple((size, *self._choices[size]) for size in sorted(self._choices))
        return Transport(
            tuple(self._networks), self._plugin, self._gpu_direct, self._nodes, evidence,
            choices, tuple(sorted(self._settings.items())),
        )  # fmt: skip

    def _choose(self, size: int, algorithm: str, protocol: str) -> None:
        if len(self._choices) < _MAX_CHOICES:
            self._choices[size] = algorithm, protocol

    def _network(self, name: str, text: str) -> None:
        if len(self._networks) < _MAX_NETWORKS:
            self._networks.setdefault(name[:80], text.strip()[:300])


def _named(kind: str, word: str) -> str:
    """The name of an algorithm or a protocol as NCCL_ALGO and NCCL_PROTO spell it: RING and 1 are Ring."""
    names = _NUMBERED[kind]
    if word.isdecimal():
        return names[int(word[:9])] if int(word[:9]) < len(names) else word
    bare = word.replace("_", "").lower()
    return next((name for name in names if name.lower() == bare), word)


def transport(lines: Iterable[str]) -> Transport | None:
    """Which networks NCCL used, by its own log; None where the log does not say."""
    reader = TransportReader()
    for raw in lines:
        reader.feed(raw)
    return reader.transport()
