"""Take secrets out of text before it is written, shown or sent. Pure.

Known secrets are replaced wherever they stand, encoded ones too; others are known by what stands before them (a name
and `=` or `:`, a login in an address, an Authorization header) or by their shape. Time is linear in the text.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from seatrial.text.printable import printable
from seatrial.text.secret_values import SHORTEST, TOKEN, TOKEN_MARKS, forms, secrets_in

_HIDDEN = "***"
_MAX_PENDING = 64 * 1024  # characters of a line that has no end yet; then it is written as far as it is safe
_WORD_BACK = 8 * 1024  # characters: how far back a cut is moved so that it falls between two words
_MAX_KEY_LINES = 256  # a private key that does not end sooner is none: nobody hides a whole log behind its first line

# As SECRET_NAME; what is an everyday word in small letters ("auth: ...") counts only in the capitals of a variable.
_ASSIGNED = r"[\"']?[ \t]{0,20}[=:][ \t]{0,20}[\"']?)"
_VALUE = rf"(?![\d.,eE+-]{{1,40}}+(?:[\s}}\]]|$))[^\s\"',;&<>]{{{SHORTEST},}}+"  # numbers are none: tokens_per_s: 123.4
_NAMES = "token|secret|passw(?:or)?d|passphrase|credential|api_?key|access_?key|webhook|cookie|_pass(?=\\W)|_pwd(?=\\W)"
_Shape = tuple[tuple[str, ...], re.Pattern[str], str]
_SHAPES: tuple[_Shape, ...] = (  # what stands in every match, in small letters; the pattern; what stays of it
    (
        ("token", "secret", "passw", "passph", "credential", "key", "webhook", "cookie", "_pass", "_pwd"),
        re.compile(rf"((?i:{_NAMES})[\w.-]{{0,40}}+{_ASSIGNED}{_VALUE}"),
        rf"\1{_HIDDEN}",
    ),
    (
        ("auth", "private", "_key", "_dsn", "_pat"),
        re.compile(
            rf"(\b(?=[A-Z])(?=[A-Z0-9_]{{0,80}}?(?:AUTH|PRIVATE|_KEY|_DSN|_PAT\b))[\w.-]{{0,120}}+{_ASSIGNED}{_VALUE}"
        ),
        rf"\1{_HIDDEN}",
    ),
    (
        ("authorization",),
        re.compile(
            r"(?i)(authorization[\"']?[ \t]{0,20}[:=][ \t]{0,20}[\"']?"
            r"(?:(?:basic|bearer|token|digest|negotiate)[ \t]{1,20})?)[^\s\"']+"
        ),
        rf"\1{_HIDDEN}",
    ),
    (("bearer",), re.compile(r"(?i)(\bbearer[ \t]{1,20})[\w.~+/=-]{16,}+"), rf"\1{_HIDDEN}"),
    (("://",), re.compile(r"(\w://[^/\s:@\"']*+:)[^\s/\"']+@"), rf"\1{_HIDDEN}@"),
    (("://",), re.compile(r"(\w://)[^/\s:@\"']{16,}+@"), rf"\1{_HIDDEN}@"),
    (("hooks.slack.com/",), re.compile(r"(hooks\.slack\.com/\w{1,20}+/)[\w/-]++"), rf"\1{_HIDDEN}"),
    (TOKEN_MARKS, TOKEN, _HIDDEN),
)
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY")
_KEY_ENDS = re.compile(r"-----END [A-Z ]{0,40}PRIVATE KEY")


@dataclass(frozen=True)
class Secrets:
    """Secret values, and names of variables whose values only the nodes know."""

    values: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, environ: Mapping[str, str], names: Iterable[str] = ()) -> "Secrets":
        """Collect the secrets of an environment; it has no values for `names`."""
        return cls(tuple(secrets_in(environ)), tuple(names))

    @cached_property
    def longest(self) -> int:
        """Characters of the longest form of a value."""
        return max((len(form) for value in self.values for form in forms(value)), default=0)

    def hidden_in(self, text: str) -> str:
        """The text without the values in any of their forms, and without what is assigned to one of the names."""
        if pattern := _any_of(self.values):
            text = pattern.sub(_HIDDEN, text)
        if assigned := _assigned_to(self.names):
            text = assigned.sub(rf"\1{_HIDDEN}", text)
        return text

    def out_of(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines without them, and without what looks like a secret: fit to leave this machine."""
        redactor = Redactor(self)
        return (left for line in lines if (left := redactor.line(line)) or not line)

    def out_of_line(self, text: str) -> str:
        """Redact a text onto one line without control characters, to show to people."""
        return printable(self.out_of_text(text).rstrip("\n"))

    def out_of_text(self, text: str) -> str:
        """Redact a whole text."""
        redactor = Redactor(self)
        return redactor.feed(text) + redactor.end()


class Redactor:
    """Redacts text that arrives in pieces, whose cuts may fall into a line or into a secret.

    Memory is bounded: of a line without an end at most some 64 KiB wait.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._pending = ""  # the beginning of a line whose end has not arrived
        self._key_lines: int | None = None  # of the private key that the text is in

    def feed(self, text: str) -> str:
        """Add text; return what can be shown of it so far, without secrets."""
        whole, newline, self._pending = (self._pending + text).rpartition("\n")
        ready = self._whole(whole + newline)
        if len(self._pending) > _MAX_PENDING + self._secrets.longest:
            ready += self._beginning()
        return ready

    def end(self) -> str:
        """Return the rest after the last text."""
        rest, self._pending = self._pending, ""
        return self.line(rest) if rest else ""

    def line(self, line: str) -> str:
        """One line without secrets; empty where it is part of a private key."""
        if self._key_lines is not None or ("PRIVATE KEY" in line and _KEY_BEGINS.search(line)):
            return self._in_key(line)
        return _without_shapes(self._secrets.hidden_in(line))

    def _whole(self, lines: str) -> str:
        """Whole lines, all at once unless a private key is among them."""
        if self._key_lines is not None or "PRIVATE KEY" in lines:
            return "".join(map(self.line, _split(lines)))
        return _without_shapes(self._secrets.hidden_in(lines))

    def _beginning(self) -> str:
        """Return the unfinished line up to what may be the beginning of a secret, which waits."""
        text = self._secrets.hidden_in(self._pending)
        cut = len(text) - self._secrets.longest
        cut = max(text.rfind(" ", cut - _WORD_BACK, cut), 0) or cut
        self._pending = text[cut:]
        return self.line(text[:cut])

    def _in_key(self, line: str) -> str:
        first = self._key_lines is None
        self._key_lines = None if _KEY_ENDS.search(line) else (self._key_lines or 0) + 1
        if (self._key_lines or 0) > _MAX_KEY_LINES:
            self._key_lines = None
        return f"{_HIDDEN} a private key {_HIDDEN}\n" if first else ""


def redacted(lines: Iterable[str]) -> Iterator[str]:
    """The lines without what looks like a secret."""
    return Secrets().out_of(lines)


def _without_shapes(text: str, shapes: Sequence[_Shape] = _SHAPES) -> str:
    """Looking for what every match contains costs least, so nothing else is done to most lines."""
    lower = text.lower()
    present = [shape for shape in shapes if any(mark in lower for mark in shape[0])]
    if present and "\n" in text[:-1]:
        return "".join(_without_shapes(line, present) for line in _split(text))
    for _, pattern, instead in present:
        text = pattern.sub(instead, text)
    return text


def _split(text: str) -> list[str]:
    """The lines with their ends. Only a line feed ends one: str.splitlines knows a dozen others."""
    *whole, rest = text.split("\n")
    return [*(f"{line}\n" for line in whole), *([rest] if rest else [])]


@lru_cache(16)
def _any_of(values: tuple[str, ...]) -> re.Pattern[str] | None:
    """Matches each form of each value, the longest first."""
    all_forms = {form for value in values if value for form in forms(value)}
    return re.compile(_trie(sorted(all_forms))) if all_forms else None


def _trie(words: Sequence[str]) -> str:
    """A pattern for any of the sorted words, in which those that begin alike share their beginning.

    So the time per character depends on how many words begin with it, not on how many there are.
    """
    groups: dict[str, list[str]] = {}
    for word in filter(None, words):
        groups.setdefault(word[0], []).append(word)
    branches = []
    for group in groups.values():
        shared = _common_prefix(group[0], group[-1])
        branches.append(re.escape(shared) + _trie([word[len(shared) :] for word in group]))
    if not branches:
        return ""
    pattern = "|".join(branches)
    return f"(?:{pattern})?" if not words[0] else f"(?:{pattern})" if len(branches) > 1 else pattern


def _common_prefix(first: str, last: str) -> str:
    """Return the common prefix of all that is sorted between the two."""
    return next((first[:at] for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), first)


@lru_cache(16)
def _assigned_to(names: tuple[str, ...]) -> re.Pattern[str] | None:
    if not names:
        return None
    any_of = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.compile(rf"(\b(?:{any_of})[\"']?[ \t]{{0,20}}[=:][ \t]{{0,20}}[\"']?)[^\s\"']+")
