"""Names that an unknown one may be a typo of."""

import difflib
from collections.abc import Iterable


def nearest_of(name: str, known: Iterable[str]) -> str:
    """The known names that `name` resembles, as "the nearest are A, B"; empty where none does."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name[:100].lower(), by_lower, 3, 0.5)
    return f"the nearest are {', '.join(by_lower[each] for each in near)}" if near else ""
