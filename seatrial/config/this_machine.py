"""The cluster file that nobody has to write: the machine that seatrial runs on, with the GPUs that it has."""

import re
import socket
import subprocess
from typing import Any

from seatrial.catalog import hardware_of
from seatrial.model.errors import InputError

THIS_MACHINE = "this-machine"
_TIMEOUT_S = 20.0
_MOST_GPUS = 1024


def this_machine() -> dict[str, Any]:
    """What its cluster file would say. Raises InputError where the driver's tool is there and does not answer."""
    return {"name": _name(), "nodes": 1, "platform": {"kind": THIS_MACHINE}, **_hardware(_gpu_models())}


def _hardware(models: list[str]) -> dict[str, Any]:
    """The catalog's name of GPUs that it knows, so that its figures count; else the model's own."""
    if not models:
        return {"hardware": "cpu", "slots_per_node": 2}  # one rank has nobody to exchange data with
    return {"hardware": hardware_of(models[0]) or {"name": models[0][:63]}, "gpus_per_node": len(models)}


def _gpu_models() -> list[str]:
    argv = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except FileNotFoundError:
        return []
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        problem = f"nvidia-smi does not answer ({type(error).__name__}); see what it prints"
        raise InputError(f"{THIS_MACHINE}: {problem}, or write a cluster file with hardware: cpu") from error
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()][:_MOST_GPUS]


def _name() -> str:
    """By the host's name, so that machines with one history do not mix."""
    words = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().partition(".")[0].lower()).strip("-")
    return words[:40].rstrip("-") or THIS_MACHINE
