"""Take secrets out of text before it leaves this machine. Pure.

Known secrets are replaced wherever they stand; others are known by what stands before them (a name and `=` or `:`, a
login in an address, an Authorization header) or by their shape.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

_HIDDEN = "***"
_SHORTEST = 8  # characters: a shorter value would be found in harmless text
SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|AUTH|_KEY$|_DSN$|WEBHOOK", re.IGNORECASE
)
# As SECRET_NAME; what is an everyday word in small letters ("auth: ...") counts only in the capitals of a variable.
_ASSIGNED = r"[\w.-]{0,40}[\"']?\s*[=:]\s*[\"']?)"
_VALUE = rf"(?![\d.,]+(?:\s|$))[^\s\"',;&<>]{{{_SHORTEST},}}"
_SHAPES = (
    # NAME=value, "name": "value"; numbers alone are none (tokens_per_s: 1234.5)
    (
        re.compile(rf"((?i:token|secret|passw(?:or)?d|credential|api_?key|access_?key|webhook){_ASSIGNED}{_VALUE}"),
        rf"\1{_HIDDEN}",
    ),
    (re.compile(rf"(\b[A-Z][A-Z0-9_]*(?:AUTH|PRIVATE|_KEY|_DSN){_ASSIGNED}{_VALUE}"), rf"\1{_HIDDEN}"),
    (re.compile(r"(?i)(authorization[\"']?\s*[:=]\s*[\"']?(?:(?:basic|bearer|token)\s+)?)[^\s\"']+"), rf"\1{_HIDDEN}"),
    (re.compile(r"(?i)(\bbearer\s+)[\w.~+/=-]{16,}"), rf"\1{_HIDDEN}"),
    (re.compile(r"(\w://[^/\s:@\"']*:)[^@\s/\"']+@"), rf"\1{_HIDDEN}@"),
    # Hugging Face, GitHub, Slack, AWS, Google, JSON web tokens
    (
        re.compile(
            r"\b(?:hf_\w{20,}|gh[pousr]_\w{20,}|xox[abeoprs]-[\w-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|ya29\.[\w-]{20,}"
            r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+)"
        ),
        _HIDDEN,
    ),
)
_KEY_BEGINS, _KEY_ENDS = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"), re.compile(r"-----END [A-Z ]*PRIVATE KEY")


@dataclass(frozen=True, slots=True)
class Secrets:
    """What is known to be secret: values, and names of variables whose values only the nodes know."""

    values: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, environ: Mapping[str, str], names: Iterable[str] = ()) -> "Secrets":
        """Those of an environment, and `names` of which it has no value."""
        return cls(tuple(secrets_in(environ)), tuple(names))

    def hidden_in(self, text: str) -> str:
        """The text without the values, and without what is assigned to one of the names."""
        for value in self.values:
            text = text.replace(value, _HIDDEN)
        for name in self.names:
            text = _assigned_to(name).sub(rf"\1{_HIDDEN}", text)
        return text

    def out_of(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines without them, and without what looks like a secret: fit to leave this machine."""
        return redacted(map(self.hidden_in, lines))


@cache
def _assigned_to(name: str) -> re.Pattern[str]:
    return re.compile(rf"(\b{re.escape(name)}[\"']?[ \t]*[=:][ \t]*[\"']?)[^\s\"']+")


def looks_secret(name: str) -> bool:
    """Whether a variable of that name holds what must not be shown."""
    return bool(SECRET_NAME.search(name))


def secrets_in(environ: Mapping[str, str]) -> list[str]:
    """The values in an environment that must not be shown, the longest first."""
    values = {line for name, value in environ.items() if looks_secret(name) for line in value.splitlines()}
    return sorted((value for value in values if len(value) >= _SHORTEST), key=len, reverse=True)


def redacted(lines: Iterable[str]) -> Iterator[str]:
    """The lines without what looks like a secret."""
    in_key = False
    for line in lines:
        if in_key or _KEY_BEGINS.search(line):
            if not in_key:
                yield f"{_HIDDEN} a private key {_HIDDEN}\n"
            in_key = not _KEY_ENDS.search(line)
            continue
        yield _shapeless(line)


def _shapeless(line: str) -> str:
    for shape, instead in _SHAPES:
        line = shape.sub(instead, line)
    return line
