"""Read the counters of ibqueryerrors and perfquery. Pure."""

from collections.abc import Sequence

from seatrial.model.verdict import Verdict
from seatrial.readers.report import SAYS_BAD, Report, Result
from seatrial.text.lazy_pattern import lazy

PORT_ERRORS = "tool-port-errors"
_OF_CONGESTION = ("XmitWait", "XmtWait", "XmitDiscards", "XmtDiscards")
_OF_CABLE = (
    "SymbolErrorCounter", "LinkErrorRecoveryCounter", "LinkDownedCounter", "PortRcvErrors", "SymbolErrors", "RcvErrors",
    "PortRcvRemotePhysicalErrors", "LocalLinkIntegrityErrors", "ExcessiveBufferOverrunErrors", "LinkRecovers",
    "LinkDowned", "LinkIntegrityErrors", "ExcBufOverrunErrors", "RcvRemotePhysErrors",
)  # fmt: skip
_ERRORS_FOR = lazy(r"Errors for (?:0x[0-9a-fA-F]{1,16} ?)?(?:\"([^\"]{1,80})\")?")
_ERRORS_OF = lazy(r"\s{0,40}GUID (0x[0-9a-fA-F]{1,16}) port (\w{1,4}): (.{1,2000})")
_COUNTER = lazy(r"\[?(\w{3,40}) == (\d{1,20})")
_DOTTED = lazy(r"(\w{3,40}):\.{2,60}(\d{1,20})\s*$")
_PERFQUERY = lazy(r"# Port (?:extended )?counters: (.{1,60}?)(?: \(|$)")
ERRORS_BEGINS = lazy(
    rf"(?:Errors for (?:0x|\")|\s{{0,40}}GUID 0x[0-9a-fA-F]{{1,16}} port \w|{_PERFQUERY.pattern})"
)
ERRORS_LINE = lazy(rf"\A(?:{ERRORS_BEGINS.pattern}|## |{_DOTTED.pattern}|\s+Link info: )")


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
        counted = {counter: f"{counter} {count}" for counter, count in of_port.items() if count}
        bad = [words for counter, words in counted.items() if counter in _OF_CABLE]
        busy = [words for counter, words in counted.items() if counter.endswith(_OF_CONGESTION)]
        if bad:
            results.append(
                Result(
                    verdict=Verdict.DEGRADED, code=PORT_ERRORS, words=f"{name}: {', '.join(bad)}"
                )
            )
        else:
            results.append(Result(Verdict.PASS, SAYS_BAD, name))
        if busy:
            notes.append(f"{name}: {', '.join(busy)} (congestion, no fault of the link)")
    return Report("InfiniBand counters", tuple(results), notes=tuple(notes))
