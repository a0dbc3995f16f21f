"""The fields of a file: what each means, what is legal, and what holds where it is left out. Pure.

`docs/cluster-file.md`, `docs/suite-file.md` and what `seatrial explain` says of a field are made
from it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel

# Path and kind of the fields that hold a model, by its name
Place = tuple[str, str]
Places = dict[str, list[Place]]
_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
_LENGTHS = {1: ", at least one", 2: ", two of them"}
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true`, `false`",
}

Schema = dict[str, Any]
Link = Callable[[str], str]  # how the title of a section is written where it is named


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a section; `default` is None where the field is required."""

    name: str
    legal: str
    default: str | None
    meaning: str


@dataclass(frozen=True, slots=True)
class Section:
    """The fields of one model; `title` is where it stands, such as "platform.volumes, kind gcs", or
    "Fields".
    """

    title: str
    places: tuple[str, ...]
    purpose: str
    fields: tuple[Field, ...]

    @property
    def kind(self) -> str:
        """Which of several models of its field it is: "kind gcs"; empty for the only one."""
        return self.title.partition(", ")[2]

    def paths(self) -> Iterator[tuple[str, Field]]:
        """Yield each field with its path in the file: platform.volumes.mount."""
        for place in self.places:
            for field in self.fields:
                yield place + field.name, field


def sections(model: type[BaseModel], link: Link = str) -> Iterator[Section]:
    """Yield the section of the model and of each model in it, in the order in which they are
    named.
    """
    schema = model.model_json_schema()
    places: Places = {}
    _place_all("", "", schema, schema["$defs"], places)
    titles = _titles(places)
    fields = _fields(schema, titles, link)
    purpose = schema.get("description", "")
    yield Section("Fields", ("",), purpose, fields)
    for name, title in titles.items():
        held = []
        for path, _ in places[name]:
            field = path.partition(",")[0]
            held.append(f"{field}.")
        part = schema["$defs"][name]
        fields = _fields(part, titles, link)
        places_of_model = tuple(dict.fromkeys(held))
        purpose = part.get("description", "")
        yield Section(title, places_of_model, purpose, fields)


def _fields(model: Schema, titles: dict[str, str], link: Link) -> tuple[Field, ...]:
    required = model.get("required", [])
    fields = []
    for name, schema in model["properties"].items():
        field = Field(
            name,
            legal=_legal(schema, titles, link),
            default=None if name in required else _default(schema),
            meaning=schema.get("description", ""),
        )
        fields.append(field)
    return tuple(fields)


def _place_all(
    path: str, holder: str, model: Schema, models: dict[str, Schema], places: Places
) -> None:
    """Collect the fields that hold each model below `path`, with the kind of their `holder`."""
    for field_name, field in model["properties"].items():
        names = _references(field)
        for name in names:
            part = models[name]
            is_new = name not in places
            kind = "" if len(names) == 1 else _kind(part)
            place = path + field_name + kind
            places.setdefault(name, []).append((place, holder))
            if is_new:
                _place_all(f"{path}{field_name}.", kind or holder, part, models, places)


def _titles(places: Places) -> dict[str, str]:
    """Return where each section is: `platform.volumes`.

    If fields share a path, with the kind of holder: `platform.mounts, kind docker`.
    """
    held: Counter[str] = Counter()
    for of_model in places.values():
        held.update(path for path, _ in of_model)
    titles = {}
    for name, of_model in places.items():
        kinds: dict[str, list[str]] = defaultdict(list)
        for path, holder in of_model:
            kinds[path].append(holder.removeprefix(", "))
        named = []
        for path, of_path in kinds.items():
            title = path
            if held[path] > 1:
                holders = " and ".join(of_path)
                title += f", {holders}"
            named.append(title)
        titles[name] = " and ".join(named)
    return titles


def _kind(model: Schema) -> str:
    """Return the kind of one of several models of a field: `, kind gcs`."""
    for name, field in model["properties"].items():
        if name in ("kind", "builder"):
            return f", {name} {field['const']}"
    required = " and ".join(model["required"])
    return f", of {required}"


def _references(field: Any) -> list[str]:
    """Return the names of the models that a field may hold."""
    names: list[str] = []
    if isinstance(field, list):
        for part in field:
            names += _references(part)
        return names
    if not isinstance(field, dict):
        return names
    if "$ref" in field:
        names.append(_model_name(field["$ref"]))
    for key, part in field.items():
        if key not in ("discriminator", "default"):
            names += _references(part)
    return list(dict.fromkeys(names))


def _model_name(reference: str) -> str:
    return reference.rpartition("/")[2]


def _default(field: Schema) -> str:
    value = field.get("default")
    if value is None and "default" in field:
        return "unset"
    if value in (None, [], {}):
        return "none"
    if isinstance(value, dict):
        if "name" in value:
            return f"`{value['name']}`"
        return "its fields' own"
    document = yaml.safe_dump(value, default_flow_style=True)
    written = document.strip().removesuffix("...").strip()
    return f"`{written}`"


def _legal(field: Schema, titles: dict[str, str], link: Link) -> str:
    """Describe the values of a field, with links to the sections of models."""
    match field:
        case {"$ref": reference}:
            title = titles.get(_model_name(reference))
            words = link(title) if title else ""
        case {"anyOf": parts} | {"oneOf": parts}:
            words = _any_of(parts, titles, link)
        case {"$comment": comment}:
            words = comment
        case {"enum": values}:
            words = ", ".join(f"`{value}`" for value in values)
        case {"const": value}:
            words = f"`{value}`"
        case {"type": "array"}:
            part = field.get("items") or field["prefixItems"][0]
            items = _legal(part, titles, link)
            length = _LENGTHS.get(field.get("minItems", 0), "")
            words = f"list of {items}{length}"
        case {"type": "object", "additionalProperties": True}:
            words = "a part of a manifest"
        case {"type": "object"}:
            values = _legal(field["additionalProperties"], titles, link)
            words = f"mapping of names to {values}"
        case _:
            words = _bounded(field)
    return words


def _any_of(parts: Sequence[Schema], titles: dict[str, str], link: Link) -> str:
    kinds = [_legal(part, titles, link) for part in parts if part.get("type") != "null"]
    return " or ".join(filter(None, dict.fromkeys(kinds)))


def _bounded(field: Schema) -> str:
    """Describe a text or a number, with its pattern and bounds."""
    words = _TYPES[field["type"]]
    if "pattern" in field:
        words += f" like `{field['pattern']}`"
    for key, bound in _BOUNDS.items():
        if key in field:
            words += f", {bound} {field[key]:g}"
    return words
