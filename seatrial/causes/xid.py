"""Xids and SXids in the kernel's log: what each number means, on which GPU, and which follow from
others. Pure.

Source: NVIDIA's catalog of Xids (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html).
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from seatrial.causes.table import XIDS, Cause, Finding
from seatrial.text.lazy_pattern import lazy
from seatrial.text.words import some_of

_XID = lazy(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{1,40}+)[^)]{0,80}\): (?P<number>\d+)(?P<rest>.*)"
)
_SXID = lazy(
    r"nvidia-nvswitch\d{1,9}+: SXid \((?:PCI:)?(?P<pci>[^)]{1,80})\): (?P<number>\d+)(?P<rest>.*)"
)
_OF_PLUGIN = lazy(
    r"\A.{0,80}?XidCriticalError: Xid=(?P<number>\d+) on "
    r"+Device=(?:GPU-)?(?P<pci>[\w-]{1,60})(?P<rest>)"
)
_LOGGED_BY = lazy(r"(?<![\w.-])([\w.-]{1,253}+) kernel: ")
_CAUSED_BY = lazy(r"caused by previous Xid (\d{1,5})")
_SURVIVED = lazy(r"\bnon-?fatal\b|changed from .{1,60}? to 0x0+ \(None\)", re.IGNORECASE)
_ACTION = lazy(r"changed from .{1,60}? to 0x\w+ \(([^)]{1,40})\)")
_SUBCODE = lazy(r", +([A-Z][A-Z0-9_]{2,40}) +\w{1,12} +XC\d{1,3} +i\d{1,3} +(Link +\d{1,3})")
_OWN_CODES = frozenset(row.code for row in XIDS if row.who == "setup")
OF_APPLICATIONS = frozenset(int(row.pattern) for row in XIDS if row.who == "setup")


def xid_finding(text: str) -> Finding | None:
    """Return the Xid or SXid that a line of the kernel's log reports; or the earlier Xid that
    caused it.

    The device plugins of Kubernetes name the GPU by its UUID.
    """
    of_gpu = _XID.search(text) or _OF_PLUGIN.match(text)
    match = of_gpu or _SXID.search(text)
    if match is None:
        return None
    pci = match["pci"]
    kind = "SXid"
    where = f"at {pci}"
    if of_gpu:
        kind = "Xid"
        where = f"on GPU {pci}"
    number = int(match["number"][:9])
    rest = match["rest"]
    before = _CAUSED_BY.search(rest)
    first = number
    consequence = ""
    if before:
        first = int(before[1])
        consequence = f", which ended channels: Xid {number}"
    known = _listed(kind, first)
    meaning = f"{known.cause}{_details(rest)}{consequence}"
    logged_by = _LOGGED_BY.search(text, 0, match.start())
    host = logged_by[1] if logged_by else None
    return replace(
        known.found(text, host, None),
        cause=f"{kind} {first} ({meaning}) {where}",
        program="driver",
        severity="note" if _SURVIVED.search(rest) else known.severity,
    )


def with_other_gpus(finding: Finding, findings: Iterable[Finding]) -> Finding:
    """Name the other GPUs of the host that have the same Xid: several at once have one cause."""
    if not finding.cause.startswith("Xid "):
        return finding
    gpus = [
        _gpu(each) for each in findings if (each.code, each.host) == (finding.code, finding.host)
    ]
    others = [gpu for gpu in dict.fromkeys(gpus) if not finding.cause.endswith(gpu)]
    if not others:
        return finding
    return replace(finding, cause=f"{finding.cause}, also on {some_of(others, 7)}")


def hardware_first(findings: Iterable[Finding]) -> list[Finding]:
    """Move an Xid of the hardware before the ones that a program causes on other GPUs; on one GPU
    the first counts.
    """
    ordered = list(findings)
    broken = []
    gpus = set()
    for at, each in enumerate(ordered):
        if each.cause.startswith("Xid ") and each.fatal and each.who == "node":
            broken.append(at)
            gpus.add(_gpu(each))
    own = [
        at for at, each in enumerate(ordered) if each.code in _OWN_CODES and _gpu(each) not in gpus
    ]
    if broken and own and own[0] < broken[0]:
        hardware = ordered.pop(broken[0])
        ordered.insert(own[0], hardware)
    return ordered


def _gpu(finding: Finding) -> str:
    return finding.cause.rpartition(" on GPU ")[2]


@cache
def _listed(kind: str, number: int) -> Cause:
    """Return the table's line of an Xid or SXid; numbers without one share the last line of their
    kind.
    """
    rows = [row for row in XIDS if row.program == kind.lower()]
    return next(row for row in rows if re.fullmatch(row.pattern, str(number)))


def _details(rest: str) -> str:
    """Return what follows the number of an Xid: the action of 154, unit and link of 144 to 150."""
    match = _ACTION.search(rest) or _SUBCODE.match(rest)
    if match is None:
        return ""
    details = ", ".join(match.groups())
    return f": {details}"


def meaning_of(kind: str, number: int, text: str) -> tuple[str, str]:
    """Return the meaning of an Xid or an SXid that the kernel's log reports in `text`, and the next
    step.
    """
    row = _listed(kind, number)
    meaning = row.cause
    if match := _XID.search(text):
        meaning += _details(match["rest"])
    return meaning, row.next_step
