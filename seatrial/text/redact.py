"""Know secrets by their names and shapes, and take them out of text before it is written, shown or
sent. Pure.

Known secrets are replaced wherever they stand, encoded ones too; others are known by what stands
before them (a name and `=` or `:`, a login in an address, an Authorization header) or by their
shape. Time is linear in the text.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from seatrial.text.lazy_pattern import any_word, lazy
from seatrial.text.printable import printable

Clean = Callable[[str], str]  # takes secrets and control characters out of a text
SHORTEST = 8  # characters: a shorter value would be found in harmless text
SECRET_NAME = lazy(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|_PASS$|_PWD$|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|AUTH|_KEY$|_DSN$|_PAT$"
    r"|WEBHOOK|COOKIE",
    re.IGNORECASE,
)
# Hugging Face, GitHub, GitLab, Slack, AWS, Google, NVIDIA, OpenAI; JSON web tokens. Each
# alternative consumes a whole run of its characters once, so the time is linear: within a run no
# second attempt starts.
TOKEN = lazy(
    r"\b(?:hf_\w{20,}+|gh[pousr]_\w{20,}+|github_pat_\w{20,}+|glpat-[\w-]{20,}+|xox[abeoprs]-[\w-]{10,}+"
    r"|xapp-[\w-]{10,}+|(?:AKIA|ASIA)[0-9A-Z]{16}|ya29\.[\w-]{20,}+|AIza[\w-]{35}|nvapi-[\w-]{20,}+|sk-[\w-]{20,}+)"
    r"|(?<![\w-])(?>[\w-]*?eyJ)[\w-]{10,}+\.[\w-]{10,}+\.[\w-]++"
)
TOKEN_MARKS = (
    *(
        "hf_",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "xox",
        "xapp-",
        "akia",
        "asia",
        "ya29.",
    ),
    *("aiza", "nvapi-", "sk-", "eyj"),
)
"""What stands in every text that TOKEN matches, in small letters."""

_PASSWORD = lazy(r"://[^/\s:@]*+:([^\s@]++)@")
_PASSWORD_WITH_AT = lazy(r"://[^/\s:@]*+:([^\s/]+)@")
# Of an address: its name with "=", and its value. What is called sslkey is a file.
SECRET_OPTION = lazy(
    r"([?&;\s][\w.-]*(?:passw|pwd|secret|token|sig|(?<!ssl)key)[\w.-]*=)([^&;\s]*)", re.IGNORECASE
)
_SHORTEST_PASSWORD = 6
# Default passwords and settings whose variable only sounds secret (X_AUTH=disabled): hidden, they
# would spoil the text.
_ORDINARY = frozenset(
    {"password", "passwd", "postgres", "disabled", "required", "optional", "kerberos", "username"}
)
# Names that say that a value is an identifier, however random it looks.
_IDENTIFIER = lazy(
    r"HOST|NODE|POD|NAME|USER|COMMIT|SHA|HASH|DIGEST|REVISION|VERSION|IMAGE|PATH|DIR|HOME|UUID|_ID$",
    re.IGNORECASE,
)
_RANDOM = lazy(r"(?!/)[A-Za-z0-9+/=_-]{20,512}")
_HEX = lazy(r"[0-9a-f]{32,}|[0-9A-F]{32,}")
_URL_SAFE = str.maketrans("+/", "-_")
_HIDDEN = "***"
# Characters of a line that has no end yet; then it is written as far as it is safe
_MAX_PENDING = 64 * 1024
_WORD_BACK = 8 * 1024  # characters: how far back a cut is moved so that it falls between two words
# A private key that does not end sooner is none: nobody hides a whole log behind its first line
_MAX_KEY_LINES = 256
# As SECRET_NAME; what is an everyday word in small letters ("auth: ...") counts only in the
# capitals of a variable.
_ASSIGNED = r"[\"']?[ \t]{0,20}[=:][ \t]{0,20}[\"']?)"
# Numbers are none: tokens_per_s: 123.4
_VALUE = rf"(?![\d.,eE+-]{{1,40}}+(?:[\s}}\]]|$))[^\s\"',;&<>]{{{SHORTEST},}}+"
_NAMES = "token|secret|passw(?:or)?d|passphrase|credential|api_?key|access_?key|webhook|cookie|_pass(?=\\W)|_pwd(?=\\W)"
_Shape = tuple[tuple[str, ...], re.Pattern[str], str]
# What stands in every match, in small letters; the pattern; what stays of it
_SHAPES: tuple[_Shape, ...] = (
    (
        (
            "token",
            "secret",
            "passw",
            "passph",
            "credential",
            "key",
            "webhook",
            "cookie",
            "_pass",
            "_pwd",
        ),
        lazy(rf"((?i:{_NAMES})[\w.-]{{0,40}}+{_ASSIGNED}{_VALUE}"),
        rf"\1{_HIDDEN}",
    ),
    (
        ("auth", "private", "_key", "_dsn", "_pat"),
        lazy(
            rf"(\b(?=[A-Z])(?=[A-Z0-9_]{{0,80}}?(?:AUTH|PRIVATE|_KEY|_DSN|_PAT\b))[\w.-]{{0,120}}+{_ASSIGNED}{_VALUE}"
        ),
        rf"\1{_HIDDEN}",
    ),
    (
        ("authorization",),
        lazy(
            r"(?i)(authorization[\"']?[ \t]{0,20}[:=][ \t]{0,20}[\"']?"
            r"(?:(?:basic|bearer|token|digest|negotiate)[ \t]{1,20})?)[^\s\"']+"
        ),
        rf"\1{_HIDDEN}",
    ),
    (("bearer",), lazy(r"(?i)(\bbearer[ \t]{1,20})[\w.~+/=-]{16,}+"), rf"\1{_HIDDEN}"),
    (("://",), lazy(r"(\w://[^/\s:@\"']*+:)[^\s/\"']+@"), rf"\1{_HIDDEN}@"),
    (("://",), lazy(r"(\w://)[^/\s:@\"']{16,}+@"), rf"\1{_HIDDEN}@"),
    (("hooks.slack.com/",), lazy(r"(hooks\.slack\.com/\w{1,20}+/)[\w/-]++"), rf"\1{_HIDDEN}"),
    (TOKEN_MARKS, TOKEN, _HIDDEN),
)
_KEY_BEGINS = lazy(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY")
_KEY_ENDS = lazy(r"-----END [A-Z ]{0,40}PRIVATE KEY")
_ASSIGNMENT = lazy(
    r"(?<![\w.-])(?P<name>[\w.-]{1,256}+)[\"']?[ \t]{0,20}[=:][ \t]{0,20}[\"']?(?=[^\s\"'])"
)
_ASSIGNED_VALUE = lazy(r"[^\s\"']+")


def looks_secret(name: str) -> bool:
    """Return whether a variable of that name is secret."""
    return bool(SECRET_NAME.search(name))


def secrets_in(environ: Mapping[str, str]) -> list[str]:
    """Return the values in an environment that must not be shown, the longest first.

    They are values whose variable's name says so, values that look like a token, and passwords in
    URLs.
    """
    values = {
        value for name, text in environ.items() for value in _secrets_of(name, text)
    } - _ORDINARY
    return sorted(values, key=lambda value: (-len(value), value))


def _secrets_of(name: str, text: str) -> Iterator[str]:
    if looks_secret(name):
        yield from (line for line in text.splitlines() if len(line) >= SHORTEST)
    elif not _IDENTIFIER.search(name) and _is_random(text):
        yield text
    yield from (match[0] for match in TOKEN.finditer(text))
    passwords = [
        match[1] for each in (_PASSWORD, _PASSWORD_WITH_AT) for match in each.finditer(text)
    ]
    for password in (*passwords, *(match[2] for match in SECRET_OPTION.finditer(text))):
        for form in (password, unquote(password), unquote_plus(password)):
            if len(form) >= (SHORTEST if form.isalpha() else _SHORTEST_PASSWORD):
                yield form


def _is_random(text: str) -> bool:
    """Return whether a text looks generated: hexadecimal, or letters of both cases and digits in
    constant change.
    """
    if _HEX.fullmatch(text):
        return True
    if not _RANDOM.fullmatch(text):
        return False
    kinds = [(c.isdigit(), c.isupper()) for c in text if c.isalnum()]
    return len(set(kinds)) == 3 and sum(a != b for a, b in pairwise(kinds)) * 4 >= len(kinds)


def forms(value: str) -> set[str]:
    """Return the value as it is, escaped in JSON, URL-encoded, and in base64 at each of the three
    offsets.
    """
    if len(value) < SHORTEST:
        return {value}
    encoded = {quote(value, safe=""), quote(value), quote_plus(value), json.dumps(value)[1:-1]}
    encoded |= {
        re.sub("%..", lambda escape: escape[0].lower(), text) for text in encoded if "%" in text
    }
    return {value, *encoded, *_base64(value)}


def _base64(value: str) -> Iterator[str]:
    """Yield the characters that depend on the value alone, for each of the three offsets of its
    first byte.
    """
    data = value.encode(errors="surrogateescape")
    for before, shared in enumerate((0, 2, 3)):
        text = base64.b64encode(bytes(before) + data).decode()[
            shared : (before + len(data)) * 8 // 6
        ]
        yield text
        yield text.translate(_URL_SAFE)


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
        """Return the text without the values in any of their forms, and without what is assigned to
        the names.
        """
        if self._pattern:
            text = self._pattern.sub(_HIDDEN, text)
        return _without_assigned(text, self._names) if self._names else text

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return _any_of(self.values)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.names)

    def out_of(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines without these secrets and whatever looks like one, so that they may leave
        this machine.
        """
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
        lines = whole + newline
        if self._key_lines is not None or "PRIVATE KEY" in lines:
            ready = "".join(map(self.line, _split(lines)))
        else:  # all lines at once
            ready = _without_shapes(self._secrets.hidden_in(lines))
        if len(self._pending) > _MAX_PENDING + self._secrets.longest:
            # An unfinished line goes up to what may be the beginning of a secret, which waits.
            pending = self._secrets.hidden_in(self._pending)
            cut = len(pending) - self._secrets.longest
            cut = max(pending.rfind(" ", cut - _WORD_BACK, cut), 0) or cut
            self._pending = pending[cut:]
            ready += self.line(pending[:cut])
        return ready

    def end(self) -> str:
        """Return the rest after the last text."""
        rest = self._pending
        self._pending = ""
        return self.line(rest) if rest else ""

    def line(self, line: str) -> str:
        """Return one line without secrets; empty where it is part of a private key."""
        begins = self._key_lines is None
        if begins and not ("PRIVATE KEY" in line and _KEY_BEGINS.search(line)):
            return _without_shapes(self._secrets.hidden_in(line))
        self._key_lines = None if _KEY_ENDS.search(line) else (self._key_lines or 0) + 1
        if (self._key_lines or 0) > _MAX_KEY_LINES:
            self._key_lines = None
        return f"{_HIDDEN} a private key {_HIDDEN}\n" if begins else ""


def redacted(lines: Iterable[str]) -> Iterator[str]:
    """Return the lines without what looks like a secret."""
    return Secrets().out_of(lines)


def _without_shapes(text: str, shapes: Sequence[_Shape] = _SHAPES) -> str:
    """Remove what looks like a secret.

    First look for what every match contains, which is cheap and rules most lines out.
    """
    lower = text.lower()
    present = [shape for shape in shapes if any(mark in lower for mark in shape[0])]
    if present and "\n" in text[:-1]:
        return "".join(_without_shapes(line, present) for line in _split(text))
    for _, pattern, instead in present:
        text = pattern.sub(instead, text)
    return text


def _split(text: str) -> list[str]:
    """Return the lines with their ends.

    Only a line feed ends a line: str.splitlines knows a dozen others.
    """
    *whole, rest = text.split("\n")
    return [*(f"{line}\n" for line in whole), *([rest] if rest else [])]


@lru_cache(16)
def _any_of(values: tuple[str, ...]) -> re.Pattern[str] | None:
    """Make a pattern for each form of each value; None without values."""
    all_forms = {form for value in values if value for form in forms(value)}
    return lazy(any_word(all_forms)) if all_forms else None


def _without_assigned(text: str, names: frozenset[str]) -> str:
    """Return the text without what is assigned to one of the names.

    The time does not depend on the number of names.
    """
    shown = []
    done = 0
    for assignment in _ASSIGNMENT.finditer(text):
        if assignment.start() < done or not _is_one_of(assignment["name"], names):
            continue
        value = _ASSIGNED_VALUE.match(text, assignment.end())
        assert value is not None  # the pattern looks ahead for it
        shown += [text[done : assignment.end()], _HIDDEN]
        done = value.end()
    return "".join(shown) + text[done:]


def _is_one_of(name: str, names: frozenset[str]) -> bool:
    """Return whether `name` is one of the names, or ends with one behind a dot or a dash, as
    config.TOKEN does.
    """
    starts = [0, *(match.end() for match in re.finditer(r"[.-]", name))]
    return any(name[start:] in names for start in starts)
