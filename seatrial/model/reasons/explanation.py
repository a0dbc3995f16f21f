"""What the catalog knows of one code."""

import string
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Explanation:
    """`template` makes the sentence, by `str.format` with the values; `meaning` and `next_step` are for the runbook."""

    template: str
    meaning: str
    next_step: str

    @property
    def pattern(self) -> str:
        """The sentence with an ellipsis for each value."""
        parts = string.Formatter().parse(self.template)
        return "".join(f"{text}…" if field is not None else text for text, field, _, _ in parts)
