"""Text from elsewhere on a terminal, in a log or on a page: one line, and nothing that moves, hides
or reorders it.
"""


def printable(text: str) -> str:
    """Replace control characters (escape sequences, line ends, C1), bidi override and the like by
    spaces.

    Columns stay where they are. What is printable is what `str.isprintable` calls so.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
