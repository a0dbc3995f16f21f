"""What this machine lacks to run local nodes, each with the next step."""

import os
import shutil
import subprocess

from seatrial.model.reason import Reason

_TOOLS = {
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
    "sshd": "openssh-server",
}


def missing() -> list[str]:
    """Empty when all is there."""
    lacking = [(tool, package) for tool, package in _TOOLS.items() if not _find(tool)]
    reasons = [Reason.of("local-program-missing", program=tool, package=package) for tool, package in lacking]
    return [*reasons] or _without_namespaces()


def _find(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def _without_namespaces() -> list[str]:
    rootless = ["--user", "--map-root-user"] if os.geteuid() else []
    trial = ["unshare", *rootless, "--net", "--mount", "--uts", "--pid", "--fork", "true"]
    done = subprocess.run(trial, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return []
    reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    if rootless:
        step = (
            "run as root, or allow user namespaces: sysctl -w user.max_user_namespaces=15000, and where they exist"
            " kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0"
        )
    else:
        step = "run outside a container, or in one with CAP_SYS_ADMIN and CAP_NET_ADMIN"
    return [Reason.of("local-namespaces-forbidden", problem=reason, remedy=step)]
