"""Which network, algorithm and protocol NCCL used, as its own log says: the proof against a silent
fallback to sockets.

The network and its devices are in NCCL_DEBUG=INFO, the algorithm in the subsystem TUNING; what was
set, in the subsystem ENV, or on the command line or in the script that the log quotes.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

from seatrial.text.lazy_pattern import lazy
from seatrial.text.wrapping import clean

_USING = lazy(r"Using network (\S.*?)\s*$|Assigned NET plugin (\S.*?) to comm")
_VIA = lazy(r"via NET/([^/]+)/\d+(/GDRDMA)?")
_INSIDE = lazy(r" via (?:P2P|SHM)/")
_NODES = lazy(r"nNodes (\d+)")
_NO_DEVICE = lazy(r"NET/IB : No device found")
_PROVIDER = lazy(r"Selected [Pp]rovider is ([\w;.-]+)")
_NIC_COUNT = lazy(r"found (\d{1,4}) nics")
_USED_DEVICES = lazy(r"NET/g?IB : Using (\S.*)")
_PORT = lazy(r"(?<![\w.-])([\w.-]{1,64}:\d{1,3})/(IB|RoCE)")
_PORT_RATE = lazy(
    r"NET/g?IB: \[\d{1,4}\] ([\w.-]{1,64}):[\w.-]{1,64}:(\d{1,3})/(?:IB|RoCE) "
    r".{0,40}?speed=(\d{4,8})"
)
_CHOSEN_DEVICES = lazy(r"NCCL_IB_HCA(?:=| set by environment to )[\"']?=?([\w:,-]{1,1024})")
_HOST = lazy(r"(?<!\S)([\w.-]{1,255}):\d+(?::\d+)? \[\d+\] NCCL")
_CHOSEN = lazy(r"NCCL INFO \w+: (\d{1,18}) Bytes -> Algo (\w+) proto (\w+)")
_SET = lazy(
    r"\b(?:NCCL_)?(ALGO|PROTO|NET|P2P_DISABLE|P2P_LEVEL|SHM_DISABLE|IB_DISABLE|MNNVL_ENABLE|NVLS_ENABLE)"
    r"(?:=| set by environment to )[\"']?(\^?\w(?:[\w.-]*\w)?(?:,(?!\w+=)\w+)*)"
)
_NUMBERED = {  # before 2.24 the log names them by number
    "algorithm": ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"),
    "protocol": ("LL", "LL128", "Simple"),
}
_NETWORK_WORDS = ("NET", "network", "nNodes", "plugin", " via ")
_WORDS = (*_NETWORK_WORDS, " -> Algo ", "NCCL_", "ALGO=")
_MAX_NETWORKS = 16
_MAX_CHOICES = 256
_MAX_HOSTS = 1 << 13
_MAX_PORTS = 256
_MAX_RATES = 1 << 17
# FastSocket: Google's plugin of several TCP connections
_SOCKETS = frozenset({"socket", "fastsocket"})
_TCP_PROVIDERS = frozenset({"tcp", "sockets", "udp", "net"})  # of libfabric, without RDMA
_NVLS = frozenset({"NVLS", "NVLSTree"})
NO_NVLS = "Ring/Tree"
Pair = tuple[str, str]
Choice = tuple[int, str, str]  # bytes of a message, algorithm, protocol


class Nic(NamedTuple):
    """A port of a network device: `IB` or `RoCE`, empty where unknown, and its rate, 0 where
    unknown.
    """

    link: str = ""
    gbit_s: int = 0

    def fits(self, like: "Nic") -> bool:
        """Return whether the port may have the link of `like` and at least its rate; unknown values
        fit.
        """
        if 0 < self.gbit_s < like.gbit_s:
            return False
        is_unknown = not (self.link and like.link)
        return is_unknown or self.link == like.link


HostNics = tuple[str, tuple[Nic, ...]]


@dataclass(frozen=True, slots=True)
class Transport:
    """The network of a sweep by NCCL's log.

    `networks` are the names in use (`IB`, `gIB`, `FasTrak`, `AWS Libfabric`, `Socket`, ...), first
    seen first; `provider` is the one that libfabric selected (`efa`, `cxi`, `tcp;ofi_rxm`). `nics`
    are the network devices of each host that lists them. `gpu_direct` is None where no network
    channel was logged. `inside` is the first line of a channel over NVLink, PCIe or shared memory,
    if any. `nodes` is the number of nodes of the communicator: on one node the network is named but
    carries nothing. `choices` are algorithm and protocol by message size in bytes, smallest first;
    `settings` the variables of NCCL that steer any of this, without their `NCCL_`.
    """

    networks: tuple[str, ...]
    gpu_direct: bool | None = None
    nodes: int | None = None
    evidence: str = ""
    choices: tuple[Choice, ...] = ()
    settings: tuple[Pair, ...] = ()
    provider: str | None = None
    nics: tuple[HostNics, ...] = ()
    inside: str = ""

    def fewest_nics(self, like: Nic) -> tuple[str, int] | None:
        """Return the host with the fewest devices of that link and at least that rate, and their
        number.

        None if unlisted.
        """
        if not self.nics:
            return None
        counts = []
        for host, nics in self.nics:
            count = sum(nic.fits(like) for nic in nics)
            counts.append((count, host))
        count, host = min(counts)
        return host, count

    @property
    def sockets_only(self) -> bool:
        """Whether all that was used is TCP, by NCCL's sockets or under libfabric."""
        if self.provider is not None and _is_tcp(self.provider):
            return True
        names = {name.lower() for name in self.networks}
        return bool(names) and names <= _SOCKETS

    @property
    def algorithm(self) -> str | None:
        """The algorithm of the largest message by NCCL's log, else the one that the settings leave;
        None where unknown.

        Where they leave several, `NO_NVLS` if NVLS is not among them: NCCL_NVLS_ENABLE=0,
        NCCL_ALGO=^NVLS.
        """
        if self.choices:
            _, algorithm, _ = self.choices[-1]
            return algorithm
        allowed = _allowed_algorithms(dict(self.settings))
        if len(allowed) == 1:
            return next(iter(allowed))
        if _NVLS & allowed:
            return None
        return NO_NVLS

    @property
    def words(self) -> str:
        """The path of the data, as far as it is known: "over IB with GPUDirect RDMA, by
        Ring/Simple".
        """
        parts = []
        if self.networks and self.nodes != 1:
            names = " and ".join(self.networks)
            parts.append(f"over {names}{self._rdma_words()}")
        chosen = self.algorithm
        if self.choices:
            _, algorithm, protocol = self.choices[-1]
            chosen = f"{algorithm}/{protocol}"
        if chosen:
            parts.append(f"by {chosen}")
        return ", ".join(parts)

    def _rdma_words(self) -> str:
        if self.gpu_direct is None:
            return ""
        if self.gpu_direct:
            return " with GPUDirect RDMA"
        return " without GPUDirect RDMA"


def _allowed_algorithms(settings: Mapping[str, str]) -> Set[str]:
    """Return the algorithms that the settings leave."""
    requested = settings.get("ALGO", "")  # the named ones, or all but those behind `^`
    known = frozenset(_NUMBERED["algorithm"])
    words = requested.lstrip("^").split(",")
    named = known.intersection(_named("algorithm", word) for word in words)
    allowed = known - named
    if named and not requested.startswith("^"):
        allowed = named
    if settings.get("NVLS_ENABLE") == "0":
        allowed -= _NVLS
    return allowed


class TransportReader:
    """Collect the evidence line by line; memory does not grow with the log."""

    def __init__(self) -> None:
        self._networks: dict[str, str] = {}
        self._gpu_direct: bool | None = None
        self._nodes: int | None = None
        self._choices: dict[int, Pair] = {}
        self._settings: dict[str, str] = {}
        self._no_device = ""
        self._provider: Pair | None = None
        self._ports: dict[str, dict[str, Nic]] = {}
        self._rates: dict[Pair, int] = {}
        self._inside = ""

    def feed(self, raw: str) -> None:
        """Take one line."""
        for word in _WORDS:
            if word in raw:
                self.take(clean(raw).text)
                return

    def take(self, text: str) -> None:
        """Take one line that is already `clean`."""
        if "NCCL_" in text or "ALGO=" in text:
            for name, value in _SET.findall(text):
                self._settings[name] = value[:80]
            if match := _CHOSEN_DEVICES.search(text):
                self._chosen_devices(match[1].split(","), text)
        if " Bytes -> Algo " in text:
            match = _CHOSEN.search(text)
            if match and len(self._choices) < _MAX_CHOICES:
                size, algorithm_word, protocol_word = match.groups()
                algorithm = _named("algorithm", algorithm_word)
                protocol = _named("protocol", protocol_word)
                self._choices[int(size)] = (algorithm, protocol)
        elif any(word in text for word in _NETWORK_WORDS):
            self._network_line(text)

    def _chosen_devices(self, names: list[str], text: str) -> None:
        # One name, or one without a number, stands for all that begin so.
        if len(names) < 2 or not all(name[-1:].isdecimal() for name in names):
            return
        ports = {}
        for name in names:
            port = name if ":" in name else f"{name}:1"
            ports[port] = Nic()
        self._take_ports(ports, text)

    def _network_line(self, text: str) -> None:
        if match := _USING.search(text):
            name = match[1] or match[2]
            self._network(name, text)
        elif match := _VIA.search(text):
            name, is_direct = match.groups()
            self._network(name, text)
            if is_direct or self._gpu_direct is None:
                self._gpu_direct = bool(is_direct)
        elif _INSIDE.search(text):
            self._inside = self._inside or _evidence(text)
        elif match := _NODES.search(text):
            nodes = int(match[1][:9])
            self._nodes = max(self._nodes or 0, nodes)
        elif match := _PROVIDER.search(text):
            self._take_provider(match[1], text)
        elif match := _USED_DEVICES.search(text):
            ports = {port: Nic(link) for port, link in _PORT.findall(match[1])}
            self._take_ports(ports, text)
        elif match := _PORT_RATE.search(text):
            if len(self._rates) < _MAX_RATES:
                device, port, mbit_s = match.groups()
                place = (_host_of(text), f"{device}:{port}")
                self._rates[place] = int(mbit_s) // 1000
        elif _NO_DEVICE.search(text):
            self._no_device = self._no_device or _evidence(text)

    def _take_provider(self, provider: str, text: str) -> None:
        """Take the provider that libfabric selected; one that is TCP stays, whatever other ranks
        selected.
        """
        known = self._provider
        if known is None or (_is_tcp(provider) and not _is_tcp(known[0])):
            self._provider = provider[:80], _evidence(text)
        if found := _NIC_COUNT.search(text):
            count = int(found[1])
            numbers = map(str, range(count))
            self._take_ports(dict.fromkeys(numbers, Nic()), text)

    def _take_ports(self, ports: Mapping[str, Nic], text: str) -> None:
        """Collect the network devices by host; a bond is two ports, and those of ranks with one
        each add up.
        """
        if not ports:
            return
        host = _host_of(text)
        is_full = len(self._ports) >= _MAX_HOSTS
        if is_full and host not in self._ports:
            return
        known = self._ports.setdefault(host, {})
        for port, nic in ports.items():
            halves = [port]
            if "bond" in port:
                halves.append(f"{port}+")
            for half in halves:
                if nic.link or half not in known:
                    known[half] = nic
                if len(known) == _MAX_PORTS:
                    return

    def _nics(self) -> Iterator[HostNics]:
        for host, ports in self._ports.items():
            rates = [self._rates.get((host, port), 0) for port in ports]
            nics = []
            for nic, rate in zip(ports.values(), rates, strict=True):
                nics.append(nic._replace(gbit_s=rate))
            yield host, tuple(nics)

    def transport(self) -> Transport | None:
        """Return the evidence so far; None where neither a network nor an algorithm nor a setting
        was named.
        """
        networks = self._networks
        if not networks and self._no_device and not self._provider:
            networks = {"Socket": self._no_device}
        found = (networks, self._choices, self._settings, self._provider, self._ports, self._inside)
        if not any(found):
            return None
        choices = [(size, *choice) for size, choice in sorted(self._choices.items())]
        settings = sorted(self._settings.items())
        evidence = next(iter(networks.values()), "")
        provider = None
        if self._provider:
            provider, selection = self._provider
            if _is_tcp(provider):
                evidence = selection
        return Transport(
            networks=tuple(networks),
            gpu_direct=self._gpu_direct,
            nodes=self._nodes,
            evidence=evidence,
            choices=tuple(choices),
            settings=tuple(settings),
            provider=provider,
            nics=tuple(self._nics()),
            inside=self._inside,
        )

    def _network(self, name: str, text: str) -> None:
        if len(self._networks) < _MAX_NETWORKS:
            evidence = _evidence(text)
            self._networks.setdefault(name[:80], evidence)


def _evidence(text: str) -> str:
    return text.strip()[:300]


def _host_of(text: str) -> str:
    if match := _HOST.search(text):
        return match[1]
    return ""


def _named(kind: str, word: str) -> str:
    """Return the name of an algorithm or a protocol as NCCL_ALGO and NCCL_PROTO spell it: RING and
    1 are Ring.
    """
    names = _NUMBERED[kind]
    if word.isdecimal():
        number = int(word[:9])
        if number < len(names):
            return names[number]
        return word
    bare = word.replace("_", "").lower()
    for name in names:
        if name.lower() == bare:
            return name
    return word


def _is_tcp(provider: str) -> bool:
    return provider.partition(";")[0] in _TCP_PROVIDERS
