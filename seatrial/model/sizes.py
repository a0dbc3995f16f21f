"""Message sizes as people write them: 8, 64K, 16M, 8G.

Binary, as nccl-tests reads them (K is 2^10).
"""

import re

_SUFFIX = {"": 0, "k": 10, "m": 20, "g": 30}
_SIZE = re.compile(r"(\d+)\s*([kmg]?)i?b?", re.IGNORECASE)


def parse_size(value: object) -> int:
    """Return bytes of `value`, a count or text such as "64M".

    Raises ValueError naming what is legal.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(str(value).strip())
    if not match:
        raise ValueError(f"must be a size in bytes such as 8, 64K, 16M or 8G, got {value!r}")
    return int(match[1]) << _SUFFIX[match[2].lower()]


def format_size(size: int) -> str:
    """Format `size` in the shortest exact way: 8388608 is "8M", 1000 is "1000"."""
    for suffix, shift in (("G", 30), ("M", 20), ("K", 10)):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{suffix}"
    return str(size)


def size_span(smallest: int, largest: int) -> str:
    """Format a range of sizes: "8 to 64K", or one size."""
    first = format_size(smallest)
    last = format_size(largest)
    return first if first == last else f"{first} to {last}"
