"""The errors of a model in words of the file: line, field, what is legal, what is there. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel, Tag

from seatrial.text.words import nearest_of

SHOWN_CHARS = 80  # of a value
_MOST = 20
_EXAMPLES = {
    "builder": "{builder: docker, build: cpu}, or the reference of an image alone"
}  # where the field alone would be no example
_WORDS = {  # by pydantic's type of error
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be a mapping of fields"),
    **dict.fromkeys(("list_type", "tuple_type"), "must be a list"),
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "finite_number": "must be a finite number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_short": "must have {min_length} or more characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have {min_length} or more entries",
    "too_long": "must have at most {max_length} entries",
    "union_tag_invalid": "{discriminator} {tag!r} is unknown; legal: {expected_tags}",
}


def problems(errors: Sequence[Any], model: type[BaseModel], document: yaml.Node | None) -> list[str]:
    """Put each of pydantic's errors in words, in the order of the lines of the document; what is absent last."""
    found: dict[str, int] = {}
    for error in (error for error in errors if not _is_misspelt_field(error, errors)):
        for one in _separate(error):
            place = _place(one["loc"], model, document)
            line = f"line {place.line}: " if place.line else ""
            field = f"{'.'.join(place.fields)}: " if place.fields else ""
            found.setdefault(f"{line}{field}{_explain(one, place.at)}", place.line or 1 << 30)
    lines = sorted(found, key=found.__getitem__)
    more = [f"and {len(lines) - _MOST} more errors"] if len(lines) > _MOST else []
    return lines[:_MOST] + more


def _is_misspelt_field(error: Any, errors: Sequence[Any]) -> bool:
    """Whether a field is missing because its name is misspelt, which is an error of its own."""
    at, name = error["loc"][:-1], error["loc"][-1:]
    unknown = (e["loc"][-1] for e in errors if e["type"] == "extra_forbidden" and e["loc"][:-1] == at)
    return error["type"] == "missing" and any(nearest_of(str(other), name) for other in unknown)


def _separate(error: Any) -> Iterator[Any]:
    """Yield the problems between fields one by one; the message of each begins with the field to change."""
    if error["type"] != "value_error":
        yield error
        return
    for message in str(error["msg"]).removeprefix("Value error, ").splitlines():
        field, colon, rest = message.partition(": ")
        between = colon and isinstance(error["input"], dict) and field.replace("_", "").replace(".", "").isalpha()
        named = {"loc": (*error["loc"], *field.split(".")), "msg": rest} if between else {"msg": message}
        yield {**error, **named}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an error is: the fields as the file has them, the line, and the model (or a union's models by tag) there.

    `at` of a field that is unknown or missing is the model that holds it.
    """

    fields: list[str]
    line: int | None
    at: Any


def _place(location: Sequence[str | int], model: type[BaseModel], document: yaml.Node | None) -> _Place:
    """Follow a location of pydantic's through model and document, without the tags of unions."""
    at: Any = model
    node, line = document, None
    fields: list[str] = []
    for part in location:
        if part == "[key]":
            continue
        if isinstance(at, Mapping) and part in at:
            at = at[part]
            continue
        if isinstance(part, str) and part in _own_tags(at) and part not in getattr(at, "model_fields", {}):
            continue
        fields.append(str(part))
        node, line = _child(node, part, line)
        at = at if isinstance(part, int) else _models_in(at).get(part, at)
    return _Place(fields, line, at)


def _child(node: yaml.Node | None, part: str | int, line: int | None) -> tuple[yaml.Node | None, int | None]:
    """Return the node of a field or entry, and its line; where the document has none, the line of what holds it."""
    if isinstance(node, yaml.MappingNode):
        pairs = ((key, value) for key, value in node.value if key.value == part)
        key, value = next(pairs, (None, None))
        return value, key.start_mark.line + 1 if key else line
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part].start_mark.line + 1
    return None, line


def _explain(problem: Any, at: Any) -> str:
    kind, value = problem["type"], problem.get("input")
    context: dict[str, Any] = {
        key: int(each) if _is_whole(each) else each for key, each in problem.get("ctx", {}).items()
    }
    if "discriminator" in context:
        context["discriminator"] = str(context["discriminator"]).strip("'")
    if kind == "extra_forbidden":
        legal = sorted(getattr(at, "model_fields", {}))
        nearest = nearest_of(str(problem["loc"][-1]), legal)
        return "; ".join(filter(None, ["unknown field", nearest, f"legal: {', '.join(legal)}" if legal else ""]))
    if kind == "missing":
        return "is required"
    if kind == "union_tag_not_found":
        name = context["discriminator"]
        first = next(iter(_models_in(at)), name)
        return f"needs a field {name}, such as {_EXAMPLES.get(name, f'{{{name}: {first}}}')}"
    if kind == "string_type":
        return f"must be text, is {_shown(value)}{'' if isinstance(value, list | dict) else ': quote it'}"
    if kind == "value_error":
        return str(problem["msg"])
    message = _WORDS[kind].format(**context) if kind in _WORDS else str(problem["msg"])
    has_value = kind == "union_tag_invalid" or "got " in message
    nearest = nearest_of(value, str(context["expected"]).split("'")[1::2]) if _is_misspelt(kind, value) else ""
    shown = "" if has_value else f", is {_shown(value)}"
    return f"{message[:1].lower()}{message[1:]}{shown}{f'; {nearest}' if nearest else ''}"


def _is_whole(bound: object) -> bool:
    return isinstance(bound, float) and bound.is_integer()


def _is_misspelt(kind: str, value: object) -> bool:
    return kind == "literal_error" and isinstance(value, str)


def _shown(value: object) -> str:
    """Return a value as the file may have it, or its kind."""
    if isinstance(value, dict | BaseModel):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None or isinstance(value, bool):
        return "empty" if value is None else str(value).lower()
    return f"{value!r:.{SHOWN_CHARS}}"


def _models_in(at: Any) -> Mapping[str, Any]:
    """Return the models by the parts of an error's location: fields of a model, tags of a union."""
    if isinstance(at, Mapping):
        return at
    models: dict[str, Any] = {}
    for name, info in getattr(at, "model_fields", {}).items():
        registered = next((meta for meta in info.metadata if isinstance(meta, Mapping)), None)
        members = _members(info.annotation) if registered is None else registered
        models[name] = next(iter(members.values())) if len(members) == 1 else members
    return models


def _members(annotation: Any, tag: str = "") -> dict[str, Any]:
    """Return the models in an annotation by pydantic's tag in a location."""
    tag = next((meta.tag for meta in getattr(annotation, "__metadata__", ()) if isinstance(meta, Tag)), tag)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return dict.fromkeys([tag] if tag else _own_tags(annotation), annotation)
    inner = getattr(annotation, "__args__", ())
    return {name: model for part in inner for name, model in _members(part, tag).items()}


def _own_tags(model: Any) -> tuple[str, ...]:
    """Return the tag of a member of a union by its field `kind` or `builder`, else the model's name."""
    fields = getattr(model, "model_fields", {})
    kind = fields.get("kind") or fields.get("builder")
    return getattr(getattr(kind, "annotation", None), "__args__", ()) or (getattr(model, "__name__", ""),)
