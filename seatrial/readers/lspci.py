"""Read `lspci -vv`: the lanes of GPUs, NICs and disks. Pure.

An idle GPU lowers the speed of its link, so only the width counts.
"""

from seatrial.model.verdict import Verdict
from seatrial.readers.report import Lines, Report, Result
from seatrial.text.lazy_pattern import lazy

LANES = "tool-pcie-lanes"
CLASSES = (
    "3D controller", "Display controller", "Ethernet controller", "Infiniband controller",
    "Non-Volatile memory controller", "Processing accelerators", "VGA compatible controller",
)  # fmt: skip
_ADDRESS = r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
BEGINS = lazy(rf"{_ADDRESS} (?:{'|'.join(CLASSES)})(?: \[[0-9a-f]{{4}}\])?: ")
LINE = lazy(rf"\A(?:\s|{_ADDRESS} [A-Z\d])")
_DEVICE = lazy(rf"({_ADDRESS}) ([A-Z\d][\w -]{{2,60}}?)(?: \[[0-9a-f]{{4}}\])?: (.{{0,80}})")
_WIDTH = lazy(r"\s{1,20}(LnkCap|LnkSta):.{0,200}?Width x(\d{1,2})\b")


def read_lspci(lines: Lines) -> Report | None:
    """Compare the width of each link with what the device can have; None without such a line."""
    results = []
    device = ""
    most = 0
    for line in lines:
        if match := _DEVICE.match(line):
            device = f"{match[1]} ({match[3].strip()})" if match[2] in CLASSES else ""
            most = 0
        elif device and (match := _WIDTH.match(line)):
            width = int(match[2])
            if match[1] == "LnkCap":
                most = width
            elif most:
                verdict = Verdict.PASS if width >= most else Verdict.DEGRADED
                results.append(Result(verdict, LANES, f"{device}: x{width} of x{most} lanes"))
    return Report("lspci", results) if results else None
