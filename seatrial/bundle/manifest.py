"""SHA256SUMS: one line per file, as sha256sum writes and checks it. Pure."""

import io
import re
from collections.abc import Mapping

_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def manifest_text(digests: Mapping[str, str]) -> str:
    """A line per file, by name."""
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))


def read_manifest(text: str) -> dict[str, str]:
    """Digest by name. Raises ValueError that names the line that is none."""
    digests: dict[str, str] = {}
    lines = (line.removesuffix("\n") for line in io.StringIO(text))  # ends at "\n" alone, and makes no list of all
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match and match[2] not in digests:
            digests[match[2]] = match[1]
        elif line:
            raise ValueError(f"line {number} is no checksum, or of a file that has one already")
    return digests


def first_difference(listed: Mapping[str, str], digests: Mapping[str, str]) -> str:
    """The first file that is not as listed, and how; "" where all are."""
    for name, digest in listed.items():
        if name not in digests:
            return f"{name}: is missing"
        if digests[name] != digest:
            return f"{name}: is not what it was"
    added = [name for name in digests if name not in listed]
    return f"{added[0]}: was added" if added else ""


def fits(name: str) -> bool:
    """Whether a manifest can hold that name: sha256sum escapes backslashes and line ends, and we do without."""
    return name.isprintable() and "\\" not in name
