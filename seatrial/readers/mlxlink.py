"""Read mlxlink: state, recommendation, module and error rate of a port. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from seatrial.readers.ibstat import PORT_DOWN
from seatrial.readers.port_errors import PORT_ERRORS
from seatrial.readers.report import Lines, Report, Results, degraded, failed, passed
from seatrial.text.lazy_pattern import lazy

Fields = dict[str, str]
_MODULE = "tool-port-module"
# `sudo mlxlink -d mlx5_0 -m -c`
_MLXLINK = lazy(r"(?:.{0,40}?\$ |# )?\s{0,8}(?:sudo )?mlxlink .{0,40}?-d ?(\S{1,80})")
MLXLINK_BEGINS = lazy(rf"Operational Info\s*$|{_MLXLINK.pattern}")
MLXLINK_LINE = lazy(
    r"\A(?:[A-Z][\w ()/.,\[\]+-]{0,60}?\s+: .{0,200}|-{4,40}\s*\Z"
    r"|(?:Operational|Supported|Troubleshooting|Module|Tool|Physical|FEC)\b[\w ]{0,60}\Z)"
)
# `Rx Power Current [dBm]             : 1.2,1.1,1.3,1.2 [-9..4]`
_FIELD = lazy(r"([A-Z][\w ()/.,+-]{0,60}?(?: ?\[[^\]]{1,20}\])?)\s+: ?(.{0,200})$")
# `[-9..4]`
_RANGE = lazy(r"\[(-?\d{1,6}(?:\.\d{1,4})?)\.\.(-?\d{1,6}(?:\.\d{1,4})?)\]")
# `1.2,1.1,1.3,1.2`
_NUMBER = lazy(r"-?\d{1,6}(?:\.\d{1,4})?")
# `15E-255`
_BER = lazy(r"\d{1,3}(?:\.\d{1,4})?E-\d{1,3}")
# What a lane does whose flag is set
_LANES = {
    "Rx LOS": "receives no light (Rx LOS)",
    "Tx LOS": "gets no signal from the host (Tx LOS)",
    "Tx Fault": "reports a fault of the transmitter (Tx Fault)",
    "Rx CDR LOL": "lost its clock (Rx CDR LOL)",
}
_FEW_DOWNS = 2  # one at the start of the node, one at that of the switch
_MOST_BER = 1e-12  # after error correction; IBTA asks for 1e-15 and better


def read_mlxlink(lines: Lines) -> Report:
    """Read state, recommendation, lanes of the module, and the error rate after correction."""
    device = _device(lines)
    fields: Fields = {}
    for line in lines:
        if match := _FIELD.match(line):
            name = match[1].strip()
            fields.setdefault(name, match[2].strip())
    results = [replace(problem, words=f"{device}: {problem.words}") for problem in _of_link(fields)]
    if not results and "State" in fields:
        results.append(passed(device))
    return Report("mlxlink", results)


def _device(lines: Lines) -> str:
    """Return the device that the command line names."""
    for line in lines:
        if command := _MLXLINK.match(line):
            return command[1]
    return "the port"


def _of_link(fields: Fields) -> Results:
    """Yield what is bad of the link: its state, the module, then its errors."""
    state = fields.get("State", "Active")
    is_up = state.lower().startswith(("active", "n/a"))
    advice = fields.get("Recommendation", "")
    advised = ""
    if advice and "no issue" not in advice.lower():
        advised = f": {advice}"
    status = fields.get("Status Opcode", "0")
    if not is_up:
        physical = fields.get("Physical state", "?")
        yield failed(PORT_DOWN, f"state {state}, physical state {physical}{advised}")
    elif advised and status not in ("0", "N/A"):
        yield degraded(_MODULE, f"status {status}{advised}")
    yield from _of_module(fields, is_up)
    yield from _errors(fields, is_up)


def _of_module(fields: Fields, is_up: bool) -> Results:
    """Yield lanes without light, signal or clock, and what is outside of the module's ranges."""
    result = degraded if is_up else failed
    for name, problem in _LANES.items():
        bad = _bad_lanes(fields, name)
        if bad:
            lanes = _named_lanes(bad)
            yield result(_MODULE, f"{lanes} {problem}")
    dark = _bad_lanes(fields, "Rx LOS")
    outside = _outside(fields.get("Rx Power Current [dBm]", ""))
    low = [lane for lane in outside if lane not in dark]
    if low:
        lanes = _named_lanes(low)
        yield result(_MODULE, f"{lanes}: received power outside its range")
    temperature = fields.get("Temperature [C]", "")
    if _outside(temperature):
        yield degraded(_MODULE, f"the module's temperature is {temperature}")


def _errors(fields: Fields, is_up: bool) -> Results:
    """Yield a link that went down often, and a bad error rate after correction."""
    downs = fields.get("Link Down Counter", "")
    went_down_often = downs.isdigit() and int(downs[:9]) > _FEW_DOWNS
    if is_up and went_down_often:
        words = f"the link went down {downs} times"
        since = fields.get("Time Since Last Clear [Min]", "")
        if since:
            words += f" in {since} minutes"
        yield degraded(PORT_ERRORS, words)
    rate = fields.get("Effective Physical BER", "")
    if _BER.fullmatch(rate) and float(rate) > _MOST_BER:
        yield degraded(PORT_ERRORS, f"bit error rate after correction {rate}")


def _bad_lanes(fields: Fields, name: str) -> list[int]:
    """Return the lanes that have a flag, from 1 on."""
    printed = fields.get(f"{name} [per lane]", "")
    return [lane for lane, flag in enumerate(printed.split(","), start=1) if flag.strip() == "1"]


def _outside(field: str) -> list[int]:
    """Return the lanes whose value is outside the range beside them; none for a module that has no
    range.
    """
    bounds = _RANGE.search(field)
    if bounds is None:
        return []
    low, high = map(float, bounds.groups())
    if low >= high:
        return []
    values = _NUMBER.findall(field, 0, bounds.start())
    return [lane for lane, value in enumerate(values, start=1) if not low <= float(value) <= high]


def _named_lanes(lanes: Sequence[int]) -> str:
    """Name the first few lanes."""
    lane = "lanes" if len(lanes) > 1 else "lane"
    numbers = map(str, lanes[:8])
    return f"{lane} {', '.join(numbers)}"
