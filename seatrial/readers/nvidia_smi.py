"""Read `nvidia-smi`: its table, `-q` as text and XML, `nvlink -s` and `nvlink -e`. Pure.

Reference: docs.nvidia.com/deploy/nvidia-smi. `ERR!` and `GPU requires reset` stand in place of
values.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from seatrial.readers.report import Lines, Report, Results, degraded, failed, passed
from seatrial.text.lazy_pattern import lazy
from seatrial.text.words import some_of

RESET = "tool-gpu-reset"
MEMORY = "tool-gpu-memory"
SLOWED = "tool-gpu-slowed"
FABRIC = "tool-gpu-fabric"
LOST = "tool-gpu-unreadable"
PCIE = "tool-gpu-pcie"
NVLINK = "tool-gpu-nvlink"
_TOOL = "nvidia-smi"
# `GPU 00000000:19:00.0`
_GPU = lazy(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f:.]{5,8})\s*$")
QUERY_LINE = lazy(
    r"\A(?:GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f:.]{5,8}\s*\Z|(?:Timestamp|Driver Version|CUDA "
    "Version|Attached GPUs) +:"
    r"|(?:    ){1,6}[A-Z][\w /().%,-]{0,60}+(?: : .*)?\Z|\s*+[A-Z][\w /().%,-]{0,60} : )"
)
_LANES = lazy(r"(\d{1,3})x")
_YES = ("yes", "active", "true")
_NONE = ("none", "n/a", "[n/a]", "")
# The end of a field's path, the values that are bad (None: a count above 0), and what they mean
_FAULTS = (
    (
        ("remapped rows", "remapping failure occurred"),
        _YES,
        failed,
        MEMORY,
        "rows could not be remapped",
    ),
    (
        ("remapped rows", "pending"),
        _YES,
        degraded,
        RESET,
        "a remapped row waits for a reset",
    ),
    (
        ("retired pages", "pending page blacklist"),
        _YES,
        degraded,
        RESET,
        "a page waits for its retirement",
    ),
    (
        ("clocks event reasons", "hw slowdown"),
        _YES,
        degraded,
        SLOWED,
        "slowed down by hardware",
    ),
    (("hw slowdown", "hw thermal slowdown"), _YES, degraded, SLOWED, "slowed down by heat"),
    (
        ("hw slowdown", "hw power brake slowdown"),
        _YES,
        degraded,
        SLOWED,
        "slowed down by the power brake",
    ),
    (
        ("volatile", "dram uncorrectable"),
        None,
        degraded,
        MEMORY,
        "uncorrectable memory errors",
    ),
    (
        ("volatile", "sram uncorrectable"),
        None,
        degraded,
        MEMORY,
        "uncorrectable SRAM errors",
    ),
    (
        ("volatile", "sram uncorrectable parity"),
        None,
        degraded,
        MEMORY,
        "uncorrectable SRAM errors",
    ),
    (
        ("volatile", "sram uncorrectable sec-ded"),
        None,
        degraded,
        MEMORY,
        "uncorrectable SRAM errors",
    ),
    (
        ("aggregate", "sram threshold exceeded"),
        _YES,
        failed,
        MEMORY,
        "SRAM errors beyond the threshold",
    ),
    (
        ("fabric", "state"),
        ("in progress", "not started"),
        failed,
        FABRIC,
        "not registered with its fabric",
    ),
)
# Of NVLink fabrics of several nodes: the last part of a field's path, and the value that is bad
_HEALTHS = (
    ("bandwidth", "degraded"),
    ("route recovery in progress", "true"),
    ("route unhealthy", "true"),
    ("access timeout recovery", "true"),
)
Fields = dict[tuple[str, ...], str]
Gpu = tuple[str, Fields]  # the name of a GPU, and its fields
LinkRates = dict[str, dict[str, str]]  # as printed, by GPU and link
# `<remapped_row_pending>No</remapped_row_pending>`
_TAG = lazy(r"<(?P<end>/)?(?P<name>\w{1,60})(?P<rest>[^<>]{0,200})>(?P<text>[^<]{0,400})")
_XML_NAMES = {  # the names that the XML has in place of those of the text
    "remapped row failure": "remapping failure occurred",
    "remapped row pending": "pending",
    "sram uncorrectable secded": "sram uncorrectable sec-ded",
    "clocks throttle reasons": "clocks event reasons",
    "clocks event reason hw slowdown": "hw slowdown",
    "clocks throttle reason hw slowdown": "hw slowdown",
    "current link width": "current",
    "max link width": "max",
    "link widths": "link width",
    "pending retirement": "pending page blacklist",
    "pending blacklist": "pending page blacklist",
}
# `clocks event reason hw thermal slowdown`
_HW_SLOWDOWNS = lazy(r"clocks (?:event|throttle) reason (hw (?:thermal|power brake) slowdown)")
# `|   0  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off |                    0 |`
_SMI_GPU = lazy(
    r"\|\s+(\d{1,3})\s.{0,60}\|\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]{5,8})\s+\S+\s*\|\s*(\S+)\s*\|"
)
# Pasted output may lack its header
TABLE_BEGINS = lazy(rf"\s{{0,40}}\| NVIDIA-SMI \d|{_SMI_GPU.pattern}")
_SMI_STATE = lazy(r"ERR!|Unknown Error|GPU is lost|requires reset", re.IGNORECASE)
_ERROR_COUNT = lazy(r"[1-9]\d{0,9}$")
GPU_NAME = lazy(r"GPU (\d{1,3}): ")
# `Link 0: 26.562 GB/s`
_LINK_RATE = lazy(
    r"\s{1,40}Link (\d{1,3}): (?:(\d[\d.]*) GB/s|<?(inactive|disabled|off)>?)", re.IGNORECASE
)
# `Link 0: Replay Errors: 0`
_LINK_ERRORS = lazy(r"([A-Z][A-Za-z ]{1,40}) Errors: (\d{1,20})")
# `NVML: Unable to retrieve NVLink information as all links are inActive`
_NO_LINK_UP = lazy(r"\s{0,40}(?:NVML: )?Unable to retrieve NVLink .{1,40} inactive", re.IGNORECASE)
NVLINK_LINE = lazy(
    rf"\A(?:GPU \d{{1,3}}: (?!OK|FAULTY)|\s+Link \d{{1,3}}: |(?i:{_NO_LINK_UP.pattern}))"
)


def read_query(lines: Lines) -> Report:
    """Read the faults that each GPU reports in `nvidia-smi -q`, or that it has none.

    What stands before the first GPU is of the node, and is not looked at.
    """
    return _report(_gpus(lines))


def _report(gpus: Sequence[Gpu]) -> Report:
    """Return the faults of each GPU, which is named in their words; a pass for one without any."""
    results = []
    for gpu, fields in gpus:
        faults = list(_faults(fields))
        results += [replace(fault, words=f"GPU {gpu}: {fault.words}") for fault in faults]
        if not faults:
            results.append(passed(gpu))
    return Report(_TOOL, results)


def _gpus(lines: Lines) -> list[Gpu]:
    """Return the fields of each GPU by the headings that they stand under, in small letters.

    The last name of a path is the field's own. Four spaces more lead from a heading to what stands
    under it.
    """
    gpus = []
    fields: Fields = {}  # before the first GPU, of the node
    above: list[str] = []
    for line in lines:
        match = _GPU.match(line)
        if match:
            fields = {}
            above = []
            gpus.append((match[1], fields))
            continue
        label, _, value = line.partition(" : ")
        indent = len(label) - len(label.lstrip())
        depth = indent // 4
        above = above[: max(depth - 1, 0)]
        above.append(label.strip().lower())
        if value:
            fields[tuple(above)] = value.strip()
    return gpus


def _faults(fields: Fields) -> Results:
    """Yield what a GPU reports as broken or slowed down, also where in place of values it says that
    they cannot be read.
    """
    values = [value.lower() for value in fields.values()]
    if any("requires reset" in value for value in values):
        yield failed(RESET, "it requires a reset")
    lost = sum("err!" in value or "unknown error" in value for value in values)
    if lost:
        yield failed(LOST, f"{lost} fields cannot be read (ERR!)")
    widths = {}
    for path, value in fields.items():
        yield from _fault(path, value)
        if path[-2:-1] == ("link width",):
            widths[path[-1]] = value
    current = _LANES.fullmatch(widths.get("current", ""))
    widest = _LANES.fullmatch(widths.get("max", ""))
    if current and widest and int(current[1]) < int(widest[1]):
        yield degraded(PCIE, f"PCIe x{current[1]} of x{widest[1]}")


def _fault(path: tuple[str, ...], printed: str) -> Results:
    """Yield what is bad of one field; its path is in small letters, its value as printed."""
    value = printed.lower()
    name = path[-1]
    end = path[-2:]
    if name == "gpu recovery action" and value not in _NONE:
        yield failed(RESET, f"the driver asks for: {printed}")
    if end == ("fabric", "status") and value not in ("success", *_NONE):
        yield failed(FABRIC, f"fabric status: {value}")
    if "fabric" in path and end[:-1] == ("health",) and (name, value) in _HEALTHS:
        yield degraded(FABRIC, f"fabric health: {name}: {value}")
    if end == ("health", "incorrect configuration") and value not in ("false", "no", *_NONE):
        yield degraded(FABRIC, f"fabric health: incorrect configuration: {value}")
    is_unhealthy = name in ("health", "summary") and value in ("unhealthy", "limited capacity")
    if "fabric" in path and is_unhealthy:
        yield degraded(FABRIC, f"fabric health: {value}")
    for bad_end, bad, result, code, fault in _FAULTS:
        if end != bad_end:
            continue
        if bad is not None:
            if value in bad:
                yield result(code, fault)
            continue
        is_count = re.fullmatch(r"\d{1,12}", value)  # and no `N/A`
        if is_count and int(value):
            yield result(code, f"{fault} ({int(value)})")


def read_xml(lines: Lines) -> Report | None:
    """Read `nvidia-smi -q -x`, also where it was cut short; no entity of XML is expanded."""
    text = "\n".join(lines)
    if "<nvidia_smi_log" not in text:
        return None
    return _report(_xml_gpus(text))


def _xml_gpus(text: str) -> list[Gpu]:
    """Return the fields of each GPU under the paths that the text form has.

    Tags before the first GPU are of the node. No path is longer than nine names, whatever the file
    holds.
    """
    gpus = []
    fields: Fields = {}
    above: list[str] = []
    for tag in _TAG.finditer(text):
        name = tag["name"].replace("_", " ")
        name = _XML_NAMES.get(name, name)
        if name == "gpu" and not tag["end"]:
            gpu = "?"
            if identity := re.search(r'id="([0-9A-Fa-f:.]{7,20})"', tag["rest"]):
                gpu = identity[1]
            fields = {}
            above = []
            gpus.append((gpu, fields))
        elif tag["end"]:
            if above and above[-1] == name:
                above = above[:-1]
        elif not tag["rest"].endswith("/"):
            above = [*above[-8:], name]
            _keep(fields, above, tag["text"].strip())
    return gpus


def _keep(fields: Fields, above: list[str], value: str) -> None:
    """Keep a field under the path that the text form has, which goes deeper for the reasons of a
    slowdown; tags without a text are no fields.
    """
    if not value:
        return
    path = tuple(above)
    match = _HW_SLOWDOWNS.match(path[-1])
    if match:
        path = ("clocks event reasons", "hw slowdown", match[1])
    fields[path] = value


def read_table(lines: Lines) -> Report:
    """Read the rows of the table without options: two or three of each GPU, the errors in the
    first's last cell.

    A GPU passes where the table shows nothing bad of it. Processes stand below, and are not read.
    """
    results = []
    lost: dict[str, int] = {}
    seen = []
    gpu = ""
    for line in lines:
        match = _SMI_GPU.match(line)
        if match:
            gpu = f"GPU {match[1]} ({match[2]})"
            seen.append(gpu)
            if _ERROR_COUNT.match(match[3]):
                results.append(degraded(MEMORY, f"{gpu}: {match[3]} uncorrectable memory errors"))
        if "Processes:" in line:
            break
        unreadable = _SMI_STATE.findall(line)
        if gpu and unreadable:
            lost[gpu] = lost.get(gpu, 0) + len(unreadable)
    results += [
        failed(LOST, f"{gpu}: {count} fields cannot be read (ERR!)") for gpu, count in lost.items()
    ]
    bad = {result.words.partition(": ")[0] for result in results}
    results += [passed(gpu) for gpu in seen if gpu not in bad]
    return Report(_TOOL, results)


def read_nvlink(lines: Lines) -> Report | None:
    """Read rates and states of `nvlink -s`, and counters of `nvlink -e`, of each GPU's links.

    None where no line has either.
    """
    gpu = "?"
    has_counters = False
    rates: LinkRates = {}
    counts: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        if match := GPU_NAME.match(line):
            gpu = match[1]
        elif match := _LINK_RATE.match(line):
            rates.setdefault(gpu, {})[match[1]] = match[2] or match[3].lower()
        elif _NO_LINK_UP.match(line):
            rates[gpu] = {}
        elif line.lstrip().startswith("Link ") and "Errors" in line:
            has_counters = True
            named, _, _ = line.partition(":")
            link = named.split()[-1]
            for name, count in _LINK_ERRORS.findall(line):
                if int(count):
                    counts.setdefault((gpu, link), []).append(f"{count} {name.strip()}")
    if not has_counters and not rates:
        return None
    results = list(_states(rates))
    results += [
        degraded(NVLINK, f"GPU {gpu} link {link}: {', '.join(errors)} errors")
        for (gpu, link), errors in counts.items()
    ]
    if not results:
        results.append(passed("NVLink"))
    return Report("nvidia-smi nvlink", results)


def _states(rates: LinkRates) -> Results:
    """Yield GPUs that have lost some of their links, or have fewer or slower ones than the
    others.

    Where no GPU has a link up, NVLink is not in use, and nothing is wrong.
    """
    up: dict[str, dict[str, float]] = {}  # GB/s by link
    best = 0.0
    for gpu, links in rates.items():
        up[gpu] = {link: float(rate) for link, rate in links.items() if rate[0].isdigit()}
        best = max([best, *up[gpu].values()])
    most = max(map(len, up.values()), default=0)
    for gpu, links in rates.items():
        words = f"GPU {gpu}: "
        count = len(up[gpu])
        down = [link for link in links if link not in up[gpu]]
        if down and most:
            lost = f"{_links(down)} inactive, {count} up"
            yield failed(NVLINK, words + lost)
        elif count < most:
            fewer = f"{count} links, where others have {most}"
            yield failed(NVLINK, words + fewer)
        slow = [link for link, rate in up[gpu].items() if rate < 0.9 * best]
        if slow:
            slower = f"{_links(slow)} at {links[slow[0]]} of {best:g} GB/s"
            yield degraded(NVLINK, words + slower)


def _links(links: Sequence[str]) -> str:
    """Name the first few links."""
    noun = "link"
    if len(links) > 1:
        noun = "links"
    return f"{noun} {some_of(links, 8)}"
