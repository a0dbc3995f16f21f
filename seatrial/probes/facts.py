"""Print what this node is, as one JSON line: versions, GPUs, sizes. Standard library only, nothing heavy imported."""

import glob
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys


def main():
    print(json.dumps(facts(sys.argv[1] if len(sys.argv) > 1 else "mpirun")), flush=True)


def facts(mpirun):
    gpus = first_lines(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], timeout_s=20)
    return {
        "hostname": socket.gethostname(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "gpus": len(gpus),
        "gpu_model": ", ".join(sorted(set(gpus))),
        "mpirun": shutil.which(mpirun) or "",
        "versions": {key: value for key, value in versions(mpirun).items() if value},
    }


def versions(mpirun):
    return {
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": package_version("torch"),
        "openmpi": version_in([mpirun, "--version"]),
        "openssh": version_in(["ssh", "-V"], r"OpenSSH_(\S+?),?\s"),
        "driver": version_in(["cat", "/proc/driver/nvidia/version"], r"\s(\d+\.\d+[.\d]*)\s"),
        "cuda": package_version("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu13"),
        "nccl": nccl_version(),
    }


def package_version(*names):
    """The installed version of the first package that is there, without importing it."""
    from importlib import metadata

    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""


def nccl_version():
    """The system's libnccl, as its file name says; else the one that came with torch."""
    for pattern in ("/usr/lib/*/libnccl.so.2.*", "/usr/local/lib/libnccl.so.2.*", "/usr/local/*/lib/libnccl.so.2.*"):
        for found in sorted(glob.glob(pattern)):
            return found.rsplit(".so.", 1)[1]
    return package_version("nvidia-nccl-cu12", "nvidia-nccl-cu13")


def version_in(command, pattern=r"(\d+\.\d+[.\w]*)"):
    found = re.search(pattern, "\n".join(first_lines(command)) + "\n")
    return found.group(1) if found else ""


def first_lines(command, timeout_s=4):
    """What a command prints, at most a few lines; nothing when it is not there, fails or hangs."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.decode(errors="replace").splitlines()[:64]


if __name__ == "__main__":
    main()
