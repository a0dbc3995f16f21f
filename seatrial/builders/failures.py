"""Causes of failed builds, by the end of their logs. Pure."""

import re
from dataclasses import dataclass
from pathlib import Path

from seatrial.model.reason import Reason

_LONGEST = 4000  # characters of a line that are looked at


@dataclass(frozen=True, slots=True)
class BuildFailure:
    """A cause with the pattern that it has in a log, and the next step."""

    name: str
    next_step: str
    pattern: str


def _cause(name: str, next_step: str, *patterns: str) -> BuildFailure:
    return BuildFailure(name, next_step, "|".join(patterns))


# In this order within one line: what comes first also explains what comes later ("denied" of a base
# is about the base).
CAUSES = (
    _cause(
        "wrong platform",
        (
            "build for what the machine or the base is (platforms), use a base that has the "
            "platform, or register qemu"
        ),
        r"exec format error",
        r"no match(ing)? (manifest )?for (platform|linux/)",
        r"no image found in (manifest list|image index) for architecture",
        r"does not match the (specified|expected) platform",
        r"multiple platforms? (feature )?(is )?(currently )?not supported",
        r"docker exporter does not (currently )?support exporting manifest lists",
    ),
    _cause(
        "quota",
        (
            "free some or ask for more: disk, a registry's rate limit (docker login), Cloud "
            "Build's CPUs in that region"
        ),
        r"no space left on device",
        r"toomanyrequests",
        r"too many requests",
        r"rate limit",
        r"quota.{0,60}(exceed|exhaust|restriction)",
        r"(exceed|exhaust).{0,60}quota",
        r"RESOURCE_EXHAUSTED",
    ),
    _cause(
        "base image access",
        (
            "log in to its registry (docker login; NGC for nvcr.io), correct BASE, or mirror "
            "it and set BASE to the copy"
        ),
        r"pull access denied",
        r"failed to resolve source metadata",
        r"^(?!.*push).*failed to (do request|authorize|solve).{0,400}(manifest|/v2/|token)",
        r"(error|failed) (creating build container|pulling image|initializing source)",
        r"initializing source docker://",
        r"reading manifest \S+ in ",
        r"manifest (for \S+ not found|unknown)",
    ),
    _cause(
        "docker daemon",
        (
            "start Docker and let this account use it (group docker), or use builder buildah "
            "or cloud-build"
        ),
        r"cannot connect to the docker daemon",
        r"permission denied.{0,400}docker (daemon|api)",
        r"docker\.sock.{0,400}permission denied",
    ),
    _cause(
        "network",
        "see that the machine that builds reaches it: a proxy (args HTTPS_PROXY), a mirror, DNS",
        r"no such host",
        r"(temporary failure|could not|cannot) resol",
        r"connection refused",
        r"(network is|is) unreachable",
        r"\bE: failed to fetch",
        r"failed to connect to ",
        r"(connection|connect|operation|read) timed out",
        r"(i/o|tls handshake|connect) timeout",
        r"timeout (was reached|exceeded while awaiting headers)",
        r"request canceled while waiting for connection",
    ),
    _cause(
        "permission",
        (
            "give the account that builds the right to build, to read the source and to write "
            "to the repository"
        ),
        r"PERMISSION_DENIED",
        r"permission ['\"].{0,400}denied",
        r"denied: .{0,400}(permission|requested access)",
        r"unauthorized",
        r"403 Forbidden",
        r"does not have \S+ access",
        r"authentication required",
        r"caller does not have permission",
        r"PUSH_NOT_AUTHORIZED",
        r"operation not permitted",
    ),
    _cause(
        "file mode",
        (
            "let the build's user run or read it: chmod before the build or in the "
            "Dockerfile, or another USER"
        ),
        r": permission denied",
    ),
    _cause(
        "time limit",
        "raise image.timeout_s, or take a larger machine",
        r"DEADLINE_EXCEEDED",
        r"context deadline exceeded",
        r"status\W+TIMEOUT",
    ),
)


def build_failure(image: str, stage: str, output: str, log: str | Path) -> Reason:
    """Return why a build failed: the last line of its output with a known cause, else the last
    line.
    """
    cause, problem = _explain(output)
    code = f"image-build-{cause.name.replace(' ', '-')}" if cause else "image-build-failed"
    return Reason.of(code, image=image, stage=stage, problem=problem, log=str(log))


def over_time(image: str, timeout_s: float, log: str | Path) -> Reason:
    """Return the reason for a build that was ended at the time limit of the cluster file."""
    return Reason.of(
        "image-build-time-limit",
        image=image,
        stage="the build was ended",
        problem=f"it did not end within {timeout_s} s; raise image.timeout_s",
        log=str(log),
    )


def _explain(text: str) -> tuple[BuildFailure | None, str]:
    # The last 30 lines, backwards: what stands further up did not end the build.
    lines = [line[:_LONGEST].strip() for line in text.splitlines() if line.strip()][:-31:-1]
    for line in lines:
        for cause in CAUSES:
            if re.search(cause.pattern, line, re.IGNORECASE):
                return cause, f"{cause.name}: {_clip(line)}; next: {cause.next_step}"
    return None, _clip(lines[0] if lines else "it printed nothing")


def _clip(line: str) -> str:
    return line if len(line) <= 300 else f"{line[:297]}..."
