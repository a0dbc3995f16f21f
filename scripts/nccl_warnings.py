"""Write `seatrial/causes/warnings.csv`: what NCCL's and RCCL's warnings say, since and until which
release.

    python -m scripts.nccl_warnings NCCL_CLONE [RCCL_CLONE]

Reads the first argument of each `WARN(...)` in `src/` of every release tag of the clones. A
conversion (`%d`) becomes `*`. The class of a warning is that of the first rule in
`scripts/nccl_warning_classes.csv` whose pattern is found in it, else of the result that the code
returns right after it. A warning after which the code returns no error is a note. Run it for a new
release, and read the diff.
"""

import csv
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "seatrial" / "causes" / "warnings.csv"
RULES = Path(__file__).parent / "nccl_warning_classes.csv"
COLUMNS = ("library", "first", "last", "class", "severity", "format")
OLDEST = {"nccl": (2, 18), "rccl": (5, 7)}
TAGS = {"nccl": r"v(\d+)\.(\d+)\.(\d+)-1", "rccl": r"rocm-(\d+)\.(\d+)\.(\d+)"}
OF_RESULT = {  # of the result that a function returns after the warning
    "ncclInvalidArgument": "program",
    "ncclInvalidUsage": "user",
    "ncclRemoteError": "link",
    "ncclSystemError": "software",
    "ncclInternalError": "software",
    "ncclUnhandledCudaError": "hardware",
}

_CALL = re.compile(r"\bWARN\s*\(")
_PIECE = re.compile(
    r'"(?P<text>(?:[^"\\]|\\.)*)"|(?P<word>#?#?\w+)|(?P<mark>[(),])|(?P<other>.)', re.DOTALL
)
_CONVERSION = re.compile(
    r"%(?:[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t)?[diouxXeEfFgGaAcspm])"
)
_RETURNED = re.compile(
    "(?:return|ret ?=|res ?=|result ?=|RET ?=|, "
    r"?)\s*(nccl(?:[A-Z][a-z]+)+(?:Error|Argument|Usage))\b"
)
_FAILS = re.compile(r"\bgoto (?:fail|exit|error|\w*[Ff]ail\w*)\b|return NULL|return -1")


class Warning(NamedTuple):
    """A format, and the name of the result that the code returns after it; an empty one for an
    unnamed error.
    """

    format: str
    result: str | None


def warnings_of(source: str) -> Iterator[Warning]:
    """Yield what each WARN of a C++ source says. Words of a macro count as a conversion."""
    for call in _CALL.finditer(source):
        depth, pieces, end = 1, [], call.end()
        for piece in _PIECE.finditer(source, call.end()):
            end = piece.end()
            depth += {"(": 1, ")": -1}.get(piece["mark"] or "", 0)
            if depth == 0 or (depth == 1 and piece["mark"] == ","):
                break
            pieces.append("%s" if piece["word"] else piece["text"] or "")
        if message := normalized("".join(pieces)):
            yield Warning(message, result_after(source[end : end + 600]))


def normalized(text: str) -> str:
    """Return a format on one line, without escapes and with `*` for each variable part.

    Empty if nothing is constant.
    """
    first = text.replace("%%", "\0").split("\\n")[0]
    line = _CONVERSION.sub("*", first.replace('\\"', '"').replace("%s", "*"))
    line = re.sub(r"\*+", "*", " ".join(line.replace("\0", "%").split()))
    return line if re.search(r"[A-Za-z]{3}", line) else ""


def result_after(code: str) -> str | None:
    """Return the result that the code returns in its next statements, before its block ends or it
    warns again.
    """
    statements = re.split(r"\bWARN\s*\(|\n\s*\}", code.partition(";")[2])[0]
    if match := _RETURNED.search(statements):
        return match[1]
    return "" if _FAILS.search(statements) else None


def releases(clone: str, library: str) -> list[tuple[tuple[int, ...], str]]:
    """Return the tags of releases, oldest first, as version and tag."""
    tags = git(clone, "tag").split()
    tagged = [
        (tuple(map(int, match.groups())), tag)
        for tag in tags
        if (match := re.fullmatch(TAGS[library], tag))
    ]
    return sorted(entry for entry in tagged if entry[0][:2] >= OLDEST[library])


def git(clone: str, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", clone, *arguments], capture_output=True, check=False)
    return done.stdout.decode(errors="replace")


def read_library(clone: str, library: str) -> dict[str, dict[str, str]]:
    """Return the rows of one library by format, without their class."""
    rows: dict[str, dict[str, str]] = {}
    for version, tag in releases(clone, library):
        name = ".".join(map(str, version))
        for path in git(clone, "grep", "-l", r"WARN *(", tag, "--", "src").splitlines():
            if not path.endswith((".cc", ".h", ".cu", ".cpp")):
                continue
            for message, result in warnings_of(git(clone, "show", path)):
                row = rows.setdefault(
                    message, {"library": library, "first": name, "format": message}
                )
                row["last"] = name
                row["result"] = result or row.get("result") or ("error" if result == "" else "")
    return rows


def main() -> None:
    """Write the table, and print how many warnings it has of each class."""
    if not sys.argv[1:]:
        sys.exit(__doc__)
    rows: dict[str, dict[str, str]] = {}
    for clone, library in zip(sys.argv[1:], ("nccl", "rccl"), strict=False):
        rows = read_library(clone, library) | rows
    with RULES.open(encoding="utf-8", newline="") as file:
        rules = [(re.compile(rule["pattern"]), rule) for rule in csv.DictReader(file)]
    for row in rows.values():
        rule = next((rule for pattern, rule in rules if pattern.search(row["format"])), {})
        result = row.pop("result")
        row["class"] = rule.get("class") or OF_RESULT.get(result, "software")
        row["severity"] = rule.get("severity") or ("fatal" if result else "note")
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows.values(), key=lambda row: row["format"]))
    sys.stdout.write(f"{len(rows)} warnings in {TABLE}\n")


if __name__ == "__main__":
    main()
