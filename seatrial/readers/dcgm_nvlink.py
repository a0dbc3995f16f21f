"""Read `dcgmi nvlink --link-status`: the links of each GPU and NVSwitch, a letter each. Pure."""

from seatrial.readers.nvidia_smi import NVLINK
from seatrial.readers.report import Lines, Report, failed, passed
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
        # `U` is a link that is up, `D` one that is down
        down = [str(link) for link, state in enumerate(states) if state == "D"]
        which = f"links {', '.join(down)}" if "U" in states else f"all {len(down)} links"
        if down:
            results.append(failed(NVLINK, f"{name}: {which} are down"))
        elif states.strip("_"):
            results.append(passed(name))
    return Report("dcgmi nvlink", tuple(results))
