"""What the programs of a healthy node answer: the probes, and the few commands of a shell that
checks use.
"""

import json
import time
from collections.abc import Mapping
from typing import Any

from tests.fake_platform.node import GIB_PER_NODE, FakeNode, Program, ProgramOutput, Request

_VERSIONS = {
    "kernel": "6.8.0",
    "driver": "",
    "cuda": "",
    "openmpi": "4.1.6",
    "nccl": "",
    "torch": "2.9.0",
}


def facts(request: Request) -> str:
    """As seatrial/remote/probes/facts.py."""
    healthy = {
        "hostname": request.node.name,
        "cpus": 8,
        "memory_gb": GIB_PER_NODE,
        "gpus": 0,
        "gpu_model": "",
        "gpu_clock_mhz": None,
        "hardware_ids": [],
        "cpu_model": "AMD EPYC",
        "architecture": "x86_64",
        "mpirun": f"/usr/bin/{request.words[-1]}",
        "sshd": "/usr/sbin/sshd",
        "nccl_tests": "",
        "versions": _VERSIONS,
    }
    return json.dumps({**healthy, **request.node.facts})


def inventory(request: Request) -> str:
    """As seatrial/remote/probes/inventory.py, of a node without GPUs."""
    return "{}"


def reach(request: Request) -> str:
    """As seatrial/remote/probes/reach.py: the banner of every peer that something listens on."""
    peers: list[list[Any]] = json.loads(request.stdin)["peers"]
    silent = {node.address for node in request.peers.values() if node.refuses or node.dead}
    refused = [position for position, (address, _) in enumerate(peers) if address in silent]
    return json.dumps({"tried": len(peers), "failed": {"refused": refused} if refused else {}})


def pairs(request: Request) -> str:
    """As seatrial/remote/probes/pairs.py: SSH reaches every peer that has no fault."""
    peers: list[dict[str, Any]] = json.loads(request.stdin)["peers"]
    lines = (
        {"peer": peer["name"], "error": request.peers[peer["name"]].unreachable or ""}
        for peer in peers
    )
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def stream(request: Request) -> str:
    """As seatrial/remote/probes/stream.py: where it listens, and for each line the slower end's
    rate, both ways.
    """
    if not request.stdin:
        return json.dumps({"port": 40000, "token": "5a" * 16}) + "\n"
    options = json.loads(request.stdin)
    peer = next(
        node for node in request.peers.values() if node.address == options["peer"]["address"]
    )
    if peer.unreachable:
        return json.dumps({"id": options["id"], "error": peer.unreachable}) + "\n"
    seconds = options["max_bytes"] / (link_mb_s((request.node, peer)) * 1e6)
    traffic = {"bytes": options["max_bytes"], "seconds": seconds}
    return json.dumps({"id": options["id"], "out": traffic, "in": traffic}) + "\n"


def devices(request: Request) -> str:
    """As seatrial/remote/probes/devices.py."""
    healthy = {
        "model": "fake",
        "library": "torch",
        "dtype": "float32",
        "size": 1024,
        "wrong": "",
        "error": "",
    }
    rates = {"matmul_tflops": [1.0], "copy_gb_s": [20.0]}
    names = [f"cuda:{number}" for number in range(request.node.facts.get("gpus", 0))] or ["cpu"]
    return json.dumps({"devices": [{"device": name, **healthy, **rates} for name in names]})


def disk(request: Request) -> str:
    """As seatrial/remote/probes/disk.py."""
    return json.dumps(
        {"tool": "fio", "filesystem": "ext4", "write_mb_s": 900.0, "read_mb_s": 1500.0, "wrong": ""}
    )


def link_mb_s(nodes: tuple[FakeNode, ...]) -> float:
    """What the slowest of the nodes carries."""
    return min(node.link_mb_s for node in nodes)


def date(request: Request) -> str:
    return f"{time.time() + request.node.clock_offset_s:.9f}"


def hostname(request: Request) -> str:
    """One line per rank."""
    return "".join(f"{node.hostname}\n" for node in request.ranks or (request.node,))


def cat(request: Request) -> ProgramOutput | str:
    """`cat > FILE` and `cat FILE`."""
    *_, path = request.words
    if ">" in request.words:
        request.node.files[path] = request.stdin
        return ""
    text = request.node.files.get(path)
    return ProgramOutput(f"cat: {path}: No such file or directory", 1) if text is None else text


def rm(request: Request) -> str:
    request.node.files.pop(request.words[-1], None)
    return ""


def nothing(request: Request) -> str:
    return ""


HEALTHY: Mapping[str, Program] = {
    "facts.py": facts,
    "inventory.py": inventory,
    "reach.py": reach,
    "pairs.py": pairs,
    "stream.py": stream,
    "devices.py": devices,
    "disk.py": disk,
    "date": date,
    "hostname": hostname,
    "cat": cat,
    "rm": rm,
    "for": nothing,  # looks for NCCL's log files
}


def program_name(words: tuple[str, ...]) -> str:
    """What `programs` call it: the script where it is an interpreter's, else the program, without
    the folder.

    What `python -c` installs first, and then becomes, is the script that is named after it.
    """
    place = {"-c": 3, "-S": 2}.get("".join(words[1:2]), 1)
    script = words[place : place + 1]
    return (script[0] if script and script[0].endswith(".py") else words[0]).rpartition("/")[2]
