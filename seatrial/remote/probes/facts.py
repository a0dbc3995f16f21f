"""Print the facts of this node as one JSON line: versions, GPUs, sizes. Standard library only.

A version is "" if the package is not installed, and null if it is unknown because a command hangs
or fails: a slow node must not look different.
"""

import hashlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from glob import glob
from importlib import metadata

NVIDIA_SMI_TIMEOUT_S = 30  # without persistence mode it wakes every GPU first
MAX_OUTPUT = 1 << 20  # most bytes of a command's output
MAX_LINE = 300  # most characters of a line, since the time to search it for a version is quadratic
AMD_VENDOR = "0x1002"
OPENSSH = r"OpenSSH_(\S+?),?\s"
GPU_UUID = re.compile(r"GPU-[0-9a-fA-F-]{8,64}")
NVLINK_DOMAIN = re.compile(r"\s*(?![0-]+,)([0-9a-fA-F-]{32,36}), *(\d{1,9})\s*")
DMI = "/sys/class/dmi/id/"
# Least characters of a serial; boards without one report "None", "0" or "To Be Filled"
FEWEST_CHARACTERS = 6
MAX_IDS = 64
# PATH, and the usual places of nccl-tests in images: NVIDIA's PyTorch, clouds' recipes, seatrial's.
NCCL_TESTS = "$PATH:/opt/nccl-tests/build:/workspace/nccl-tests/build:/third_party/nccl-tests/build"


def main():
    """Print the facts."""
    print(json.dumps(facts(*sys.argv[1:3])) + "\n", end="", flush=True)  # in one write


def facts(mpirun="mpirun", nccl_tests=NCCL_TESTS):
    """Return the facts; `nccl_tests` are the folders to search for all_reduce_perf, in the format
    of PATH.
    """
    gpus = gpu_models()
    return {
        "hostname": os.uname().nodename,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "gpus": None if gpus is None else len(gpus),
        "gpu_problem": gpu_problem() if gpus is None else "",
        "gpu_model": ", ".join(sorted({model for model, _, _ in gpus or []})),
        "gpu_clock_mhz": min((clock for _, clock, _ in gpus or [] if clock), default=None),
        "nvlink_domain": nvlink_domain() if gpus else "",
        "hardware_ids": hardware_ids([uuid for _, _, uuid in gpus or []]),
        "cpu_model": cpu_model(),
        "architecture": os.uname().machine,
        "mpirun": which(mpirun),
        "sshd": sshd(),
        "nccl_tests": shutil.which("all_reduce_perf", path=os.path.expandvars(nccl_tests)) or "",
        "versions": versions(mpirun),
    }


def sshd():
    """Return the path of OpenSSH's server; None if this login came through another server."""
    program = which("sshd", ":/usr/sbin:/sbin:/usr/local/sbin")
    return program or (None if "SSH_CONNECTION" in os.environ else "")


def which(program, more=""):
    """Return the path of a program, "" if it is missing; `more` is appended to PATH."""
    return shutil.which(program, path=os.environ.get("PATH", os.defpath) + more) or ""


def gpu_models() -> "list[tuple[str, int | None, str]] | None":
    """Return model, highest SM clock (MHz) and UUID of each GPU.

    None if the driver's tool exists but does not answer.
    """
    deadline = time.monotonic() + NVIDIA_SMI_TIMEOUT_S
    nvidia = nvidia_smi("gpu=uuid,name,clocks.max.sm", NVIDIA_SMI_TIMEOUT_S)
    if nvidia is None:  # the driver does not report the clock, or does not answer at all
        nvidia = nvidia_smi("gpu=uuid,name", max(1, deadline - time.monotonic()))
    if nvidia is None:
        return None
    gpus = [gpu_in(line) for line in nvidia]
    for path in sorted(glob("/sys/class/drm/renderD*/device/vendor")):
        if first_line(path) == AMD_VENDOR:
            folder = os.path.dirname(path)
            # Older drivers do not have this file
            name = first_line(folder + "/product_name") or "AMD"
            gpus.append((name, None, first_line(folder + "/unique_id")))
    return gpus


def nvlink_domain() -> str:
    """Return cluster and clique of the NVLink domain that contains all GPUs of the node; "" if
    there is none.
    """
    domains = set(nvidia_smi("gpu=fabric.clusterUuid,fabric.cliqueId", NVIDIA_SMI_TIMEOUT_S) or [])
    match = NVLINK_DOMAIN.fullmatch("|".join(domains))  # no match for several domains
    return ".".join(match.groups()) if match else ""


def gpu_problem() -> str:
    """Return the first words of the driver's tool if it fails; "" if it works or is missing."""
    lines = lines_of(["nvidia-smi"], NVIDIA_SMI_TIMEOUT_S / 2, failed=True) or []
    return next((line.strip() for line in lines if line.strip()), "")


def nvidia_smi(query, timeout_s, **options):
    """Return the rows that nvidia-smi prints for a query such as gpu=uuid,name, as
    `lines_of` does.
    """
    return lines_of(
        ["nvidia-smi", "--query-" + query, "--format=csv,noheader,nounits"], timeout_s, **options
    )


def gpu_in(line: str) -> "tuple[str, int | None, str]":
    """Parse `GPU-1b2c..., NVIDIA H100 80GB HBM3, 1980` into model, clock and UUID.

    The clock is None if it is `[N/A]` or missing, the UUID "" if it is missing.
    """
    first, _, rest = (part.strip() for part in line.partition(","))
    uuid = first if GPU_UUID.fullmatch(first) else ""
    named = rest or first
    model, comma, clock = (part.strip() for part in named.rpartition(","))
    if not comma:
        return named, None, uuid
    return model, int(clock) if re.fullmatch(r"[0-9]{1,6}", clock) else None, uuid


def hardware_ids(gpu_uuids: "list[str]") -> "list[str]":
    """Return a digest of each serial of this machine: of its GPUs, and of its board, else of its
    installation.

    The serials themselves are not reported. Containers may have the ids of a common host or image.
    """
    board = [first_line(DMI + name) for name in ("product_uuid", "board_serial")]
    serials = [*gpu_uuids, *board]
    usable = [serial for serial in serials if is_serial(serial)] or [first_line("/etc/machine-id")]
    digests = {
        hashlib.sha256(serial.lower().encode()).hexdigest()[:16]
        for serial in usable
        if is_serial(serial)
    }
    return sorted(digests)[:MAX_IDS]


def is_serial(text):
    """Return whether a text looks like a serial."""
    return sum(c.isalnum() for c in text) >= FEWEST_CHARACTERS


def cpu_model():
    """Return the processors' model; "" if the kernel does not report it, as on most ARM
    machines.
    """
    try:
        with open("/proc/cpuinfo", errors="replace") as file:
            lines = [
                line.partition(":")[2].strip()
                for line in file.read(1 << 16).splitlines()
                if "model name" in line
            ]
    except OSError:
        return ""
    return lines[0][:MAX_LINE] if lines else ""


def versions(mpirun):
    """Return the version of each package."""
    return {
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
        "torch": package_version("torch"),
        "openmpi": version_in([mpirun, "--version"]),
        "openssh": version_in(["ssh", "-V"], OPENSSH),
        "driver": driver_version(),
        "cuda": package_version(
            "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu13"
        ),
        "nccl": nccl_version(),
    }


def package_version(*names: str) -> str:
    """Return the version of the first installed package, without importing it."""
    for name in names:
        try:
            installed = metadata.version(name)
        except (ImportError, KeyError, OSError):  # not installed, or with broken metadata
            continue
        if installed:
            return installed[:MAX_LINE]
    return ""


def nccl_version():
    """Return the version of the system's libnccl, from its file name, and that of torch's NCCL if
    it differs.
    """
    of_torch = package_version("nvidia-nccl-cu12", "nvidia-nccl-cu13")
    for folder in ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/local/lib", "/usr/local/*/lib"):
        for library in sorted(glob(folder + "/libnccl.so.2.*")):
            version = library.rsplit(".so.", 1)[1]
            return f"{version} (torch: {of_torch})" if of_torch not in ("", version) else version
    return of_torch


def driver_version():
    """Return the version of NVIDIA's driver, else of AMD's unless it is part of the kernel."""
    match = re.search(r"\s(\d+\.\d+[.\d]*)\s", first_line("/proc/driver/nvidia/version") + " ")
    return match[1] if match else first_line("/sys/module/amdgpu/version")


def version_in(command: "list[str]", pattern: str = r"(\d+\.\d+[.\w]*)") -> "str | None":
    """Return the version in a command's output."""
    lines = lines_of(command)
    if not lines:
        return None if lines is None else ""
    matches = (re.search(pattern, line + "\n") for line in lines)
    return next((match[1] for match in matches if match), None)


def lines_of(command, timeout_s=8, failed=False, most=64, widest=MAX_LINE):
    """Return the first lines that a command prints.

    Empty if it is not installed; None if it hangs. If it fails, None, or its output with `failed`.
    """
    text = text_of(command, timeout_s, failed)
    return None if text is None else [line[:widest] for line in text.splitlines()[:most]]


def text_of(command, timeout_s=8, failed=False, most=MAX_OUTPUT):
    """Return a command's output as text; a command that prints more than `most` bytes counts as
    hanging.
    """
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except FileNotFoundError:
        return ""
    except OSError:
        return None
    try:
        output = read_until_end(child, time.monotonic() + timeout_s, most)
    finally:
        end_group(child)  # including children of a script, which would keep the pipe open
    if output is None or (child.returncode and not failed):
        return None
    return output.decode(errors="replace")


def read_until_end(child, deadline, most):
    """Return all output of a child that ends before the deadline and prints at most `most` bytes;
    else None.
    """
    output = b""
    while True:
        readable, _, _ = select.select([child.stdout], [], [], max(0, deadline - time.monotonic()))
        data = os.read(child.stdout.fileno(), 65536) if readable else None
        if not data:
            break
        output += data
        if len(output) > most:
            return None
    try:
        child.wait(max(0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    return output


def end_group(child):
    """Kill a child and its process group."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass
    child.wait()
    child.stdout.close()


def first_line(path):
    """Return the first line of a file; empty where it cannot be read."""
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return ""


if __name__ == "__main__":
    main()
