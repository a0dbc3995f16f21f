"""A reason is data: a stable code and its values, from which its explanation makes the sentence that people read."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Self

from seatrial.model.explanations import explanation_of

Value = str | int | float


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
        explanation = explanation_of(code)
        if explanation is None:
            raise KeyError(code)
        return cls(explanation.template.format(**plain), code, plain)


def join(reasons: Iterable[str]) -> str:
    """Join reasons into one, each once; it has the code of the first that has one."""
    distinct: dict[Hashable, str] = {}
    for reason in (part for each in reasons for part in parts_of(each)):
        distinct.setdefault(identity(reason), reason)
    parts = tuple(distinct.values())
    if len(parts) == 1:
        return parts[0]
    return Reason("; ".join(parts), next(filter(None, map(code_of, parts)), None), parts=parts)


def parts_of(reason: str) -> tuple[str, ...]:
    """The parts of a joined reason; a placed one, which has one part, stays whole."""
    return reason.parts if isinstance(reason, Reason) and len(reason.parts) > 1 else (reason,)


def placed(place: str, reason: str) -> str:
    """Put the check, the node or the file in front of the reason; it keeps its code."""
    return Reason(f"{place}: {reason}", code_of(reason), parts=(reason,))


def unplaced(reason: str) -> str:
    """The reason that `placed` was given; a reason without a place unchanged."""
    return reason.parts[0] if isinstance(reason, Reason) and len(reason.parts) == 1 else reason


def extended(reason: str, detail: str) -> str:
    """Append a detail to the sentence of the reason; it keeps its code."""
    return rewritten(reason, lambda sentence: sentence + detail)


def caused(reason: str, cause: str | None) -> str:
    """Give the reason the code of the cause that its sentence names, if the cause has one."""
    return recorded(str(reason), code_of(cause or "") or code_of(reason))


def code_of(reason: str) -> str | None:
    """The code of the reason; None for a plain text."""
    return reason.code if isinstance(reason, Reason) else None


def recorded(sentence: str, code: str | None) -> str:
    """A reason that was read from a file or a table."""
    return Reason(sentence, code) if code else sentence


def identity(reason: str) -> Hashable:
    """The key that equal reasons share: code and values, or the text of a reason without values."""
    if not isinstance(reason, Reason):
        return reason
    if reason.parts:
        return tuple(map(identity, reason.parts))
    return (reason.code, frozenset(reason.values.items())) if reason.values else str(reason)


def rewritten(reason: str, rewrite: Callable[[str], str]) -> str:
    """Rewrite the sentence of the reason, such as to cut it or to remove secrets; it keeps its code."""
    sentence = rewrite(str(reason))
    return reason if sentence == reason else recorded(sentence, code_of(reason))
