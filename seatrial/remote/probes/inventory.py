"""Print the state of this node's GPUs, network ports and limits as one JSON line.

Standard library only.

    inventory.py     start it by hand or over SSH

Prints {"gpus": [...], "ports": [...], "xids": [...] or null, "events": [...], "gpudirect",
"redirecting_switches", "hugepages", "memlock_kib", "shm_gb", "disk_free_gb", "seconds"}. What is
unknown is null or left out. nvidia-smi is asked until DEADLINE_S, and AMD's tools where it knows no
GPU; what they have not answered by then is not known.
"""

import errno
import glob
import json
import os
import re
import resource
import time

import amd_gpus
import ports
from facts import first_line, lines_of, nvidia_smi

DEADLINE_S = 30.0  # without persistence mode, each call of nvidia-smi wakes every GPU first
FIELDS = {
    "uuid": "uuid",
    "pci": "pci.bus_id",
    "vbios": "vbios_version",
    "ecc": "ecc.mode.current",
    "ecc_uncorrected": "ecc.errors.uncorrected.volatile.total",
    "slowdown": "clocks_event_reasons.active",
    "clock_mhz": "clocks.sm",
    "clock_max_mhz": "clocks.max.sm",
    "power_limit_w": "power.limit",
    "temperature_c": "temperature.gpu",
    "pcie_width": "pcie.link.width.current",
    "pcie_width_max": "pcie.link.width.max",
    "pcie_gen_max": "pcie.link.gen.max",
    "persistence": "persistence_mode",
    "model": "name",
    "memory_mib": "memory.total",
    "power_w": "power.draw",
    "recovery": "gpu_recovery_action",
    "fabric_state": "fabric.state",
    "fabric_status": "fabric.status",
}
# Names before driver 535
OLDER = {"clocks_event_reasons.active": "clocks_throttle_reasons.active"}
NUMBERS = {
    "ecc_uncorrected",
    "clock_mhz",
    "clock_max_mhz",
    "power_limit_w",
    "temperature_c",
    "pcie_width",
    "pcie_width_max",
    "pcie_gen_max",
    "memory_mib",
    "power_w",
}
# Bits of the clock event reasons that mean a slowdown by hardware; others are idle, settings, power
# cap.
SLOWDOWNS = {
    0x8: "hardware slowdown",
    0x40: "thermal slowdown",
    0x80: "power brake",
    0x20: "software thermal slowdown",
}
UNKNOWN_FIELD = re.compile(r'Field "([a-z0-9_.]{1,80})" is not a valid field to query')
XID = re.compile(
    r"(?:NVRM: (Xid)|nvidia-nvswitch\d+: (SXid)) "
    r"\((?:PCI:)?([0-9a-fA-F:.]{1,40})[^)]{0,80}\): (\d{1,5})"
)
# Messages of the kernel and of drivers about failing hardware without an Xid.
EVENT = re.compile(
    "fallen off the bus|RmInitAdapter failed|PCIe Bus Error: severity=Uncorrected "
    r"\(Fatal\)|Uncorrect\w{1,5} \(Fatal\)"
    r"|AER: can't recover|health compromised|firmware (?:internal|fatal) error"
    r"|[1-9]\d* (?:new )?uncorrectable hardware errors? detected in (?!total)"
    r"|uncorrectable hardware error\(|amdgpu: GPU reset(?:\(\d+\))? (?:begin|failed)"
    r"|amdgpu: RAS records: ?\d{1,6} exceed threshold|amdgpu: XGMI: .{0,60}?fail",
    re.I,
)
PLACE = re.compile(r"(?<![\w:])[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}", re.I)
MAX_RECORDS = 200000
MAX_SEEN = 64
KMSG_S = 2.0
WIDEST_RECORD = 300
# Most characters of a GPU's row: a GPU that needs a reset reports that in every field
WIDEST = 4096
NEEDS_RESET = re.compile(r"GPU requires (?:a )?reset", re.I)
# PCI classes of a vendor's GPUs: displays, and processing accelerators as AMD calls its Instinct
GPUS_ON_BUS = {"0x10de": ("0x03",), "0x1002": ("0x03", "0x12")}


def main():
    """Print the inventory."""
    began = time.monotonic()
    inventory = node()
    print(json.dumps({**inventory, "seconds": round(time.monotonic() - began, 2)}), flush=True)


def node():
    """Return the inventory of this node."""
    deadline = time.monotonic() + DEADLINE_S
    gpus = gpu_list(deadline)
    addresses = gpu_addresses(gpus)
    nics = ports.rdma_addresses()
    seen = kernel_log(addresses, nics) if addresses or nics else None
    return {
        "gpus": gpus,
        "ports": ports.infiniband_ports() + ports.network_ports(),
        "xids": seen[0] if seen and addresses else None,
        "events": seen[1] if seen else [],
        "gpudirect": ports.gpudirect(),
        "redirecting_switches": ports.redirecting_switches(addresses | nics)
        if addresses and nics
        else None,
        "hugepages": hugepages(),
        "memlock_kib": memlock(),
        "shm_gb": gigabytes("/dev/shm", "f_blocks"),
        "disk_free_gb": gigabytes("/tmp", "f_bavail"),
    }


def gpu_list(deadline):
    """Return the state of the GPUs by PCI address; empty if no tool of NVIDIA or AMD answers."""
    return nvidia_gpus(deadline) or amd_gpus.gpu_list(deadline)


def nvidia_gpus(deadline):
    """Return the state of NVIDIA's GPUs by PCI address; empty if nvidia-smi does not answer."""
    gpus = [gpu_of(values) for values in queried(dict(FIELDS), deadline)]
    remappings = rows(
        "remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure", deadline
    )
    remapped = {row[0]: row[1:] for row in remappings if len(row) == 3}
    users = [row[0] for row in rows("compute-apps=gpu_uuid,pid", deadline)]
    links = nvlinks(
        lines_of(["nvidia-smi", "nvlink", "--status"], left(deadline), failed=True, most=1024)
        if gpus
        else None
    )
    errors = ports.nvlink_errors(left(deadline)) if gpus else {}
    for place, gpu in enumerate(gpus):
        gpu["errors"] = errors.get(gpu["uuid"])
        pending, failed = remapped.get(gpu["uuid"], ("", ""))
        gpu.update(
            name=f"gpu-{place}",
            processes=users.count(gpu["uuid"]),
            nvlinks=links.get(gpu["uuid"], []),
        )
        gpu.update(rows_pending=yes_or_no(pending), rows_failed=yes_or_no(failed))
        gpu["numa"] = ports.numa_node("/sys/bus/pci/devices/" + short_address(gpu.get("pci", "")))
        gpu.pop("uuid")
    return gpus


def queried(fields, deadline):
    """Return the fields of each GPU as texts, ordered by PCI address, except fields unknown to the
    driver.
    """
    for _ in range(len(FIELDS)):
        lines = nvidia_smi(
            "gpu=" + ",".join(fields.values()), left(deadline), failed=True, widest=WIDEST
        )
        unknown = next(
            (match[1] for match in map(UNKNOWN_FIELD.search, lines or []) if match), None
        )
        if unknown is None:
            break
        name = next((name for name, field in fields.items() if field == unknown), None)
        if name is None:
            return []
        if unknown in OLDER:
            fields[name] = OLDER[unknown]
        else:
            fields.pop(name)
    split = [[part.strip() for part in line.split(",")] for line in lines or []]
    gpus = [
        dict(zip(fields, parts))
        for parts in split
        if len(parts) == len(fields) and parts[0].startswith("GPU-")
    ]
    return sorted(gpus, key=lambda gpu: gpu.get("pci", ""))


def gpu_of(values):
    """Return one GPU, with numbers converted, except fields that the driver reports as
    unavailable.
    """
    gpu: "dict[str, object]" = {"requires_reset": any(map(NEEDS_RESET.search, values.values()))}
    for name, text in values.items():
        if name == "slowdown":
            gpu[name] = slowdowns(text)
        elif name in NUMBERS:
            gpu[name] = float(text) if re.fullmatch(r"\d{1,12}(\.\d{1,6})?", text) else None
        elif not text.startswith("["):
            gpu[name] = text
    return {"pci": "", **gpu}


def slowdowns(text):
    """Return the causes in a bit mask such as 0x0000000000000044; None if the driver does not
    report them.
    """
    if not re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text):
        return None
    bits = int(text, 16)
    return [cause for bit, cause in SLOWDOWNS.items() if bits & bit]


def rows(query, deadline):
    """Return the rows of any other nvidia-smi query."""
    return [
        [part.strip() for part in line.split(",")]
        for line in nvidia_smi(query, left(deadline)) or []
    ]


def nvlinks(lines):
    """Return GB/s of each NVLink by GPU; 0 of one that is down.

    GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1b2c...)
             Link 0: 26.562 GB/s
             Link 1: <inactive>
    GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2d3e...)
    NVML: Unable to retrieve NVLink information as all links are inActive

    Such a GPU lacks as many links as the others have.
    """
    links: "dict[str, list[float]]" = {}
    uuid = ""
    for line in lines or []:
        gpu = ports.NVLINKS_OF.match(line)
        link = re.match(r"\s*Link \d+: (?:(\d{1,4}(?:\.\d{1,4})?) GB/s|<inactive>)", line)
        uuid = gpu[1] if gpu else uuid
        if link and uuid:
            links.setdefault(uuid, []).append(float(link[1] or 0))
        elif "all links are inactive" in line.lower():
            links[uuid] = []
    most = max(map(len, links.values()), default=0)
    return {uuid: rates or [0.0] * most for uuid, rates in links.items()}


def yes_or_no(text):
    """Return a flag as nvidia-smi prints it; None for any other text."""
    return {"Yes": True, "1": True, "No": False, "0": False}.get(text)


def left(deadline):
    """Return the seconds until a deadline, at least 0.1."""
    return max(0.1, deadline - time.monotonic())


def short_address(pci):
    """Shorten nvidia-smi's 00000000:1B:00.0 to 0000:1b:00.0."""
    return pci.lower()[4:] if re.fullmatch(r"0000[0-9a-fA-F]{4}:.*", pci) else pci.lower()


def kernel_log(addresses, nics):
    """Return the errors of these GPUs and of NVSwitches since boot, and other hardware errors, from
    the kernel's log.

    None if the log may not be read. A container reads its host's log, so errors of other devices
    are left out.
    """
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return summed(records(log), addresses, nics)
    finally:
        os.close(log)


def records(log):
    """Yield the lines of the kernel's log, each with its time in seconds since boot."""
    ends = time.monotonic() + KMSG_S
    for _ in range(MAX_RECORDS):
        if time.monotonic() > ends:
            return
        try:
            text = os.read(log, 8192).decode(errors="replace")
        except OSError as error:
            if error.errno == errno.EPIPE:  # the record was overwritten while reading
                continue
            return  # EAGAIN: the end of the log
        prefix, _, message = text.partition(";")
        times = prefix.split(",")
        yield (
            int(times[2]) / 1e6 if len(times) > 2 and times[2].isdigit() else 0.0,
            message.partition("\n")[0],
        )


def summed(lines, addresses, nics=frozenset()):
    """Return Xids and other events, each with count, seconds since the latest one, and its text."""
    uptime = float((first_line("/proc/uptime").split() or ["0"])[0])
    of_gpus, of_nics = (
        {each.rpartition(".")[0] for each in those if "." in each} for those in (addresses, nics)
    )
    xids: "dict[tuple[str, str, int], dict]" = {}
    events: "dict[tuple[str, str, int], dict]" = {}
    for at, line in lines:
        match = XID.search(line)
        if match:
            kind = match[1] or match[2]
            pci = match[3].lower()
            number = int(match[4])
            if kind == "Xid" and pci not in of_gpus and pci.rpartition(".")[0] not in of_gpus:
                continue  # not one of these GPUs; the driver omits the function: 0000:1b:00
            entry = xids.setdefault(
                (kind, pci, number), {"kind": kind, "number": number, "pci": pci, "count": 0}
            )
        else:
            event = EVENT.search(line)
            named = map(str.lower, PLACE.findall(line[:WIDEST_RECORD])) if event else ()
            place = next((place for place in named if place in of_gpus or place in of_nics), None)
            if not event or not place:
                continue
            entry = events.setdefault(
                (event.group(), place, 0), {"kind": event.group(), "pci": place, "count": 0}
            )
        entry.update(
            count=entry["count"] + 1, age_s=max(uptime - at, 0.0), text=line[:WIDEST_RECORD]
        )
    return list(xids.values())[:MAX_SEEN], list(events.values())[:MAX_SEEN]


def gpu_addresses(gpus):
    """Return the addresses of the listed GPUs; if there are none, of all GPUs of NVIDIA and AMD on
    the bus, whose errors may show why.
    """
    listed = {short_address(gpu["pci"]) for gpu in gpus}
    folders = [] if listed else glob.glob(ports.SYS + "/bus/pci/devices/*")[:4096]
    return listed or {
        os.path.basename(path)
        for path in folders
        if first_line(path + "/class").startswith(GPUS_ON_BUS.get(first_line(path + "/vendor"), ()))
    }


def hugepages():
    """Return the number of huge pages; None if the kernel does not report it."""
    with open("/proc/meminfo") as file:
        match = re.search(r"^HugePages_Total:\s+(\d+)", file.read(1 << 16), re.M)
    return int(match[1]) if match else None


def memlock():
    """Return the limit of locked memory in KiB, -1 if unlimited; RDMA locks the memory that it
    registers.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return -1 if soft == resource.RLIM_INFINITY else soft // 1024


def gigabytes(folder, field):
    """Return GB of a folder's disk, by a field of statvfs; None if the folder does not exist."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    return round(getattr(disk, field) * disk.f_frsize / 1e9, 1)


if __name__ == "__main__":
    main()
