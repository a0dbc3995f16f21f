"""Secret values of an environment, and the forms in which they may be printed. Pure."""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from urllib.parse import quote, quote_plus, unquote, unquote_plus

SHORTEST = 8  # characters: a shorter value would be found in harmless text
SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|_PASS$|_PWD$|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|AUTH|_KEY$|_DSN$|_PAT$"
    r"|WEBHOOK|COOKIE",
    re.IGNORECASE,
)
# Hugging Face, GitHub, GitLab, Slack, AWS, Google, NVIDIA, OpenAI; JSON web tokens. Each alternative consumes a whole
# run of its characters once, so the time is linear: within a run no second attempt starts.
TOKEN = re.compile(
    r"\b(?:hf_\w{20,}+|gh[pousr]_\w{20,}+|github_pat_\w{20,}+|glpat-[\w-]{20,}+|xox[abeoprs]-[\w-]{10,}+"
    r"|xapp-[\w-]{10,}+|(?:AKIA|ASIA)[0-9A-Z]{16}|ya29\.[\w-]{20,}+|AIza[\w-]{35}|nvapi-[\w-]{20,}+|sk-[\w-]{20,}+)"
    r"|(?<![\w-])(?>[\w-]*?eyJ)[\w-]{10,}+\.[\w-]{10,}+\.[\w-]++"
)
TOKEN_MARKS = (
    *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "xapp-", "akia", "asia", "ya29."),
    *("aiza", "nvapi-", "sk-", "eyj"),
)
"""What stands in every text that TOKEN matches, in small letters."""

_PASSWORD = re.compile(r"://[^/\s:@]*+:([^\s@]++)@")
_PASSWORD_WITH_AT = re.compile(r"://[^/\s:@]*+:([^\s/]+)@")
# Of an address: its name with "=", and its value. What is called sslkey is a file.
SECRET_OPTION = re.compile(
    r"([?&;\s][\w.-]*(?:passw|pwd|secret|token|sig|(?<!ssl)key)[\w.-]*=)([^&;\s]*)", re.IGNORECASE
)
_SHORTEST_PASSWORD = 6
# Default passwords and settings whose variable only sounds secret (X_AUTH=disabled): hidden, they would spoil the text.
_ORDINARY = frozenset({"password", "passwd", "postgres", "disabled", "required", "optional", "kerberos", "username"})
# Names that say that a value is an identifier, however random it looks.
_IDENTIFIER = re.compile(
    r"HOST|NODE|POD|NAME|USER|COMMIT|SHA|HASH|DIGEST|REVISION|VERSION|IMAGE|PATH|DIR|HOME|UUID|_ID$", re.IGNORECASE
)
_RANDOM = re.compile(r"(?!/)[A-Za-z0-9+/=_-]{20,512}")
_HEX = re.compile(r"[0-9a-f]{32,}|[0-9A-F]{32,}")


def looks_secret(name: str) -> bool:
    """Return whether a variable of that name is secret."""
    return bool(SECRET_NAME.search(name))


def secrets_in(environ: Mapping[str, str]) -> list[str]:
    """The values in an environment that must not be shown, the longest first.

    They are values whose variable's name says so, values that look like a token, and passwords in URLs.
    """
    values = {value for name, text in environ.items() for value in _secrets_of(name, text)} - _ORDINARY
    return sorted(values, key=lambda value: (-len(value), value))


def _secrets_of(name: str, text: str) -> Iterator[str]:
    if looks_secret(name):
        yield from (line for line in text.splitlines() if len(line) >= SHORTEST)
    elif not _IDENTIFIER.search(name) and _is_random(text):
        yield text
    yield from (match[0] for match in TOKEN.finditer(text))
    passwords = [match[1] for each in (_PASSWORD, _PASSWORD_WITH_AT) for match in each.finditer(text)]
    for password in (*passwords, *(match[2] for match in SECRET_OPTION.finditer(text))):
        yield from (form for form in (password, unquote(password), unquote_plus(password)) if _is_password(form))


def _is_password(text: str) -> bool:
    return len(text) >= (SHORTEST if text.isalpha() else _SHORTEST_PASSWORD)


def _is_random(text: str) -> bool:
    """Return whether it looks generated: hexadecimal, or letters of both cases and digits in constant change."""
    if _HEX.fullmatch(text):
        return True
    if not _RANDOM.fullmatch(text):
        return False
    kinds = [(c.isdigit(), c.isupper()) for c in text if c.isalnum()]
    return len(set(kinds)) == 3 and sum(a != b for a, b in pairwise(kinds)) * 4 >= len(kinds)


def forms(value: str) -> set[str]:
    """The value as it is, escaped in JSON, URL-encoded, and in base64 wherever it begins within what is encoded."""
    if len(value) < SHORTEST:
        return {value}
    encoded = {quote(value, safe=""), quote(value), quote_plus(value), json.dumps(value)[1:-1]}
    encoded |= {re.sub("%..", lambda escape: escape[0].lower(), text) for text in encoded if "%" in text}
    return {value, *encoded, *_base64(value)}


def _base64(value: str) -> Iterator[str]:
    """The characters that depend on the value alone, for each of the three places where its first byte may fall."""
    data = value.encode(errors="surrogateescape")
    for before, shared in enumerate((0, 2, 3)):
        text = base64.b64encode(bytes(before) + data).decode()[shared : (before + len(data)) * 8 // 6]
        yield text
        yield text.translate(_URL_SAFE)


_URL_SAFE = str.maketrans("+/", "-_")
