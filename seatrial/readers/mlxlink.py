"""Read mlxlink: state, recommendation, module and error rate of a port. Pure."""

import re
from collections.abc import Iterator, Sequence

from seatrial.model.verdict import Verdict
from seatrial.readers.ibstat import PORT_DOWN
from seatrial.readers.port_errors import PORT_ERRORS
from seatrial.readers.report import SAYS_BAD, Report, Result
from seatrial.text.lazy_pattern import lazy

_MODULE = "tool-port-module"
_MLXLINK = lazy(r"(?:.{0,40}?\$ |# )?\s{0,8}(?:sudo )?mlxlink .{0,40}?-d ?(\S{1,80})")
MLXLINK_BEGINS = lazy(rf"Operational Info\s*$|{_MLXLINK.pattern}")
MLXLINK_LINE = lazy(
    r"\A(?:[A-Z][\w ()/.,\[\]+-]{0,60}?\s+: .{0,200}|-{4,40}\s*\Z"
    r"|(?:Operational|Supported|Troubleshooting|Module|Tool|Physical|FEC)\b[\w ]{0,60}\Z)"
)
_FIELD = lazy(r"([A-Z][\w ()/.,+-]{0,60}?(?: ?\[[^\]]{1,20}\])?)\s+: ?(.{0,200})$")
_RANGE = lazy(r"\[(-?\d{1,6}(?:\.\d{1,4})?)\.\.(-?\d{1,6}(?:\.\d{1,4})?)\]")
_LANES = {"Rx LOS": "receives no light (Rx LOS)", "Tx LOS": "gets no signal from the host (Tx LOS)"}
_LANES |= {
    "Tx Fault": "reports a fault of the transmitter (Tx Fault)",
    "Rx CDR LOL": "lost its clock (Rx CDR LOL)",
}
_FEW_DOWNS = 2  # when the node, and when the switch started
_MOST_BER = 1e-12  # after error correction; IBTA asks for 1e-15 and better


def read_mlxlink(lines: Sequence[str]) -> Report:
    """Read state, recommendation, lanes of the module, and the error rate after correction."""
    command = next(filter(None, map(_MLXLINK.match, lines)), None)
    fields: dict[str, str] = {}
    for line in lines:
        if match := _FIELD.match(line):
            fields.setdefault(match[1].strip(), match[2].strip())
    device = command[1] if command else "the port"
    results = [
        Result(verdict=verdict, code=code, words=f"{device}: {problem}")
        for verdict, code, problem in _of_link(fields)
    ]
    if not results and "State" in fields:
        results.append(Result(Verdict.PASS, SAYS_BAD, device))
    return Report("mlxlink", tuple(results))


def _of_link(fields: dict[str, str]) -> Iterator[tuple[Verdict, str, str]]:
    state = fields.get("State", "Active")
    is_up = state.lower().startswith(("active", "n/a"))
    advice = fields.get("Recommendation", "")
    advised = f": {advice}" if advice and "no issue" not in advice.lower() else ""
    if not is_up:
        yield (
            Verdict.FAIL,
            PORT_DOWN,
            f"state {state}, physical state {fields.get('Physical state', '?')}{advised}",
        )
    elif advised and fields.get("Status Opcode", "0") not in ("0", "N/A"):
        yield Verdict.DEGRADED, _MODULE, f"status {fields['Status Opcode']}{advised}"
    verdict = Verdict.DEGRADED if is_up else Verdict.FAIL
    dark = _bad_lanes(fields, "Rx LOS")
    for name, problem in _LANES.items():
        if lanes := _bad_lanes(fields, name):
            yield verdict, _MODULE, f"{_named_lanes(lanes)} {problem}"
    if low := [
        lane for lane in _outside(fields.get("Rx Power Current [dBm]", "")) if lane not in dark
    ]:
        yield verdict, _MODULE, f"{_named_lanes(low)}: received power outside its range"
    if _outside(fields.get("Temperature [C]", "")):
        yield Verdict.DEGRADED, _MODULE, f"the module's temperature is {fields['Temperature [C]']}"
    downs = fields.get("Link Down Counter", "")
    if is_up and downs.isdigit() and int(downs[:9]) > _FEW_DOWNS:
        since = fields.get("Time Since Last Clear [Min]", "")
        yield (
            Verdict.DEGRADED,
            PORT_ERRORS,
            f"the link went down {downs} times{f' in {since} minutes' if since else ''}",
        )
    rate = fields.get("Effective Physical BER", "")
    if re.fullmatch(r"\d{1,3}(?:\.\d{1,4})?E-\d{1,3}", rate) and float(rate) > _MOST_BER:
        yield Verdict.DEGRADED, PORT_ERRORS, f"bit error rate after correction {rate}"


def _bad_lanes(fields: dict[str, str], name: str) -> list[int]:
    flags = fields.get(f"{name} [per lane]", "").split(",")
    return [lane for lane, flag in enumerate(flags, start=1) if flag.strip() == "1"]


def _outside(field: str) -> list[int]:
    """Return the lanes whose value is outside the range beside them; none for a module that has no
    range.
    """
    bounds = _RANGE.search(field)
    if bounds is None or float(bounds[1]) >= float(bounds[2]):
        return []
    values = re.findall(r"-?\d{1,6}(?:\.\d{1,4})?", field[: bounds.start()])
    low = float(bounds[1])
    high = float(bounds[2])
    return [
        lane for lane, value in enumerate(map(float, values), start=1) if not low <= value <= high
    ]


def _named_lanes(lanes: Sequence[int]) -> str:
    return f"lane{'s' if len(lanes) > 1 else ''} {', '.join(map(str, lanes[:8]))}"
