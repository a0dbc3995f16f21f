"""Write the digest of each base image behind its tag, so that a build starts from the same image
until this runs again.

    python -m scripts.base_images      `make base-images`

Names are in Dockerfiles (ARG NAME=IMAGE, FROM IMAGE) and in the manifests of deployments/server. A
registry that does not answer leaves its names as they are, and the exit status is 1.
"""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from seatrial.builders.registry import look_up
from seatrial.builders.stored import UnreachableError

ROOT = Path(__file__).parents[1]
PLACES = (
    "images/*/Dockerfile",
    "deployments/server/Dockerfile",
    "deployments/server/*.yaml",
    "deployments/server/kubernetes/*.yaml",
)
_TAGGED = r"(?P<image>[a-z0-9][a-z0-9./-]*:[A-Za-z0-9_.-]+)(?P<digest>@sha256:[0-9a-f]{64})?"
_LINE = re.compile(rf"^(?P<before>ARG [A-Z_]+=|FROM |\s*image: ){_TAGGED}(?=\s|$)", re.MULTILINE)

FindDigest = Callable[[str], str | None]


def main() -> None:
    failed = [problem for file in files() for problem in renewed(file, digest_of)]
    for problem in failed:
        print(problem, file=sys.stderr)
    sys.exit(1 if failed else 0)


def files() -> list[Path]:
    return sorted(file for pattern in PLACES for file in ROOT.glob(pattern))


def images(text: str) -> Iterator[str]:
    """Yield the base images of a file, without digests."""
    for match in _LINE.finditer(text):
        yield match["image"]


def digest_of(image: str) -> str | None:
    """Return the digest that the registry has for the tag. Raises UnreachableError."""
    stored = look_up(image)
    return stored.digest if stored else None


def renewed(file: Path, find: FindDigest) -> list[str]:
    """Write the digests into the file; return a line for each image whose digest cannot be had."""
    problems: list[str] = []

    def with_digest(match: re.Match[str]) -> str:
        image = match["image"]
        try:
            digest = find(image)
        except UnreachableError as error:
            problems.append(f"{file}: {image}: {error}")
            return match[0]
        if digest is None:
            problems.append(f"{file}: {image}: its registry does not have it")
            return match[0]
        print(f"{image}@{digest}")
        return f"{match['before']}{image}@{digest}"

    text = file.read_text()
    file.write_text(_LINE.sub(with_digest, text))
    return problems


if __name__ == "__main__":
    main()
