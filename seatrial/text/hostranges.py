"""Host names from ranges as Slurm and pdsh write them: gpu-[01-64,70]. The reverse of `hostlist`. Pure."""

import re
from collections.abc import Iterator, Sequence

MAX_HOSTS = 10_000
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
_BRACKETS = re.compile(r"([^\[\]]*)\[([^\[\]]*)\]([^\[\]]*)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def expand(patterns: Sequence[str]) -> tuple[str, ...]:
    """The hosts of `patterns`, in order; a number keeps the leading zeros that its range begins with.

    Raises ValueError for what is no host name, a range that is empty or malformed, a host that is there twice, and more
    than 10,000 hosts.
    """
    hosts: dict[str, None] = {}
    for pattern in patterns:
        for host in _of_pattern(pattern):
            if host in hosts:
                raise ValueError(f"host {host} is there twice")
            if len(hosts) == MAX_HOSTS:
                raise ValueError(f"more than {MAX_HOSTS} hosts")
            hosts[host] = None
    return tuple(hosts)


def _of_pattern(pattern: str) -> Iterator[str]:
    match = _BRACKETS.fullmatch(pattern)
    names = (match[1] + number + match[3] for number in _numbers(pattern, match[2])) if match else iter([pattern])
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"must be a host name, an address or a range such as gpu-[01-64], is {pattern[:300]!r}")
        yield name


def _numbers(pattern: str, ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"a range must be as in gpu-[01-64,70], smaller number first, is {pattern[:300]!r}")
        for number in range(int(match[1]), int(match[2] or match[1]) + 1):
            yield f"{number:0{len(match[1])}d}"
