"""Read the counters of ibqueryerrors and perfquery. Pure."""

from seatrial.readers.report import Lines, Report, degraded, passed
from seatrial.text.lazy_pattern import lazy

Counts = dict[str, int]  # by counter
CountsByPort = dict[str, Counts]
PORT_ERRORS = "tool-port-errors"
_OF_CONGESTION = ("XmitWait", "XmtWait", "XmitDiscards", "XmtDiscards")
_OF_CABLE = (
    "SymbolErrorCounter",
    "LinkErrorRecoveryCounter",
    "LinkDownedCounter",
    "PortRcvErrors",
    "PortRcvRemotePhysicalErrors",
    "LocalLinkIntegrityErrors",
    "ExcessiveBufferOverrunErrors",
    # The short names of older versions
    "SymbolErrors",
    "LinkRecovers",
    "LinkDowned",
    "RcvErrors",
    "RcvRemotePhysErrors",
    "LinkIntegrityErrors",
    "ExcBufOverrunErrors",
)
# `Errors for 0x0008f10500650ba1 "node-a mlx5_0"`
_ERRORS_FOR = lazy(r"Errors for (?:0x[0-9a-fA-F]{1,16} ?)?(?:\"([^\"]{1,80})\")?")
# `GUID 0x8f10500650ba1 port 1: [SymbolErrorCounter == 5] [PortXmitWait == 12]`
_ERRORS_OF = lazy(r"\s{0,40}GUID (0x[0-9a-fA-F]{1,16}) port (\w{1,4}): (.{1,2000})")
_COUNTER = lazy(r"\[?(\w{3,40}) == (\d{1,20})")
# `SymbolErrorCounter:..............41200`
_DOTTED = lazy(r"(\w{3,40}):\.{2,60}(\d{1,20})\s*$")
# `# Port counters: Lid 3 port 1 (CapMask: 0x5A00)`
_PERFQUERY = lazy(r"# Port (?:extended )?counters: (.{1,60}?)(?: \(|$)")
ERRORS_BEGINS = lazy(
    rf"(?:Errors for (?:0x|\")|\s{{0,40}}GUID 0x[0-9a-fA-F]{{1,16}} port \w|{_PERFQUERY.pattern})"
)
ERRORS_LINE = lazy(rf"\A(?:{ERRORS_BEGINS.pattern}|## |{_DOTTED.pattern}|\s+Link info: )")


def read_port_errors(lines: Lines) -> Report:
    """Read the counters of ibqueryerrors and perfquery; what congestion counts is a note."""
    counts: CountsByPort = {}
    node = ""
    place = ""
    for line in lines:
        if match := _ERRORS_FOR.match(line):
            node = match[1] or line.split()[2]
        elif match := _ERRORS_OF.match(line):
            guid, port, counters = match.groups()
            name = node or guid
            if port != "ALL":
                name += f" port {port}"
            counts[name] = {counter: int(count) for counter, count in _COUNTER.findall(counters)}
        elif match := _PERFQUERY.match(line):
            place = match[1]
        elif place and (match := _DOTTED.match(line)):
            counts.setdefault(place, {})[match[1]] = int(match[2])
    return _of_counters(_without_sums(counts))


def _without_sums(counts: CountsByPort) -> CountsByPort:
    """Leave out the sum of all ports where the ports are there by themselves."""
    kept = {}
    for name, of_port in counts.items():
        if not any(other.startswith(f"{name} port ") for other in counts):
            kept[name] = of_port
    return kept


def _of_counters(counts: CountsByPort) -> Report:
    """Return a result for each port by what a bad cable counts, and notes on congestion."""
    results = []
    notes = []
    for name, of_port in counts.items():
        counted = {counter: f"{counter} {count}" for counter, count in of_port.items() if count}
        bad = [words for counter, words in counted.items() if counter in _OF_CABLE]
        busy = [words for counter, words in counted.items() if counter.endswith(_OF_CONGESTION)]
        results.append(degraded(PORT_ERRORS, f"{name}: {', '.join(bad)}") if bad else passed(name))
        if busy:
            notes.append(f"{name}: {', '.join(busy)} (congestion, no fault of the link)")
    return Report("InfiniBand counters", results, notes=notes)
