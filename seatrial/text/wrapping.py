"""Remove the wrapping that launchers, terminals and copy-and-paste put around a line of output."""

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from seatrial.text.lazy_pattern import any_word

MAX_LINE = 16_384
"""Characters of a line that are looked at; no line that nccl-tests, NCCL or a launcher writes is
longer.
"""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff]")
_HTML = re.compile(r"</?(?:span|code|pre|br|p|div)\b[^<>]*>")
_DATE = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_PREFIX = re.compile(
    rf"""
    \A(?:
      {_DATE}(?:[ ]std(?:out|err)[ ][FP])?(?:[ ]|$)                  # kubectl logs --timestamps, container runtimes
    | [ \t]*(?:\w{{3}}[ ]\w{{3}}[ ]+\d+[ ][\d:]+[ ]\d{{4}})?\[[^\[\]\s]*?,(?P<ompi>\d+)\]<std\w+>:  # mpirun -tag-output
    | [ ]{{0,6}}(?P<srun>\d{{1,6}}):(?!\d)                           # srun --label
    | \[(?P<mpich>\d{{1,6}})\](?:[ ]|(?=[\#\d]))                     # mpiexec -prepend-rank
    | \[(?:default|rank)(?P<torch>\d{{1,6}})\]:                      # torchrun
    | \[pod/[^\]\s]+\][ ]                                            # kubectl logs --prefix
    | (?=[\w./-]*[A-Za-z])[\w./-]+(?:\[\d+\])?[ ]*\|(?:[ ]|$)        # compose, dstack, stern-like "pod | "
    | >+[ ]                                                          # quoted in mail or markdown
    )
    """,
    re.VERBOSE,
)
# Texts: a search for each word takes twice as long, and compiling as long as some thousand
_COMPILED_AFTER = 2000
# Until 2.2
_OLD_NCCL = re.compile(
    r"(?<!\S)([\w.-]{1,253}:\d+:\d+ \[\d+\] [\w./]{1,200}\.(?:h|cu|cc):\d+ )WARN "
)
_ROW_BEGINS = re.compile(r"\s*+#?\s*+\d++\s++\d++\s++\w++\s")
_TEXTS = frozenset(
    {"log", "message", "msg", "output", "stdout", "stderr", "text", "textpayload", "line", "body"}
)
# Of a document that stands on several lines: a text of several lines, or one line of a list
_FIELD = re.compile(r'\s*+(?:"[\w.-]{1,64}": (?=".*\\n)|(?="(?:[^"\\]|\\.)*+",\s*\Z))')


class LogLine(NamedTuple):
    """A line without its wrapping; `rank` is the rank that a launcher's label named, where there
    was one.
    """

    text: str
    rank: int | None


@lru_cache(1)  # several readers take each line
def clean(raw: str) -> LogLine:
    """Return `raw` without line end, colours, control characters and the prefixes of launchers;
    indentation stays.
    """
    text = raw[:MAX_LINE].rstrip("\r\n")
    if not text.isprintable():
        text = _CONTROL.sub("", _ANSI.sub("", text)).replace("\xa0", " ")  # of web pages
    if "</" in text:
        text = _HTML.sub("", text)
    if " WARN " in text and " NCCL " not in text:
        text = _OLD_NCCL.sub(r"\1NCCL WARN ", text)
    rank = None
    # kubectl's timestamp, then mpirun's tag, then srun's label: never more than a few deep
    for _ in range(4):
        match = _PREFIX.match(text)
        if not match:
            break
        if rank is None:
            rank = next((int(value) for value in match.groups() if value is not None), None)
        text = _without_more(match[0].strip(), text[match.end() :])
    return LogLine(text, rank)


def _without_more(tag: str, text: str) -> str:
    """Join a row whose pieces were tagged one by one; return other lines as they are."""
    is_number = tag[:-1].isdigit()  # of srun, after which a blank stands: a time of day has none
    if not (is_number or tag.endswith((">:", "]"))) or tag not in text:
        return text
    joined = re.sub(re.escape(tag) + (r"(?=\s)" if is_number else ""), "", text)
    return joined if _ROW_BEGINS.match(joined) else text


def unwrapped(raw: str) -> list[str]:
    """Return the lines in a line of JSON: an object's texts, such as a container runtime's, one
    field, or one text of a list.
    """
    start = raw.lstrip()[:1]
    field = _FIELD.match(raw) if start == '"' else None
    if start != "{" and field is None:
        return [raw]
    try:
        document = (
            json.loads(raw)
            if field is None
            else json.loads(raw[field.end() :].rstrip().removesuffix(","))
        )
    except (ValueError, RecursionError):
        return [raw]
    lines = [
        line for text in _texts(document, "log" if field else "", 0) for line in text.splitlines()
    ]
    return lines or [raw]


def _texts(value: object, name: str, depth: int) -> Iterator[str]:
    """Yield the texts among an object's values: those under the names of messages, and those of
    several lines.
    """
    if isinstance(value, str):
        if name.lower() in _TEXTS or "\n" in value:
            yield value
    elif depth < 8 and isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(each, str(key), depth + 1)
    elif depth < 8 and isinstance(value, list):
        for each in value:
            yield from _texts(each, name, depth + 1)


def cells(text: str) -> str:
    """Return a row of a markdown table without its bars; any other text as it is."""
    bare = text.strip()
    return bare.replace("|", " ") if len(bare) > 2 and bare[0] == "|" == bare[-1] else text


class Words:
    """Words to find in many texts.

    Their pattern takes long to compile, so it is made once it pays.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._words = tuple(dict.fromkeys(words))
        self._pattern: re.Pattern[str] | None = None
        self._asked = 0

    def is_any_in(self, text: str) -> bool:
        """Return whether `text` contains one of the words as it is written."""
        if self._pattern is None and self._asked >= _COMPILED_AFTER:
            self._pattern = any_of(self._words)
        self._asked += 1
        if self._pattern is None:
            return any(word in text for word in self._words)
        return self._pattern.search(text) is not None


def any_of(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that finds any of `words` as they are written, none of them empty."""
    return re.compile(any_word(words))
