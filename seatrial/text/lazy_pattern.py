"""Regular expressions for logs of many kinds, each compiled at its first use, and for any of many
words.
"""

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

_METHODS = ("match", "search", "fullmatch", "finditer", "findall", "sub", "split")


class LazyPattern:
    """Stand in for a compiled pattern; from the first use on its methods are those of the compiled
    one.
    """

    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern = pattern
        self.flags = flags

    def __getattr__(self, name: str) -> Any:  # asked only for what is not there yet
        compiled = re.compile(self.pattern, self.flags)
        self.__dict__.update((method, getattr(compiled, method)) for method in _METHODS)
        return getattr(compiled, name)


def lazy(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return the pattern, not yet compiled.

    Most runs of a command need few of those that it imports.
    """
    return cast("re.Pattern[str]", LazyPattern(pattern, flags))


def any_word(words: Iterable[str]) -> str:
    """Return a pattern for any of the words as they are written, the longest at each place.

    Words that begin alike share a branch, so the time per character depends on how many words begin
    with it, not on how many there are: with a hundred that is five times as fast as one branch for
    each.
    """
    return _trie(sorted(set(words)))


def _trie(words: Sequence[str]) -> str:
    """Return the pattern of sorted words; an empty one among them makes the others optional."""
    groups: dict[str, list[str]] = {}
    for word in filter(None, words):
        groups.setdefault(word[0], []).append(word)
    branches = []
    for group in groups.values():
        shared = os.path.commonprefix(group)  # noqa: RUF071  # of characters, not of paths
        branches.append(re.escape(shared) + _trie([word[len(shared) :] for word in group]))
    if not branches:
        return ""
    pattern = "|".join(branches)
    return f"(?:{pattern})?" if not words[0] else f"(?:{pattern})" if len(branches) > 1 else pattern
