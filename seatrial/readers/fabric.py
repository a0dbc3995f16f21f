"""Read what runs the NVLink fabric: the logs of fabric manager and IMEX, and `nvidia-imex-ctl -N`.

Pure.

The logs have one layout; their errors of switches carry the numbers of SXids (NVIDIA's Fabric
Manager User Guide).
"""

import re
from collections.abc import Sequence

from seatrial.causes.xid import meaning_of
from seatrial.readers.documents import Document
from seatrial.readers.report import Lines, Report, Results, failed, passed
from seatrial.text.lazy_pattern import lazy

_SWITCH = "tool-nvswitch"
_FABRIC = "tool-fabric-manager"
_IMEX = "tool-imex"
_NO_SWITCH = "tool-no-nvswitch"
LOG_BEGINS = lazy(
    r"\[\w{3} {1,2}\d{1,2} \d{4} [\d:]{8}\] \[(?:ERROR|WARNING|INFO|CRITICAL|FATAL)\s{0,3}\] "
    r"\[tid \d{1,9}\]"
    r"|.{0,80}\b(?:nv-fabricmanager|nvidia-fabricmanager-start\.sh|nvidia-imex)\[\d{1,9}\]: "
)
_LINE = lazy(
    r"(?:\[(?P<level>[A-Z]{4,8})\s{0,3}\] \[tid \d{1,9}\]"
    r"|(?P<daemon>nv-fabricmanager|nvidia-fabricmanager-start\.sh|nvidia-imex)\[\d{1,9}\]:) "
    r"(?P<text>.{1,400})"
)
_ERROR = lazy(
    r"(?P<kind>fatal|non-fatal) error (?P<number>\d{1,6})(?:.{0,80}?pci bus id "
    "(?P<pci>[0-9A-Fa-f:.]{7,16}))?"
    r"(?:.{0,60}?port (?P<port>\d{1,3}))?"
)
_BAD = lazy(
    r"\b(?:fail(?:ed|ure)?|error|not (?:ready|match)|don't match|lost|unreachable|abort\w*)\b",
    re.IGNORECASE,
)
_OF_IMEX = lazy(
    r"imex|\bpeer\b|\bnode (?:id )?\d|domain|grpc|\bnode config|network interface", re.IGNORECASE
)
CTL_BEGINS = lazy(r"Connectivity Table Legend:|\s{0,40}Node #\d{1,5}\s+- ")
CTL_LINE = lazy(
    r"\A(?:[INRDC*] - \w|\d{1,2}/\d{1,2}/\d{4} [\d:.]{5,16}|Nodes:|\s*Node #\d{1,5}\s+- |\s*Nodes "
    r"From\\To"
    r"|\s+\d{1,5}(?:\s+[INRDC*])+\s*\Z|Domain State: )"
)
_NODE = lazy(r"\s{0,40}Node #\d{1,5}\s+- (\S{1,253})\s+- ([A-Z_]{2,30})")
_STATE = lazy(r"Domain State: (\w{2,20})")


def read_log(lines: Lines) -> Report:
    """Read the log of fabric manager or IMEX: errors of switches first, which the others follow
    from.
    """
    results = []
    notes = []
    is_imex = False
    for line in lines:
        match = _LINE.search(line)
        if match is None:
            continue
        text = match["text"].strip()
        is_of_imex = (
            bool(_OF_IMEX.search(text))
            if match["daemon"] is None
            else match["daemon"] == "nvidia-imex"
        )
        is_imex = is_imex or is_of_imex
        error = _ERROR.search(text)
        if error:
            where = f" at {error['pci']}" if error["pci"] else ""
            where += f" port {error['port']}" if error["port"] else ""
            meaning, _ = meaning_of("SXid", int(error["number"]), "")
            words = f"{error['kind']} error {error['number']} ({meaning}) of NVSwitch{where}"
            if error["kind"] == "fatal":
                results.append(failed(_SWITCH, words))
            else:
                notes.append(words)
        elif match["level"] in ("ERROR", "CRITICAL", "FATAL") or (
            match["level"] is None and _BAD.search(text)
        ):
            code = (
                _NO_SWITCH if "NV_WARN_NOTHING_TO_DO" in text else _IMEX if is_of_imex else _FABRIC
            )
            results.append(failed(code, text))
    results.sort(key=lambda result: result.code != _SWITCH)
    if not results:
        results.append(passed("log"))
    return Report("IMEX" if is_imex else "fabric manager", results, notes=notes)


def read_imex_ctl(lines: Lines) -> Report:
    """Read the state of each node, and of the domain."""
    nodes = [(match[1], match[2]) for match in filter(None, map(_NODE.match, lines))]
    state = next((match[1] for line in lines if (match := _STATE.match(line))), "")
    return Report("nvidia-imex-ctl", tuple(_of_domain(nodes, state)))


def read_document(document: Document) -> Report | None:
    """Return the report of `nvidia-imex-ctl -N -j`; None for another document."""
    nodes = document.get("nodes")
    status = document.get("status")
    if not isinstance(nodes, dict) or not isinstance(status, str):
        return None
    members = [node for node in nodes.values() if isinstance(node, dict) and "connections" in node]
    if not members:
        return None
    states = [
        (str(node.get("host") or node.get("hostName")), str(node.get("status")))
        for node in members[:4096]
    ]
    return Report("nvidia-imex-ctl", tuple(_of_domain(states, status)))


def _of_domain(nodes: Sequence[tuple[str, str]], state: str) -> Results:
    """Yield the nodes of an IMEX domain, and the domain itself if it alone is not up."""
    for host, status in nodes:
        if status == "READY":
            yield passed(host)
        else:
            yield failed(_IMEX, f"IMEX on {host} is {status}: no NVLink between nodes there")
    if state not in ("UP", "") and all(status == "READY" for _, status in nodes):
        yield failed(_IMEX, f"the domain is {state}, though each node is ready")
