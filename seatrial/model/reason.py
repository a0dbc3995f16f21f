"""A reason is data: a stable code and its values.

The sentence that people read is made from them here alone.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from seatrial.model.explanations import explanation_of, next_step_of

T = TypeVar("T")
Value = str | int | float
CODE = r"^[a-z0-9]+(-[a-z0-9]+)*$"
MAX_CODE = 100  # characters
MAX_TEXT = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Reason:
    """A code and the values of its sentence. An empty reason has neither.

    `written` is the sentence where no code makes it, as of a reason that was read from a file.
    `parts` are the reasons that a joined one holds. `places` stand in front of the sentence: a
    check, a node or a file. `detail` stands behind it.
    """

    code: str | None = None
    values: Mapping[str, Value] = field(default_factory=dict)
    written: str = ""
    parts: tuple["Reason", ...] = ()
    places: tuple[str, ...] = ()
    detail: str = ""

    @classmethod
    def of(cls, code: str, /, **values: object) -> Self:
        """Return the reason with that code.

        Raises KeyError for an unknown code and for a missing value.

        What is neither text nor number is kept as its text.
        """
        plain = {
            name: value if isinstance(value, Value) else str(value)
            for name, value in values.items()
        }
        explanation = explanation_of(code)
        if explanation is None:
            raise KeyError(code)
        explanation.template.format(**plain)
        return cls(code, plain)

    @classmethod
    def from_dict(cls, document: object, name: str = "reason") -> Self:
        """Return the reason that `to_dict` made, maybe in another version; what is broken is left
        out.
        """
        parts = _of_type(list, _of_type(dict, document).get("parts"))
        return replace(cls._part(document, name), parts=tuple(map(cls._part, parts)))

    @classmethod
    def _part(cls, document: object, name: str = "reason") -> Self:
        """Return the reason in `document` without its parts: a part has no parts itself."""
        saved = _of_type(dict, document)
        code = _of_type(str, saved.get("code"))[:MAX_CODE]
        values = _of_type(dict, saved.get("values"))
        return cls(
            code if re.fullmatch(CODE, code) else None,
            {key: value for key, value in values.items() if isinstance(value, Value)},
            _of_type(str, saved.get(name))[:MAX_TEXT],
        )

    @property
    def sentence(self) -> str:
        """The sentence for people."""
        sentence = self.written or "; ".join(map(str, self.parts))
        if not sentence and (explanation := explanation_of(self.code or "")):
            sentence = explanation.sentence(self.values)
        return ": ".join((*self.places, sentence)) + self.detail

    def to_dict(self, name: str = "reason") -> dict[str, Any]:
        """Return the reason as run.json has it, with its sentence as `name`, and its parts if it
        was joined.
        """
        parts = [part.to_dict() for part in parts_of(self) if part is not self]
        written = {"code": self.code, "values": self.values, name: self.sentence}
        return {**written, "parts": parts} if parts else written

    def __str__(self) -> str:
        return self.sentence

    def __bool__(self) -> bool:
        return bool(self.sentence)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reason) and (self.code, self.sentence) == (
            other.code,
            other.sentence,
        )

    def __hash__(self) -> int:
        return hash(self.sentence)


def _of_type(kind: type[T], value: object) -> T:
    """Return the value if it is of that type, else an empty one."""
    return value if isinstance(value, kind) else kind()


def uncoded(sentence: str) -> Reason:
    """Return a reason in words from elsewhere: an exception, a message of Kubernetes, what a node
    or mpirun prints.

    What the program says itself has a code.
    """
    return Reason(written=sentence)


def join(reasons: Iterable[Reason | None]) -> Reason:
    """Join reasons into one, each once and empty ones left out.

    It has the code of the first that has a next step, else of the first that has a code.
    """
    parts = tuple(dict.fromkeys(part for reason in reasons if reason for part in parts_of(reason)))
    if len(parts) == 1:
        return parts[0]
    lead = max(parts, key=_rank, default=Reason())
    return Reason(lead.code, lead.values, parts=parts)


def _rank(reason: Reason) -> int:
    """Return 2 for a code with a next step, 1 for another code, 0 for no code."""
    return bool(next_step_of(reason.code)) + bool(reason.code)


def parts_of(reason: Reason) -> tuple[Reason, ...]:
    """Return the parts of a joined reason; one with a place or a detail stays whole."""
    return (reason,) if reason.places or reason.detail or not reason.parts else reason.parts


def placed(place: str, reason: Reason) -> Reason:
    """Put the check, the node or the file in front of the reason."""
    return replace(reason, places=(place, *reason.places))


def unplaced(reason: Reason) -> Reason:
    """Return the reason without its places."""
    return replace(reason, places=())


def extended(reason: Reason, detail: str) -> Reason:
    """Append a detail to the sentence of the reason."""
    return replace(reason, detail=reason.detail + detail)


def caused(reason: Reason, cause: Reason | None) -> Reason:
    """Give the reason the code and the values of the cause that its sentence names, if the cause
    has a code.
    """
    return Reason(cause.code, cause.values, reason.sentence) if cause and cause.code else reason


def rewritten(reason: Reason, rewrite: Callable[[str], str]) -> Reason:
    """Rewrite the sentence and the values of the reason, such as to cut them or to remove
    secrets.
    """
    values = {
        name: rewrite(value) if isinstance(value, str) else value
        for name, value in reason.values.items()
    }
    made = Reason(reason.code, values, rewrite(reason.sentence))
    return reason if (made, values) == (reason, reason.values) else made
