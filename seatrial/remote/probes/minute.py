"""Print what this node's devices report now as one JSON line: a number for each part and metric.

Standard library only.

    minute.py     start it by hand or over SSH

Prints {"parts": {"gpu-0": {"power_w": 612.0, ...}, "mlx5_0/1": {"errors": 0, ...}, "cpu": {"load":
3.1, ...}}}. What is unknown is left out. Counters count since the driver or the device came up.
`slowdown` is 1 while hardware keeps the clocks down. `flaps` are the times that a link went down.
"""

import glob
import json
import os
import re
import time

import inventory
import ports
from facts import first_line

DEADLINE_S = 20.0
GAUGES = ("power_w", "clock_mhz", "temperature_c", "ecc_uncorrected")
FLAPS = ("link_downed", "carrier_changes")


def main():
    """Print the readings."""
    print(json.dumps({"parts": parts()}), flush=True)


def parts():
    """Return the readings of each part that has any."""
    deadline = time.monotonic() + DEADLINE_S
    gpus = inventory.gpu_list(deadline)
    readings = {gpu["name"]: of_gpu(gpu) for gpu in gpus}
    for port in ports.infiniband_ports() + ports.network_ports():
        readings[port["port"]] = of_port(port)
    readings["cpu"] = of_processors()
    return {name: known for name, known in readings.items() if known}


def of_gpu(gpu):
    """Return the readings of a GPU."""
    readings = {name: gpu[name] for name in GAUGES if gpu.get(name) is not None}
    if gpu.get("slowdown") is not None:
        readings["slowdown"] = float(bool(gpu["slowdown"]))
    if gpu.get("errors") is not None:
        readings["errors"] = sum(gpu["errors"].values())
    if gpu.get("nvlinks"):
        readings["links_down"] = sum(not speed for speed in gpu["nvlinks"])
    return readings


def of_port(port):
    """Return the readings of a port."""
    errors = port.get("errors", {})
    readings = {"errors": sum(count for name, count in errors.items() if name not in FLAPS)}
    readings["flaps"] = sum(errors.get(name, 0) for name in FLAPS)
    if "losses" in port:
        readings["losses"] = sum(port["losses"].values())
    return readings


def of_processors():
    """Return the load, the median clock, the highest temperature, and the count of thermal
    throttling.
    """
    readings = {"load": os.getloadavg()[0]}
    clocks = sorted(
        numbers("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq") or clocks_of_cpuinfo()
    )
    if clocks:
        readings["clock_mhz"] = clocks[len(clocks) // 2] / 1000
    hottest = max(numbers("/sys/class/hwmon/hwmon*/temp*_input"), default=0)
    if 0 < hottest < 200000:
        readings["temperature_c"] = hottest / 1000
    throttled = numbers("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count")
    if throttled:
        readings["slowdowns"] = sum(throttled)
    return readings


def numbers(pattern):
    """Return the integers in all files that match a pattern."""
    texts = (first_line(path) for path in glob.glob(pattern)[:1024])
    return [int(text) for text in texts if re.fullmatch(r"\d{1,15}", text)]


def clocks_of_cpuinfo():
    """Return the clocks of the processors in kHz, as the kernel lists them."""
    with open("/proc/cpuinfo") as file:
        text = file.read(1 << 22)
    return [
        1000 * float(clock)
        for clock in re.findall(r"^cpu MHz\s*:\s*(\d{1,5}(?:\.\d{1,6})?)", text, re.M)
    ]


if __name__ == "__main__":
    main()
