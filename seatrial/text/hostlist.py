"""Many host names in one short text, as Slurm and pdsh write them: node-[0-31,40]. Pure."""

import re
from collections.abc import Iterable
from itertools import groupby

_NUMBERED = re.compile(r"(.*?)(\d{1,9})")
MAX_CHARS = 200


def host_list(names: Iterable[str]) -> str:
    """`names` by common stem with their numbers as ranges, cut where it gets long: "node-[0-3,7], head"."""
    plain: list[str] = []
    digits_by_stem: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        if match := _NUMBERED.fullmatch(name):
            digits_by_stem.setdefault(match[1], []).append(match[2])
        else:
            plain.append(name)
    parts = [part for stem, digits in digits_by_stem.items() for part in _of_stem(stem, digits)]
    parts += plain
    text = ", ".join(parts)
    return text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 1]}…"


def _of_stem(stem: str, digits: list[str]) -> list[str]:
    """Numbers that are padded with zeros go by their width, as 7 and 007 are two hosts."""
    if not any(each.startswith("0") and len(each) > 1 for each in digits):
        return [_ranges(stem, 0, sorted(map(int, digits)))]
    widths = sorted({len(each) for each in digits})
    return [_ranges(stem, width, sorted(int(each) for each in digits if len(each) == width)) for width in widths]


def _ranges(stem: str, width: int, values: list[int]) -> str:
    runs = [
        [value for _, value in run]
        for _, run in groupby(enumerate(values), key=lambda indexed: indexed[1] - indexed[0])
    ]
    texts = [f"{run[0]:0{width}d}" if len(run) == 1 else f"{run[0]:0{width}d}-{run[-1]:0{width}d}" for run in runs]
    return f"{stem}{texts[0]}" if len(values) == 1 else f"{stem}[{','.join(texts)}]"
