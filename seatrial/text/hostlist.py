"""Host names as Slurm and pdsh write them, in short and back: node-[0-31,40]. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from seatrial.text.lazy_pattern import lazy

# A stem and the number that it ends with
_NUMBERED = lazy(r"(.*?)(\d{1,9})")
MAX_CHARS = 200
MAX_HOSTS = 10_000
# A host name, or an address
_NAME = lazy(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
# What stands before, in and behind the brackets
_BRACKETS = lazy(r"([^\[\]]*)\[([^\[\]]*)\]([^\[\]]*)")
# A number, or the first and the last
_RANGE = lazy(r"(\d{1,9})(?:-(\d{1,9}))?")


def host_list(names: Iterable[str]) -> str:
    """Format `names` by common stem with their numbers as ranges, cut if too long: "node-[0-3,7],
    head".

    Stems are in the order of their first host, names without a number last; a name counts once.
    """
    parts: list[str] = []
    plain: list[str] = []
    digits_by_stem: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        if match := _NUMBERED.fullmatch(name):
            stem, number = match.groups()
            digits = digits_by_stem.setdefault(stem, [])
            digits.append(number)
        else:
            plain.append(name)

    for stem, digits in digits_by_stem.items():
        parts += _of_stem(stem, digits)
    parts += plain
    text = ", ".join(parts)
    if len(text) > MAX_CHARS:
        text = f"{text[: MAX_CHARS - 1]}…"
    return text


def _of_stem(stem: str, digits: Sequence[str]) -> Iterator[str]:
    """Yield the hosts of a stem, in order: one text, or one for each width.

    Numbers that are padded with zeros go by their width, as 7 and 007 are two hosts.
    """
    if not any(each.startswith("0") and len(each) > 1 for each in digits):
        yield _ranges(stem, 0, digits)
        return
    by_width: dict[int, list[str]] = {}
    for each in digits:
        alike = by_width.setdefault(len(each), [])
        alike.append(each)
    for width, alike in sorted(by_width.items()):
        yield _ranges(stem, width, alike)


def _ranges(stem: str, width: int, digits: Sequence[str]) -> str:
    """Format the hosts of a stem, their numbers padded to a width: "node-[0-3,7]", or "node-7" for
    one.
    """
    last_by_first: dict[int, int] = {}  # of each range
    first = -1
    last = -1
    for number in sorted(map(int, digits)):
        if not last_by_first or number > last + 1:
            first = number
        last = number
        last_by_first[first] = last
    ranges = []
    for first, last in last_by_first.items():
        text = f"{first:0{width}d}"
        if last > first:
            text += f"-{last:0{width}d}"
        ranges.append(text)
    if len(digits) == 1:
        return f"{stem}{ranges[0]}"
    joined = ",".join(ranges)
    return f"{stem}[{joined}]"


def expand(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts of `patterns`, in order; a number keeps the leading zeros that its range
    begins with: gpu-[08-10] is gpu-08, gpu-09, gpu-10.

    Raises ValueError for what is no host name, a range that is empty or malformed, a host that is
    there twice, and more than 10,000 hosts.
    """
    hosts: dict[str, None] = {}
    for pattern in patterns:
        for host in _of_pattern(pattern):
            if host in hosts:
                raise ValueError(f"host {host} is there twice")
            # A short pattern can stand for more than fits into memory
            if len(hosts) == MAX_HOSTS:
                raise ValueError(f"more than {MAX_HOSTS} hosts")
            hosts[host] = None
    return tuple(hosts)


def _of_pattern(pattern: str) -> Iterator[str]:
    """Yield the hosts of a name, or of a name with ranges; only one pair of brackets.

    Raises ValueError for what is neither.
    """
    names: Iterable[str] = [pattern]
    if match := _BRACKETS.fullmatch(pattern):
        before, ranges, after = match.groups()
        names = (before + number + after for number in _numbers(pattern, ranges))
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(
                "must be a host name, an address or a range such as gpu-[01-64], is "
                f"{pattern[:300]!r}"
            )
        yield name


def _numbers(pattern: str, ranges: str) -> Iterator[str]:
    """Yield the numbers of ranges, each as wide as the first of its range.

    `ranges` is what stands in the brackets of `pattern`. Raises ValueError for a range that is
    empty or malformed.
    """
    problem = f"a range must be as in gpu-[01-64,70], smaller number first, is {pattern[:300]!r}"
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise ValueError(problem)
        width = len(match[1])
        first = int(match[1])
        last = int(match[2] or first)
        if last < first:
            raise ValueError(problem)
        for number in range(first, last + 1):
            yield f"{number:0{width}d}"
