"""Read iblinkinfo: the links of an InfiniBand fabric, each as both of its ends see it. Pure."""

import re

from seatrial.readers.ibstat import NO_SUBNET, PORT_DOWN, PORT_SLOW
from seatrial.readers.report import Lines, Report, Result, degraded, failed, passed
from seatrial.text.lazy_pattern import lazy
from seatrial.text.words import count

_NODE = lazy(r"(?:CA|Switch|RT): (?:0x[0-9a-f]{1,16} )?(\S.{0,120}?)\s{0,8}:\s*$")
_LINK = lazy(
    r"\s{0,40}(?:0x[0-9a-f]{1,16}\s{1,40})?(?:\"\s{0,60}(?P<near>[^\"]{1,120})\"\s{1,40})?\d{1,6}\s{1,40}"
    r"(?P<port>\d{1,3})\[.{0,8}\]\s{0,8}==\(\s{0,40}"
    r"(?P<rate>\d{1,2}X\s{1,40}[\d.]{1,10} Gbps(?: \(\w{1,12}\))?)?\s{0,8}"
    r"(?P<state>\w{1,20})/\s{0,8}(?P<physical>\w{1,24})\)==>(?:.{0,60}?(?P<far_port>\d{1,3})\[.{0,8}\]\s{0,8}"
    r"\"(?P<far>[^\"]{1,120})\" \(\s{0,8}(?:Could be (?P<could_be>[^)]{1,120}?))?\s{0,8}\))?"
)
BEGINS = lazy(rf"{_NODE.pattern}|{_LINK.pattern}")


def read_links(lines: Lines) -> Report | None:
    """Return the state of each link; how many ports have none is a note, because those of a switch
    may be free.
    """
    node = ""
    without_link = 0
    results: dict[frozenset[str], Result] = {}
    for line in lines:
        if match := _NODE.match(line):
            node = match[1]
        elif (match := _LINK.match(line)) and match["far"]:
            ends = (
                f"{match['near'] or node} port {match['port']}",
                f"{match['far']} port {match['far_port']}",
            )
            results.setdefault(frozenset(ends), _of_link(match, " to ".join(ends)))
        elif match:
            without_link += 1
    if not results and not without_link:
        return None
    notes = (f"{count(without_link, 'port')} without a link",) if without_link else ()
    return Report("InfiniBand links", tuple(results.values()), notes=notes)


def _of_link(link: re.Match[str], name: str) -> Result:
    """Return the result of a link: its state, then whether it could be faster."""
    if link["physical"] != "LinkUp":
        return failed(PORT_DOWN, f"{name} has no link ({link['state']}, {link['physical']})")
    if link["state"] != "Active":
        return failed(NO_SUBNET, f"{name} is {link['state']}: no subnet manager has configured it")
    if link["could_be"]:
        rate = " ".join(str(link["rate"]).split())
        return degraded(PORT_SLOW, f"{name} runs at {rate} and could be {link['could_be']}")
    return passed(name)
