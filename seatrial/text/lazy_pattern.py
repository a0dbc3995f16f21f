"""Regular expressions for logs of many kinds: each is compiled at its first use."""

import re
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
