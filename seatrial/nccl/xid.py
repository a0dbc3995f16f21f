"""Xid and SXid lines of NVIDIA's driver: what the number means and what to do.

Source: NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html).
"""

import re

from seatrial.nccl.findings import Finding

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{1,40}+)[^)]{0,80}\): (?P<number>\d+)")
_SXID = re.compile(r"nvidia-nvswitch\d{1,9}+: SXid \((?:PCI:)?(?P<pci>[^)]{1,80})\): (?P<number>\d+)")
_LOGGED_BY = re.compile(r"(?<![\w.-])([\w.-]{1,253}+) kernel: ")
_APPLICATION = "the application's fault or a consequence: restart it, look for an earlier Xid"
_RESET = "drain the node and reset the GPU; if it comes back, have it replaced"
MEANING = {
    13: ("graphics engine exception", _APPLICATION),
    31: ("GPU memory page fault", _APPLICATION),
    43: ("GPU stopped processing", _APPLICATION),
    45: ("preemptive cleanup", _APPLICATION),
    48: ("double-bit ECC error", _RESET),
    63: ("row remapping recorded", "reset the GPU at the next chance"),
    64: ("row remapping failed", _RESET),
    74: ("NVLink error", "check the NVLink and its switch; reset the GPU"),
    79: ("GPU fell off the bus", "power-cycle the node; check seating, power and temperature"),
    92: ("high rate of single-bit ECC errors", "watch the GPU; replace it if the rate stays"),
    94: ("contained ECC error", "restart the application, reset the GPU at the next chance"),
    95: ("uncontained ECC error", _RESET),
    119: ("GSP timeout", _RESET),
    120: ("GSP error", _RESET),
    121: ("C2C link error", _RESET),
    140: ("unrecovered ECC error", _RESET),
    154: ("GPU recovery action changed", "do what the line names: GPU reset, node reboot or drain"),
}
OF_APPLICATIONS = frozenset({13, 31, 43, 45})
_NOT_FATAL = frozenset({63, 92, 154})


def xid_finding(text: str) -> Finding | None:
    """The Xid or SXid that a line of the kernel's log reports."""
    match = _XID.search(text) or _SXID.search(text)
    if match is None:
        return None
    number, kind = int(match["number"][:9]), "SXid" if match.re is _SXID else "Xid"
    meaning, step = meaning_of(kind, number)
    cause = f"{kind} {number} ({meaning}) on GPU {match['pci']}"
    fatal = match.re is _XID and number not in _NOT_FATAL
    host = _LOGGED_BY.search(text, 0, match.start())
    return Finding("gpu", cause, text.strip()[:300], host[1] if host else None, None, False, step, fatal)


def meaning_of(kind: str, number: int) -> tuple[str, str]:
    """What an Xid or an SXid means, and what to do."""
    if kind == "SXid":
        return "NVSwitch error", "check the NVSwitch and fabric manager's log"
    return MEANING.get(number, _unlisted(number))


def _unlisted(number: int) -> tuple[str, str]:
    if 144 <= number <= 150:
        return "NVLink 5 error", "check the NVLink, its switch and fabric manager's log; reset the GPU"
    return "see NVIDIA's catalog", "look the number up in NVIDIA's Xid catalog"
