"""Host names as Slurm and pdsh write them, in short and back: node-[0-31,40]. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from seatrial.text.lazy_pattern import lazy

_NUMBERED = lazy(r"(.*?)(\d{1,9})")
MAX_CHARS = 200
MAX_HOSTS = 10_000
_NAME = lazy(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
_BRACKETS = lazy(r"([^\[\]]*)\[([^\[\]]*)\]([^\[\]]*)")
_RANGE = lazy(r"(\d{1,9})(?:-(\d{1,9}))?")


def host_list(names: Iterable[str]) -> str:
    """Format `names` by common stem with their numbers as ranges, cut if too long: "node-[0-3,7],
    head".
    """
    parts: list[str] = []
    plain: list[str] = []
    digits_by_stem: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        if match := _NUMBERED.fullmatch(name):
            digits_by_stem.setdefault(match[1], []).append(match[2])
        else:
            plain.append(name)
    for stem, digits in digits_by_stem.items():
        # Numbers that are padded with zeros go by their width, as 7 and 007 are two hosts.
        padded = any(each.startswith("0") and len(each) > 1 for each in digits)
        for width in sorted({len(each) for each in digits}) if padded else [0]:
            parts.append(
                _ranges(
                    stem, width, sorted(int(each) for each in digits if width in (0, len(each)))
                )
            )
    text = ", ".join([*parts, *plain])
    return text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 1]}…"


def _ranges(stem: str, width: int, values: list[int]) -> str:
    runs = [
        [value for _, value in run]
        for _, run in groupby(enumerate(values), key=lambda indexed: indexed[1] - indexed[0])
    ]
    texts = [
        f"{run[0]:0{width}d}" if len(run) == 1 else f"{run[0]:0{width}d}-{run[-1]:0{width}d}"
        for run in runs
    ]
    return f"{stem}{texts[0]}" if len(values) == 1 else f"{stem}[{','.join(texts)}]"


def expand(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts of `patterns`, in order; a number keeps the leading zeros that its range
    begins with.

    Raises ValueError for what is no host name, a range that is empty or malformed, a host that is
    there twice, and more than 10,000 hosts.
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
    names = (
        (match[1] + number + match[3] for number in _numbers(pattern, match[2]))
        if match
        else iter([pattern])
    )
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(
                "must be a host name, an address or a range such as gpu-[01-64], is "
                f"{pattern[:300]!r}"
            )
        yield name


def _numbers(pattern: str, ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(
                f"a range must be as in gpu-[01-64,70], smaller number first, is {pattern[:300]!r}"
            )
        for number in range(int(match[1]), int(match[2] or match[1]) + 1):
            yield f"{number:0{len(match[1])}d}"
