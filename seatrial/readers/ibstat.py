"""Read the state of ports: ibstat, ibstatus, ibv_devinfo, `rdma link`, ibdev2netdev, ibportstate.

Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.model.measurement import Measurement, Subject
from seatrial.readers.report import Lines, Report, Result, Results, degraded, failed, passed
from seatrial.text.lazy_pattern import lazy

PORT_DOWN = "tool-port-down"
PORT_SLOW = "tool-port-slow"
NO_SUBNET = "tool-port-no-subnet"
_CA = lazy(r"\s{0,40}(?:CA ('?)([\w.-]{1,60})\1\s*$|hca_id:\s*([\w.-]{1,60}))")
_STATUS_OF = lazy(r"Infiniband device '([\w.-]{1,60})' port (\d{1,3}) status")
_RDMA_LINK = lazy(
    r"link ([\w.-]{1,60})/(\d{1,3}) (?:subnet_prefix .{1,120}?)?state (\w{1,20}) "
    r"physical_state (\w{1,20})"
)
_NETDEV = lazy(
    r"([a-z]\w{1,30}_\d{1,3})\s{1,8}port\s{1,8}(\d{1,3})\s{1,8}==>\s{1,8}(\S{1,40})\s{1,24}\((Up|Down)\)"
)
_PORT_INFO = lazy(
    r"# Port info: (?:DR path slid \d{1,6}; dlid \d{1,6}; )?(\S{1,40}(?: \d{1,6})?(?: "
    r"port \d{1,3})?)"
)
_PORT_NUMBER = lazy(r"\s{1,40}[Pp]ort:?\s+(\d{1,3}):?\s*$")
_FIELD = lazy(
    r"\s{0,40}(state|phys(?:ical)? ?_?state|rate|link[ "
    "_]layer|(?:Phys)?LinkState|LinkWidth(?:Supported|Active)):"
    r"(?:\.{1,60}|\s*)(.{1,80})$",
    re.IGNORECASE,
)
_NAMES = {
    "state": "state",
    "linkstate": "state",
    "physstate": "physical",
    "physicalstate": "physical",
    "physlinkstate": "physical",
    "rate": "rate",
    "linklayer": "layer",
    "linkwidthactive": "width",
    "linkwidthsupported": "widths",
}
PORT_BEGINS = lazy(
    rf"(?:CA '[\w.-]{{1,60}}'\s*$|hca_id:\s*\w|{_STATUS_OF.pattern}|{_RDMA_LINK.pattern}|{_NETDEV.pattern}"
    rf"|{_PORT_INFO.pattern})"
)
PORT_LINE = lazy(
    rf"\A(?:{PORT_BEGINS.pattern}"
    r"|[A-Z]\w{2,40}:\.{3,60}.{0,120}|\s+(?:[\w ]{2,40}|default gid|base lid|sm lid):\s*\S.{0,160}"
    r"|\s+[Pp]ort:?\s+\d{1,3}:?\s*\Z)"
)


@dataclass(slots=True)
class _Port:
    """A port of an HCA, in small letters: `active` and `linkup` where all is well."""

    name: str
    state: str = ""
    physical: str = ""
    rate: str = ""
    layer: str = ""
    width: str = ""
    widths: str = ""
    is_ipoib: bool = False  # the state is that of the interface for IP, and not of the link

    @property
    def rate_gb(self) -> float:
        """The rate in Gb/s, 0 where it is not known."""
        number = re.match(r"\d{1,5}(?:\.\d)?", self.rate)
        if number is None:
            return 0.0
        return float(number[0])


def read_ports(lines: Lines) -> Report:
    """Read the state of each port: ibstat, ibstatus, ibv_devinfo, `rdma link`, ibdev2netdev.

    A port is slow beside the fastest one of its link layer. Where all interfaces for IP over
    InfiniBand are down, IP is not in use: that is a note, and no fault of the ports.
    """
    every = [port for port in _ports(lines) if port.state]
    ipoib = [port for port in every if port.is_ipoib]
    without_ip: list[str] = []
    if len(ipoib) > 1 and all(port.state == "down" for port in ipoib):
        without_ip = [port.name for port in ipoib]
    ports = [port for port in every if port.name not in without_ip]
    fastest: dict[str, float] = {}
    rates = []
    for port in ports:
        if not port.rate_gb or "active" not in port.state:
            continue
        fastest[port.layer] = max(port.rate_gb, fastest.get(port.layer, 0.0))
        if port.layer == "infiniband":
            rate = Measurement(
                metric="port_rate",
                value=port.rate_gb / 8,  # the tools say gigabits
                unit="GB/s",
                subject=Subject("node", port.name),
            )
            rates.append(rate)
    results: list[Result] = []
    for port in ports:
        results += _of_port(port, fastest.get(port.layer, 0.0))
    notes: tuple[str, ...] = ()
    if without_ip:
        named = ", ".join(without_ip[:8])
        notes = (f"IP over InfiniBand is down on {named}; ibstat shows the links",)
    return Report("InfiniBand ports", results, rates, notes)


def _ports(lines: Lines) -> Iterator[_Port]:
    """Yield the ports that the tools list, as far as each names one.

    Some have no state: a port is begun before it is known whether there is one.
    """
    device = ""
    port = _Port("")
    for line in lines:
        if match := _RDMA_LINK.match(line):
            physical = match[4].lower().replace("_", "")
            yield _Port(f"{match[1]}:{match[2]}", match[3].lower(), physical)
        elif match := _NETDEV.match(line):
            # That of IP over InfiniBand may be down while the link is up
            is_ipoib = match[3].startswith("ib")
            state = "active" if match[4] == "Up" else "down"
            layer = "" if is_ipoib else "ethernet"
            yield _Port(f"{match[1]}:{match[2]}", state, layer=layer, is_ipoib=is_ipoib)
        elif match := _PORT_INFO.match(line):
            yield port
            port = _Port(match[1].lower())
        elif match := _STATUS_OF.match(line):
            yield port
            port = _Port(f"{match[1]}:{match[2]}")
        elif match := _CA.match(line):
            yield port
            device = match[2] or match[3]
            port = _Port("")
        elif match := _PORT_NUMBER.match(line):
            yield port
            port = _Port(f"{device}:{match[1]}")
        elif match := _FIELD.match(line):
            name = re.sub("[ _]", "", match[1].lower())
            value = match[2].strip().lower()
            setattr(port, _NAMES[name], value)
    yield port


def _of_port(port: _Port, fastest_gb: float) -> Results:
    """Yield the result of a port: whether it is up, and as fast as its lanes and the others.

    `fastest_gb` is the rate in Gb/s of the fastest port of its link layer, 0 if none is known. A
    port that is not in use (Ethernet, or disabled) is degraded where another port would fail.
    """
    # Without the numbers that tools print beside names: `4: ACTIVE`, `PORT_ACTIVE (4)`
    state = re.sub(r"[\d:() ]|port_", "", port.state)
    physical = re.sub(r"[\d:() ]", "", port.physical)
    is_slow = 0 < port.rate_gb < 0.9 * fastest_gb
    if state == "active" and is_slow:
        words = f"{port.name} runs at {port.rate_gb:g} Gb/s, others at {fastest_gb:g}"
        yield degraded(PORT_SLOW, words)
    elif state == "active" and port.width in ("1x", "2x") and "4x" in port.widths:
        yield degraded(PORT_SLOW, f"{port.name} runs with {port.width.upper()} of 4X lanes")
    elif state == "active":
        yield passed(port.name)
    elif state in ("initializing", "init", "armed"):
        yield failed(NO_SUBNET, f"{port.name} is {state}: no subnet manager has configured it")
    else:
        states = ", ".join(filter(None, (state, physical)))
        words = f"{port.name} has no link ({states})"
        is_unused = port.layer == "ethernet" or physical == "disabled"
        if is_unused:
            yield degraded(PORT_DOWN, words)
        else:
            yield failed(PORT_DOWN, words)
