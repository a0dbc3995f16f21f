"""Why a build failed, and what to do: one line from its log. Pure."""

import re
from dataclasses import dataclass

_TAIL = 200_000  # characters; the cause stands near the end


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause by what a log says of it; `next_step` is what a person does."""

    name: str
    next_step: str
    pattern: re.Pattern[str]


def _cause(name: str, next_step: str, *said: str) -> Cause:
    return Cause(name, next_step, re.compile("|".join(said), re.IGNORECASE | re.MULTILINE))


# In this order: what comes first also explains what comes later ("denied" of a base is about the base).
CAUSES = (
    _cause(
        "wrong platform",
        "build for what the machine or the base is (platforms), use a base that has the platform, or register qemu",
        r"exec format error",
        r"no match(ing)? (manifest )?for (platform|linux/)",
        r"no image found in (manifest list|image index) for architecture",
        r"does not match the (specified|expected) platform",
        r"multiple platforms? (feature )?(is )?(currently )?not supported",
        r"docker exporter does not (currently )?support exporting manifest lists",
    ),
    _cause(
        "quota",
        "free some or ask for more: disk, a registry's rate limit (docker login), Cloud Build's CPUs in that region",
        r"no space left on device",
        r"toomanyrequests",
        r"too many requests",
        r"rate limit",
        r"quota[^\n]{0,60}(exceed|exhaust|restriction)",
        r"(exceed|exhaust)[^\n]{0,60}quota",
        r"RESOURCE_EXHAUSTED",
    ),
    _cause(
        "base image access",
        "log in to its registry (docker login; NGC for nvcr.io), correct BASE, or mirror it and set BASE to the copy",
        r"pull access denied",
        r"failed to resolve source metadata",
        r"^(?!.*push).*failed to (do request|authorize|solve).*(manifest|/v2/|token)",
        r"(error|failed) (creating build container|pulling image|initializing source)",
        r"initializing source docker://",
        r"error initializing source",
        r"reading manifest \S+ in ",
        r"manifest (for \S+ not found|unknown)",
    ),
    _cause(
        "permission",
        "give the account that builds the right to build, to read the source and to write to the repository",
        r"PERMISSION_DENIED",
        r"permission[ '\"][^\n]*denied",
        r"denied: [^\n]*(permission|requested access)",
        r"unauthorized",
        r"403 Forbidden",
        r"does not have \S+ access",
        r"authentication required",
        r"caller does not have permission",
        r"PUSH_NOT_AUTHORIZED",
        r"operation not permitted",
        r"cannot connect to the docker daemon[^\n]*|permission denied[^\n]*docker\.sock",
    ),
    _cause(
        "timeout",
        "raise image.timeout_s, or take a larger machine",
        r"DEADLINE_EXCEEDED",
        r"context deadline exceeded",
        r"status\W+TIMEOUT",
        r"timed out",
    ),
    _cause(
        "network",
        "see that the machine that builds reaches it: a proxy (args HTTPS_PROXY), a mirror, DNS",
        r"no such host",
        r"(temporary failure|could not|cannot) resol",
        r"connection refused",
        r"network is unreachable",
        r"failed to fetch",
    ),
)


def explain(text: str) -> str:
    """The cause by name with the line that says it and the next step; the last line where none is known."""
    tail = text[-_TAIL:]
    for cause in CAUSES:
        if found := cause.pattern.search(tail):
            return f"{cause.name}: {_line_at(tail, found.start())}; next: {cause.next_step}"
    last = next((line.strip() for line in reversed(tail.splitlines()) if line.strip()), "it said nothing")
    return _clip(last)


def _line_at(text: str, position: int) -> str:
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return _clip(text[start : end if end >= 0 else None].strip())


def _clip(line: str) -> str:
    return line if len(line) <= 300 else f"{line[:297]}..."
