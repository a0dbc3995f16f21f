"""The container of a run on a host, by the command line of its runtime: docker, podman, apptainer or singularity."""

import os
import time

from seatrial.platforms.baremetal.on_host.files import ProblemError
from seatrial.platforms.baremetal.on_host.processes import unblock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

STOP_S = 5  # for sshd's end; then the container is killed
CALL_S = 15.0
WORDS = 500
ABSENT = ("no such image", "image not known")  # of docker and podman, in small letters


def has_program(container: "Dict[str, Any]") -> bool:
    from shutil import which

    return which(container["program"]) is not None


def has_image(container: "Dict[str, Any]") -> bool:
    """Where docker or podman do not answer, ProblemError has their words."""
    if not container["name"]:
        return os.path.exists(container["image"])
    status, words = call([container["program"], "image", "inspect", container["image"]], CALL_S * 2)
    if status and not any(absent in words.lower() for absent in ABSENT):
        raise ProblemError("{}: {}".format(container["program"], words))
    return status == 0


def pull(container: "Dict[str, Any]", timeout_s: float) -> "Optional[str]":
    """Why it cannot be had; None where it is there now."""
    status, words = call([container["program"], "pull", "--quiet", container["image"]], timeout_s)
    return words if status else None


def remove(container: "Optional[Dict[str, Any]]") -> bool:
    """Let its sshd end, which removes the keys, then remove what is left of it; whether nothing is."""
    if not container or not container["name"]:
        return True
    program, name = container["program"], container["name"]
    listing = [program, "ps", "--all", "--quiet", "--filter", "name=^{}$".format(name)]
    if is_empty(call(listing, CALL_S)):
        return True
    call([program, "stop", "-t", str(STOP_S), name], STOP_S + CALL_S)
    deadline = time.monotonic() + STOP_S
    while True:  # docker removes it by itself meanwhile, and lists it until it has
        call([program, "rm", "--force", name], CALL_S)
        if is_empty(call(listing, CALL_S)):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)


def is_empty(answer: "Tuple[int, str]") -> bool:
    """Without the program there was never a container."""
    return answer[0] == 127 or answer == (0, "")


def call(argv: "List[str]", timeout_s: float) -> "Tuple[int, str]":
    """The status, and the last of what it printed: of errors where it failed."""
    import subprocess  # takes as long to import as all the rest

    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=timeout_s,
            preexec_fn=unblock,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, "{} did not end within {:g} s".format(" ".join(argv[:2]), timeout_s)
    except OSError as error:
        return 127, "{}: {}".format(argv[0], error.strerror)
    text = (done.stderr or done.stdout) if done.returncode else done.stdout
    return done.returncode, " ".join(text.decode(errors="replace").split())[-WORDS:]
