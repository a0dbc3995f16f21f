"""The state of AMD's GPUs, in the fields of inventory.py, by amd-smi or else by rocm-smi.

Standard library only.

Both print JSON, whose shape differs between releases: lists of GPUs, or {"gpu_data": [...]} since
ROCm 7; numbers as they are, as text with a unit, or as {"value", "unit"}; "N/A" for what is
unknown. Whatever has another shape than that is not known, and the rest counts. No AMD GPU was at
hand: the shapes are those of AMD's sources and reports.
"""

import glob
import json
import re
import time
from itertools import islice

from facts import first_line, text_of, which
from ports import numa_node

MAX_JSON = 1 << 23  # bytes: `amd-smi metric` prints 60 kB for each of up to 64 GPUs, in partitions
MAX_STARTS = 20  # most lines that may begin the JSON
PCI = "/sys/bus/pci/devices/"
ROCM = ":/opt/rocm/bin"  # packages leave it to the user to add it to PATH
ROCM_SMI = [
    "--showproductname",
    "--showbus",
    "--showvbios",
    "--showtemp",
    "--showpower",
    "--showmaxpower",
    "--showclocks",
    "--showmeminfo",
    "vram",
    "--json",
]
# Causes of a slowdown except the power cap (ppt), which is no fault. `throttle_status` does not
# distinguish them.
THROTTLES = {
    "prochot": "hardware slowdown",
    "socket_thermal": "thermal slowdown",
    "vr_thermal": "thermal slowdown",
    "hbm_thermal": "thermal slowdown",
}
NUMBER = re.compile(r"\(?([0-9]{1,15}(?:\.[0-9]{1,6})?)(?![0-9])")


def gpu_list(deadline):
    """Return the GPUs by PCI address; none where neither tool answers."""
    static = by_gpu("static", deadline)
    if not static:
        return numbered(rocm_gpu(card) for card in rocm_cards(deadline))
    metric = by_gpu("metric", deadline)
    processes = by_gpu("process", deadline)
    links = by_gpu("xgmi", deadline, "--link-status")
    nothing: "dict[str, object]" = {}
    return numbered(
        {
            **amd_gpu(properties, metric.get(gpu, nothing)),
            "processes": users(processes.get(gpu, nothing)),
            "nvlinks": xgmi_links(links.get(gpu, nothing)),
        }
        for gpu, properties in static.items()
    )


def numbered(gpus):
    """Name GPUs by the order of their addresses."""
    ordered = sorted(gpus, key=lambda gpu: gpu["pci"])
    for place, gpu in enumerate(ordered):
        gpu.update(name=f"gpu-{place}")
    return ordered


def by_gpu(command, deadline, *options):
    """Return amd-smi's answer for each GPU, by its number."""
    answer = answered(["amd-smi", command, *options, "--json"], deadline)
    if not isinstance(answer, list):
        answer = entries(answer, "gpu_data") or entries(answer, "xgmi_metric")
    return {entry["gpu"]: entry for entry in answer if isinstance(within(entry, "gpu"), int)}


def answered(command, deadline):
    """Return the first JSON document in a tool's output, after any warnings; None if there
    is none.
    """
    tool, *options = command
    command = [which(tool, ROCM) or tool, *options]
    output = text_of(command, max(0.1, deadline - time.monotonic()), most=MAX_JSON)
    for start in islice(re.finditer(r"^[\[{]", output or "", re.M), MAX_STARTS):
        try:
            return json.JSONDecoder().raw_decode(output, start.start())[0]
        except (ValueError, RecursionError):
            continue
    return None


def within(value, *path):
    """Return the value at this path of keys; None if a key is missing."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def entries(value, name):
    """Return the list at this key; empty for any other value."""
    found = within(value, name)
    return found if isinstance(found, list) else []


def first_number(value, *paths):
    """Return the number at the first path that has one."""
    numbers = (number(within(value, *path)) for path in paths)
    return next((each for each in numbers if each is not None), None)


def number(value):
    """Convert 16, "16", "750 W" or {"value": 750, "unit": "W"} to a number; None for "N/A"."""
    if isinstance(value, dict):
        value = value.get("value")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if 0 <= value < 1e15 else None
    match = NUMBER.match(value) if isinstance(value, str) else None
    return float(match[1]) if match else None


def text(value, *path):
    """Return the text at this path of keys; "" if it is a placeholder."""
    value = within(value, *path)
    is_text = (
        isinstance(value, str)
        and value.isprintable()
        and value.strip().upper() not in ("", "N/A", "NONE")
    )
    return value[:100] if is_text else ""


def amd_gpu(static, metric):
    """Return one GPU from amd-smi's output, with errors and NUMA node from the driver's files."""
    pci = text(static, "bus", "bdf").lower()
    vbios = within(static, "vbios") or within(static, "ifwi")
    ecc = umc_state(within(static, "ras", "ecc_block_state"))
    errors = first_number(metric, ("ecc", "total_uncorrectable_count"))
    clocks = within(metric, "clock")
    engines = clocks if isinstance(clocks, dict) else {}
    clock = next((engines[name] for name in engines if name.startswith("gfx")), None)
    generation = re.match(r"Gen (\d)$", text(static, "bus", "pcie_interface_version"))
    return {
        "pci": pci,
        "model": text(static, "asic", "market_name"),
        "vbios": " ".join(filter(None, (text(vbios, "part_number"), text(vbios, "version")))),
        "ecc": {"ENABLED": "Enabled", "DISABLED": "Disabled"}.get(ecc, ""),
        "ecc_uncorrected": ras_errors(pci) if errors is None else errors,
        "slowdown": slowdowns(within(metric, "throttle")),
        "clock_mhz": first_number(clock, ("clk",), ("cur_clk",)),
        "clock_max_mhz": first_number(clock, ("max_clk",)),
        "power_w": first_number(metric, ("power", "socket_power"), ("power", "current_power")),
        "power_limit_w": first_number(
            static,
            ("limit", "ppt0", "socket_power_limit"),
            ("limit", "socket_power"),
            ("limit", "current_power"),
        ),
        "temperature_c": first_number(metric, ("temperature", "hotspot"), ("temperature", "edge")),
        "memory_mib": first_number(static, ("vram", "size"))
        or first_number(metric, ("mem_usage", "total_vram")),
        "pcie_width": first_number(metric, ("pcie", "width"), ("pcie", "current_lanes")),
        "pcie_width_max": first_number(
            static, ("bus", "max_pcie_width"), ("bus", "max_pcie_lanes")
        ),
        "pcie_gen_max": float(generation.group(1)) if generation else None,
        "numa": numa_node(PCI + pci),
    }


def umc_state(blocks):
    """Return whether ECC of the memory is on, by {"UMC": "ENABLED"} or [{"block": "UMC", "status":
    "ENABLED"}].
    """
    if isinstance(blocks, list):
        blocks = {
            within(block, "block"): within(block, "status")
            for block in blocks
            if text(block, "block")
        }
    return text(blocks, "UMC")


def slowdowns(throttle):
    """Return the active causes of a slowdown; None if the GPU does not report them, as before
    MI300.
    """
    statuses = {name: text(throttle, name + "_violation_status") for name in THROTTLES}
    if not any(statuses.values()):
        return None
    return sorted({THROTTLES[name] for name, status in statuses.items() if status == "ACTIVE"})


def users(process):
    """Return the number of processes that hold memory of the GPU; the list also has those that only
    opened it.
    """
    infos = [within(entry, "process_info") for entry in entries(process, "process_list")]
    memories = [first_number(info, ("memory_usage", "vram_mem"), ("mem_usage",)) for info in infos]
    return sum(1 for memory in memories if memory)


def xgmi_links(link):
    """Return 1 for each XGMI link that is up, 0 for one that is down; its rate is left out.

    A virtual function shows all links as down if it does not know their state.
    """
    states = [state for state in entries(link, "link_status") if state in ("U", "D")]
    return [float(state == "U") for state in states] if "U" in states else []


def rocm_cards(deadline):
    """Return rocm-smi's answer for each GPU, with lower-case keys, as their spelling varies."""
    answer = answered(["rocm-smi", *ROCM_SMI], deadline)
    cards = answer.items() if isinstance(answer, dict) else ()
    named = [
        card for name, card in cards if re.match(r"card\d{1,4}$", name) and isinstance(card, dict)
    ]
    return [{key.lower().rstrip(": "): value for key, value in card.items()} for card in named]


def rocm_gpu(card):
    """Return one GPU from rocm-smi's output, without highest clock, widest PCIe link and causes of
    slowdowns.
    """
    pci = text(card, "pci bus").lower()
    memory = number(card.get("vram total memory (b)"))
    lanes = re.search(r"x(\d{1,2})\)", text(card, "pcie clock level"))
    return {
        "pci": pci,
        "model": text(card, "card series") or text(card, "device name"),
        "vbios": text(card, "vbios version"),
        "ecc_uncorrected": ras_errors(pci),
        "clock_mhz": first_number(card, ("sclk clock speed",)),
        "power_w": first_number(
            card,
            ("current socket graphics package power (w)",),
            ("average graphics package power (w)",),
        ),
        "power_limit_w": first_number(card, ("max graphics package power (w)",)),
        "temperature_c": first_number(
            card, ("temperature (sensor junction) (c)",), ("temperature (sensor edge) (c)",)
        ),
        "memory_mib": memory / (1 << 20) if memory else None,
        "pcie_width": float(lanes[1]) if lanes else None,
        "numa": numa_node(PCI + pci),
    }


def ras_errors(pci):
    """Return the uncorrectable errors since the driver was loaded, over all blocks of the GPU.

    None if the GPU has no error counters.
    """
    folder = PCI + pci if re.match(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d$", pci) else ""
    counts = [
        number(first_line(path).partition("ue:")[2].strip())
        for path in glob.glob(folder + "/ras/*_err_count")
    ]
    numbers = [count for count in counts if count is not None]
    return sum(numbers) if numbers else None
