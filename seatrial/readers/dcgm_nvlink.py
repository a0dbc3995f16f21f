"""Read `dcgmi nvlink --link-status`: the links of each GPU and NVSwitch, a letter each. Pure."""

from seatrial.readers.nvidia_smi import NVLINK
from seatrial.readers.report import Lines, Report, Result, failed, passed
from seatrial.text.lazy_pattern import lazy

BEGINS = lazy(r"\s{0,40}\|\s{1,20}NvLink Link Status\s{1,20}\|")
# `    gpuId 0:`
_DEVICE = lazy(r"\s{1,20}(gpuId|physicalId|switchId) (\d{1,4}):\s*$")
# `        U U D U U U U U U D U U`
_LINKS = lazy(r"\s{1,20}((?:[UDX_] ){0,160}[UDX_])\s*$")
LINE = lazy(
    rf"\A(?:{_DEVICE.pattern}|{_LINKS.pattern}|\s{{0,40}}\+-|GPUs:|NvSwitches:|\s{{1,20}}No "
    "(?:NvSwitches|GPUs) found"
    r"|Key: )"
)


def read_links(lines: Lines) -> Report:
    """Name each device with links that are down, or with none that is up."""
    links: dict[str, str] = {}
    device = ""
    for line in lines:
        if match := _DEVICE.match(line):
            kind = "GPU" if match[1] == "gpuId" else "NVSwitch"
            device = f"{kind} {match[2]}"
        elif device and (match := _LINKS.match(line)):
            states = match[1].replace(" ", "")
            links[device] = links.get(device, "") + states
    results = []
    for name, states in links.items():
        if states.strip("_"):
            results.append(_of_device(name, states))
    return Report("dcgmi nvlink", results)


def _of_device(name: str, states: str) -> Result:
    """Return the result of a device: `U` is a link that is up, `D` one that is down."""
    down = []
    for link, state in enumerate(states):
        if state == "D":
            down.append(str(link))
    if not down:
        return passed(name)
    which = f"all {len(down)} links are down"
    if "U" in states:
        which = f"links {', '.join(down)} are down"
    return failed(NVLINK, f"{name}: {which}")
