"""What a Dockerfile says about its inputs: the arguments it takes and the images it starts from. Pure."""

import re
from collections.abc import Iterator, Mapping

_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """(keyword, rest) of each instruction, comments left out and continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\[ \t]*\n", " ", "\n".join(lines)).splitlines():
        keyword, _, rest = line.strip().partition(" ")
        if keyword:
            yield keyword.upper(), rest.strip()


def arguments(text: str) -> set[str]:
    """The names of the build arguments that it takes."""
    return {word.split("=")[0] for keyword, rest in instructions(text) if keyword == "ARG" for word in _words(rest)}


def bases(text: str, given: Mapping[str, str]) -> list[str]:
    """The images it starts from or copies from, in order and once each, with the `given` arguments filled in."""
    known: dict[str, str] = {}
    stages = {"scratch"}
    images: list[str] = []
    for keyword, rest in instructions(text):
        if keyword == "ARG" and not images:
            known |= _defaults(rest, known, given)
        elif keyword == "FROM":
            words = [word for word in rest.split() if not word.startswith("--")]
            images += _outside(_filled(words[0], known), stages)
            stages |= {words[2].lower()} if len(words) > 2 else set()
        elif keyword == "COPY" and (source := re.search(r"--from=(\S+)", rest)) and not source[1].isdigit():
            images += _outside(_filled(source[1], known), stages)
    return list(dict.fromkeys(images))


def _outside(image: str, stages: set[str]) -> list[str]:
    return [] if image.lower() in stages else [image]


def _defaults(rest: str, known: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The values of one ARG instruction before the first FROM: only those count there."""
    pairs = (word.partition("=") for word in _words(rest))
    return {name: given.get(name, _filled(default.strip("\"'"), known)) for name, _, default in pairs}


def _filled(text: str, known: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: known.get(match[1] or match[3]) or match[2] or "", text)


def _words(rest: str) -> list[str]:
    return re.findall(r"(?:\"[^\"]*\"|'[^']*'|\S)+", rest)
