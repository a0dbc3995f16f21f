"""Read tools of InfiniBand and RoCE: perftest, ibstat and its like, ibqueryerrors, perfquery, mlxlink. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seatrial.model.measurement import Measurement, Subject
from seatrial.model.reason import Explanation
from seatrial.model.verdict import Verdict
from seatrial.readers.report import SAYS_BAD, Report, Result

_PORT_DOWN, _PORT_ERRORS, _PORT_SLOW = "tool-port-down", "tool-port-errors", "tool-port-slow"
_NO_SUBNET, _MODULE, _RDMA = "tool-port-no-subnet", "tool-port-module", "tool-rdma-failed"
TEST = re.compile(r"[ \t]{0,60}(RDMA_\w{1,20}|Send|Atomic\w{0,20}) (?:Bidirectional )?(BW|Latency|Post List BW) Test")
_DEVICE = re.compile(r"\bDevice\s{0,40}: (\S{1,60})")
_UNITS = {"gb/sec": 1 / 8, "gbps": 1 / 8, "mb/sec": 1e-3, "mib/sec": 2**20 / 1e9, "mibps": 2**20 / 1e9}  # to GB/s
_HEADING = re.compile(r"#bytes\s+#iterations\s+(.{1,200})")
_ROW = re.compile(r"\A\s*+(\d{1,12}+)\s++(\d{1,12}+)((?:\s++\d{1,12}+(?:\.\d{1,9}+)?){1,9}+)\s*+\Z")
_RDMA_ERROR = re.compile(
    r".{0,40}?(?:Completion with error.{0,120}|Failed status \d+.{0,160}|Couldn't connect to .{1,80}"
    r"|Unable to (?:init|find|open) .{1,80}|Failed to (?:modify QP|create|connect|exchange).{0,80}"
    r"|IB device .{1,60}not found.{0,40}|Problems with warm up|Couldn't (?:allocate|get|listen|open|create) .{1,80})"
)
PERFTEST_LINE = re.compile(
    r"\A(?:\s{0,40}#bytes\s|\s*+\d{1,12}+\s++\d{1,12}+(?:\s++\d{1,12}+(?:\.\d{1,9}+)?){1,9}+\s*+\Z|-{80,}\s*\Z|\*"
    r"|\s*+(?:Dual-port|Number of qps|Connection type|CQ Moderation|Mtu|Link type|Max inline data|GID index|rdma_cm QPs"
    r"|Data ex\. method|TX depth|RX depth|Outstand reads|PCIe relax order|ibv_wr\* API|Use ROCm memory"
    r"|local address|remote address|GID|WARNING: BW peak|Conflicting CPU frequency)\b.{0,300}"
    rf"|{_RDMA_ERROR.pattern})"
)


def read_perftest(lines: Sequence[str]) -> Report:
    """Read rows of message size, iterations, and the columns of the heading: peak and average, or latencies."""
    kind = next(filter(None, map(TEST.match, lines)), None)
    device = next(filter(None, map(_DEVICE.search, lines)), None)
    tool = f"perftest {kind[1]} {kind[2]}" if kind else "perftest"
    subject = Subject("node", device[1] if device else "node")
    both_ways = bool(kind and "Bidirectional" in kind[0])
    results: list[Result] = []
    measurements: list[Measurement] = []
    columns: list[str] = []
    for line in lines:
        if heading := _HEADING.search(line):
            columns = re.findall(r"[\w%. ]*?[\w%.]+\s?\[[\w/]+\]", heading[1])
        elif (row := _ROW.match(line)) and columns:
            values = [float(value) for value in row[3].split()]
            named = dict(zip(columns, values, strict=False))
            measurements += _of_row(tool, subject, int(row[1]), named, both_ways=both_ways)
        elif error := _RDMA_ERROR.match(line):
            results.append(Result(Verdict.FAIL, _RDMA, error[0].strip()))
    return Report(tool, tuple(results), tuple(measurements))


def _of_row(
    tool: str, subject: Subject, size: int, values: dict[str, float], *, both_ways: bool
) -> Iterator[Measurement]:
    conditions: dict[str, str | int | float | bool] = {"test": tool, "message_bytes": size}
    if both_ways:
        conditions["bidirectional"] = True
    for column, value in values.items():
        words = column.strip().lower()
        unit = words.partition("[")[2].rstrip("]")
        if words.startswith("bw average") and unit in _UNITS:
            gb_s = value * _UNITS[unit]
            yield Measurement("rdma_bandwidth", gb_s, "GB/s", subject, conditions, (gb_s,))
        elif words.startswith("t_typical") and unit == "usec":
            yield Measurement("rdma_latency", value, "us", subject, conditions, (value,), better="lower")


@dataclass(slots=True)
class _Port:
    """A port of an HCA, in small letters: `active` and `linkup` where all is well."""

    name: str
    state: str = ""
    physical: str = ""
    rate_gb: float | None = None
    layer: str = ""


_CA = re.compile(r"\s{0,40}(?:CA ('?)([\w.-]{1,60})\1\s*$|hca_id:\s*([\w.-]{1,60}))")
_STATUS_OF = re.compile(r"Infiniband device '([\w.-]{1,60})' port (\d{1,3}) status")
_RDMA_LINK = re.compile(
    r"link ([\w.-]{1,60})/(\d{1,3}) (?:subnet_prefix .{1,120}?)?state (\w{1,20}) physical_state (\w{1,20})"
)
_NETDEV = re.compile(r"([a-z]\w{1,30}_\d{1,3}) port (\d{1,3}) ==> (\S{1,40}) \((Up|Down)\)")
_PORT_NUMBER = re.compile(r"\s{1,40}[Pp]ort:?\s+(\d{1,3}):?\s*$")
_PORT_FIELD = re.compile(r"\s{0,40}(state|phys(?:ical)? ?_?state|rate|link[ _]layer):\s*(.{1,80})$", re.IGNORECASE)
PORT_BEGINS = re.compile(
    rf"(?:CA '[\w.-]{{1,60}}'\s*$|hca_id:\s*\w|{_STATUS_OF.pattern}|{_RDMA_LINK.pattern}|{_NETDEV.pattern})"
)
PORT_LINE = re.compile(
    rf"\A(?:{PORT_BEGINS.pattern}"
    r"|\s+(?:[\w ]{2,40}|default gid|base lid|sm lid):\s*\S.{0,160}|\s+[Pp]ort:?\s+\d{1,3}:?\s*\Z)"
)


def read_ports(lines: Sequence[str]) -> Report:
    """Read the state of each port: ibstat, ibstatus, ibv_devinfo, `rdma link`, ibdev2netdev."""
    ports = [port for port in _ports(lines) if port.state]
    fastest: dict[str, float] = {}
    for port in ports:
        if port.rate_gb and "active" in port.state:
            fastest[port.layer] = max(port.rate_gb, fastest.get(port.layer, 0.0))
    results = [result for port in ports for result in _of_port(port, fastest.get(port.layer, 0.0))]
    rates = tuple(
        Measurement("port_rate", port.rate_gb / 8, "GB/s", Subject("node", port.name))
        for port in ports
        if port.rate_gb and "active" in port.state and port.layer == "infiniband"
    )
    return Report("InfiniBand ports", tuple(results), rates)


def _ports(lines: Sequence[str]) -> Iterator[_Port]:
    device, port = "", _Port("")
    for line in lines:
        if match := _RDMA_LINK.match(line):
            yield _Port(f"{match[1]}:{match[2]}", match[3].lower(), match[4].lower().replace("_", ""))
        elif match := _NETDEV.match(line):
            yield _Port(f"{match[1]}:{match[2]}", "active" if match[4] == "Up" else "down")
        elif match := _STATUS_OF.match(line):
            yield port
            port = _Port(f"{match[1]}:{match[2]}")
        elif match := _CA.match(line):
            yield port
            device, port = match[2] or match[3], _Port("")
        elif match := _PORT_NUMBER.match(line):
            yield port
            port = _Port(f"{device}:{match[1]}")
        elif match := _PORT_FIELD.match(line):
            _set_field(port, match[1].lower().replace("_", " "), match[2].strip().lower())
    yield port


def _set_field(port: _Port, name: str, value: str) -> None:
    if name == "state":
        port.state = value
    elif name.startswith("phys"):
        port.physical = value
    elif name == "rate":
        number = re.match(r"\d{1,5}(?:\.\d)?", value)
        port.rate_gb = float(number[0]) if number else None
    else:
        port.layer = value


def _of_port(port: _Port, fastest_gb: float) -> Iterator[Result]:
    state = re.sub(r"[\d:() ]|port_", "", port.state)
    physical = re.sub(r"[\d:() ]", "", port.physical)
    if state == "active" and port.rate_gb and port.rate_gb < 0.9 * fastest_gb:
        words = f"{port.name} runs at {port.rate_gb:g} Gb/s, others at {fastest_gb:g}"
        yield Result(Verdict.DEGRADED, _PORT_SLOW, words)
    elif state == "active":
        yield Result(Verdict.PASS, SAYS_BAD, port.name)
    elif state in ("initializing", "init", "armed"):
        yield Result(Verdict.FAIL, _NO_SUBNET, f"{port.name} is {state}: no subnet manager has configured it")
    else:
        verdict = Verdict.DEGRADED if port.layer == "ethernet" or physical == "disabled" else Verdict.FAIL
        yield Result(verdict, _PORT_DOWN, f"{port.name} has no link ({', '.join(filter(None, (state, physical)))})")


_OF_CABLE = (
    "SymbolErrorCounter", "LinkErrorRecoveryCounter", "LinkDownedCounter", "PortRcvErrors", "SymbolErrors", "RcvErrors",
    "PortRcvRemotePhysicalErrors", "LocalLinkIntegrityErrors", "ExcessiveBufferOverrunErrors", "LinkRecovers",
    "LinkDowned", "LinkIntegrityErrors", "ExcBufOverrunErrors", "RcvRemotePhysErrors",
)  # fmt: skip
_ERRORS_FOR = re.compile(r"Errors for (?:0x[0-9a-fA-F]{1,16} ?)?(?:\"([^\"]{1,80})\")?")
_ERRORS_OF = re.compile(r"\s{0,40}GUID (0x[0-9a-fA-F]{1,16}) port (\w{1,4}): (.{1,2000})")
_COUNTER = re.compile(r"\[?(\w{3,40}) == (\d{1,20})")
_DOTTED = re.compile(r"(\w{3,40}):\.{2,60}(\d{1,20})\s*$")
_PERFQUERY = re.compile(r"# Port (?:extended )?counters: (.{1,60}?)(?: \(|$)")
ERRORS_BEGINS = re.compile(
    rf"(?:Errors for (?:0x|\")|\s{{0,40}}GUID 0x[0-9a-fA-F]{{1,16}} port \w|{_PERFQUERY.pattern})"
)
ERRORS_LINE = re.compile(rf"\A(?:{ERRORS_BEGINS.pattern}|## |{_DOTTED.pattern}|\s+Link info: )")


def read_port_errors(lines: Sequence[str]) -> Report:
    """Read the counters of ibqueryerrors and perfquery; what congestion counts is a note."""
    counts: dict[str, dict[str, int]] = {}
    node = place = ""
    for line in lines:
        if match := _ERRORS_FOR.match(line):
            node = match[1] or line.split()[2]
        elif match := _ERRORS_OF.match(line):
            name = f"{node or match[1]}" + ("" if match[2] == "ALL" else f" port {match[2]}")
            counts[name] = {counter: int(count) for counter, count in _COUNTER.findall(match[3])}
        elif match := _PERFQUERY.match(line):
            place = match[1]
        elif place and (match := _DOTTED.match(line)):
            counts.setdefault(place, {})[match[1]] = int(match[2])
    ports = {name for name in counts if any(other.startswith(f"{name} port ") for other in counts)}
    return _of_counters({name: of_port for name, of_port in counts.items() if name not in ports})


def _of_counters(counts: dict[str, dict[str, int]]) -> Report:
    results: list[Result] = []
    notes: list[str] = []
    for name, of_port in counts.items():
        bad = [f"{counter} {count}" for counter, count in of_port.items() if count and counter in _OF_CABLE]
        busy = [f"{counter} {count}" for counter, count in of_port.items() if count and _is_congestion(counter)]
        if bad:
            results.append(Result(Verdict.DEGRADED, _PORT_ERRORS, f"{name}: {', '.join(bad)}"))
        else:
            results.append(Result(Verdict.PASS, SAYS_BAD, name))
        if busy:
            notes.append(f"{name}: {', '.join(busy)} (congestion, no fault of the link)")
    return Report("InfiniBand counters", tuple(results), notes=tuple(notes))


def _is_congestion(counter: str) -> bool:
    return counter.endswith(("XmitWait", "XmtWait", "XmitDiscards", "XmtDiscards"))


_MLXLINK = re.compile(r"(?:.{0,40}?\$ |# )?\s{0,8}(?:sudo )?mlxlink .{0,40}?-d ?(\S{1,80})")
MLXLINK_BEGINS = re.compile(rf"Operational Info\s*$|{_MLXLINK.pattern}")
MLXLINK_LINE = re.compile(
    r"\A(?:[A-Z][\w ()/.,\[\]+-]{0,60}?\s+: .{0,200}|-{4,40}\s*\Z"
    r"|(?:Operational|Supported|Troubleshooting|Module|Tool|Physical|FEC)\b[\w ]{0,60}\Z)"
)
_FIELD = re.compile(r"([A-Z][\w ()/.,+-]{0,60}?(?: ?\[[^\]]{1,20}\])?)\s+: ?(.{0,200})$")
_RANGE = re.compile(r"\[(-?\d{1,6}(?:\.\d{1,4})?)\.\.(-?\d{1,6}(?:\.\d{1,4})?)\]")
_LANES = {"Rx LOS": "receives no light (Rx LOS)", "Tx LOS": "gets no signal from the host (Tx LOS)"}
_LANES |= {"Tx Fault": "reports a fault of the transmitter (Tx Fault)", "Rx CDR LOL": "lost its clock (Rx CDR LOL)"}
_MOST_BER = 1e-12  # after error correction; IBTA asks for 1e-15 and better


def read_mlxlink(lines: Sequence[str]) -> Report:
    """Read state, recommendation, lanes of the module, and the error rate after correction."""
    command = next(filter(None, map(_MLXLINK.match, lines)), None)
    fields: dict[str, str] = {}
    for line in lines:
        if match := _FIELD.match(line):
            fields.setdefault(match[1].strip(), match[2].strip())
    device = command[1] if command else "the port"
    results = [Result(verdict, code, f"{device}: {what}") for verdict, code, what in _of_link(fields)]
    if not results and "State" in fields:
        results.append(Result(Verdict.PASS, SAYS_BAD, device))
    return Report("mlxlink", tuple(results))


def _of_link(fields: dict[str, str]) -> Iterator[tuple[Verdict, str, str]]:
    state = fields.get("State", "Active")
    is_up = state.lower().startswith(("active", "n/a"))
    advice = fields.get("Recommendation", "")
    said = f": {advice}" if advice and "no issue" not in advice.lower() else ""
    if not is_up:
        yield Verdict.FAIL, _PORT_DOWN, f"state {state}, physical state {fields.get('Physical state', '?')}{said}"
    elif said and fields.get("Status Opcode", "0") not in ("0", "N/A"):
        yield Verdict.DEGRADED, _MODULE, f"status {fields['Status Opcode']}{said}"
    verdict = Verdict.DEGRADED if is_up else Verdict.FAIL
    dark = _bad_lanes(fields, "Rx LOS")
    for name, what in _LANES.items():
        if lanes := _bad_lanes(fields, name):
            yield verdict, _MODULE, f"{_named_lanes(lanes)} {what}"
    if low := [lane for lane in _outside(fields.get("Rx Power Current [dBm]", "")) if lane not in dark]:
        yield verdict, _MODULE, f"{_named_lanes(low)}: received power outside its range"
    if _outside(fields.get("Temperature [C]", "")):
        yield Verdict.DEGRADED, _MODULE, f"the module's temperature is {fields['Temperature [C]']}"
    rate = fields.get("Effective Physical BER", "")
    if re.fullmatch(r"\d{1,3}(?:\.\d{1,4})?E-\d{1,3}", rate) and float(rate) > _MOST_BER:
        yield Verdict.DEGRADED, _PORT_ERRORS, f"bit error rate after correction {rate}"


def _bad_lanes(fields: dict[str, str], name: str) -> list[int]:
    flags = fields.get(f"{name} [per lane]", "").split(",")
    return [lane for lane, flag in enumerate(flags, start=1) if flag.strip() == "1"]


def _outside(field: str) -> list[int]:
    """The lanes whose value is outside the range beside them; none for a module that has no range."""
    bounds = _RANGE.search(field)
    if bounds is None or float(bounds[1]) >= float(bounds[2]):
        return []
    values = re.findall(r"-?\d{1,6}(?:\.\d{1,4})?", field[: bounds.start()])
    low, high = float(bounds[1]), float(bounds[2])
    return [lane for lane, value in enumerate(map(float, values), start=1) if not low <= value <= high]


def _named_lanes(lanes: Sequence[int]) -> str:
    return f"lane{'s' if len(lanes) > 1 else ''} {', '.join(map(str, lanes[:8]))}"


REASONS = {
    _PORT_DOWN: Explanation(
        "{tool}: {what}",
        "A port of the node has no link.",
        "`mlxlink -d DEVICE -m` on that node; reseat or replace the cable or module, then look at the switch port.",
    ),
    _NO_SUBNET: Explanation(
        "{tool}: {what}",
        "The link is up, and no subnet manager has configured the port.",
        "`sminfo` on that node; start the subnet manager (`systemctl status opensm`), or check UFM.",
    ),
    _PORT_SLOW: Explanation(
        "{tool}: {what}",
        "A port runs at less than its speed.",
        "`mlxlink -d DEVICE` and `lspci -vv` on that node: width and speed of the link and of PCIe; then the cable.",
    ),
    _PORT_ERRORS: Explanation(
        "{tool}: {what}",
        "A link counts errors of the cable: it lost symbols, recovered or went down.",
        "`ibqueryerrors` again after an hour of traffic; if the counts grow, replace the cable or module there.",
    ),
    _MODULE: Explanation(
        "{tool}: {what}",
        "The optical module or its fibre is at fault.",
        "Clean the fibre's ends and reseat the module; replace the module, then the fibre, and run `mlxlink` again.",
    ),
    _RDMA: Explanation(
        "{tool}: {what}",
        "A test of RDMA did not get through.",
        "`ibstat` on both nodes, then the GID index, MTU and routes between them; the firewall must let its port pass.",
    ),
}
