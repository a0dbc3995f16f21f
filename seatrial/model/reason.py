"""A reason is data: a stable code and its values, from which its explanation makes the sentence that people read."""

import string
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

Value = str | int | float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The sentence of a code as a template for `str.format`, its meaning, and the next step where there is one.

    `formerly`: codes of earlier versions that it stands for; a run.json may hold them.
    """

    template: str
    meaning: str
    next_step: str | None = None
    formerly: tuple[str, ...] = ()

    @property
    def pattern(self) -> str:
        """The sentence with an ellipsis for each value."""
        parts = string.Formatter().parse(self.template)
        return "".join(f"{text}…" if field is not None else text for text, field, _, _ in parts)


_EXPLANATIONS: dict[str, Explanation] = {}


def register(explanations: Mapping[str, Explanation]) -> None:
    """Make codes known to `Reason.of`. The `reasons.py` of a package does so, which the package imports."""
    _EXPLANATIONS.update(explanations)


class Reason(str):
    """The sentence of a reason, with the `code` and the `values` that it was made from.

    It is a text, so whatever shows a reason shows the sentence. What decides something asks for code and values.
    `parts` are the reasons that a longer one joins or places; empty in one that stands alone. A reason that was read
    from a file has its code and no values.
    """

    code: str | None
    values: Mapping[str, Value]
    parts: tuple[str, ...]

    def __new__(
        cls,
        sentence: str,
        code: str | None = None,
        values: Mapping[str, Value] | None = None,
        parts: tuple[str, ...] = (),
    ) -> Self:
        self = super().__new__(cls, sentence)
        self.code, self.values, self.parts = code, dict(values or {}), parts
        return self

    @classmethod
    def of(cls, code: str, /, **values: object) -> Self:
        """The reason with that code. Raises KeyError for an unknown code and for a missing value.

        What is neither text nor number is kept as its text.
        """
        plain = {name: value if isinstance(value, Value) else str(value) for name, value in values.items()}
        return cls(_EXPLANATIONS[code].template.format(**plain), code, plain)


def join(reasons: Iterable[str]) -> str:
    """Several reasons in one text, each once; the first, which weighs most, gives its code."""
    distinct: dict[Hashable, str] = {}
    for reason in (part for each in reasons for part in _joined_parts(each)):
        distinct.setdefault(identity(reason), reason)
    parts = tuple(distinct.values())
    if len(parts) == 1:
        return parts[0]
    return Reason("; ".join(parts), next(filter(None, map(code_of, parts)), None), parts=parts)


def _joined_parts(reason: str) -> tuple[str, ...]:
    """Those of a joined reason; a placed one, which has one part, stays as it is."""
    return reason.parts if isinstance(reason, Reason) and len(reason.parts) > 1 else (reason,)


def placed(place: str, reason: str) -> str:
    """The reason with the check, the node or the file in front that it is about; it keeps its code."""
    return Reason(f"{place}: {reason}", code_of(reason), parts=(reason,))


def unplaced(reason: str) -> str:
    """What `placed` was given; a reason that stands alone as it is."""
    return reason.parts[0] if isinstance(reason, Reason) and len(reason.parts) == 1 else reason


def extended(reason: str, detail: str) -> str:
    """The reason with a detail behind it; it keeps its code."""
    return recorded(f"{reason}{detail}", code_of(reason))


def caused(reason: str, cause: str | None) -> str:
    """The reason with the code of the cause that it names; with its own code where the cause has none."""
    return recorded(str(reason), code_of(cause or "") or code_of(reason))


def code_of(reason: str) -> str | None:
    """The code; None of a plain text."""
    return reason.code if isinstance(reason, Reason) else None


def recorded(sentence: str, code: str | None) -> str:
    """A reason as a file or a table holds it."""
    return Reason(sentence, code) if code else sentence


def identity(reason: str) -> Hashable:
    """What is equal of two reasons that say the same: code and values, or the text where there are none."""
    if not isinstance(reason, Reason):
        return reason
    if reason.parts:
        return tuple(map(identity, reason.parts))
    return (reason.code, frozenset(reason.values.items())) if reason.values else str(reason)


def rewritten(reason: str, rewrite: Callable[[str], str]) -> str:
    """The reason with its sentence as `rewrite` has it, such as cut or without secrets; it keeps its code."""
    sentence = rewrite(str(reason))
    return reason if sentence == reason else recorded(sentence, code_of(reason))
