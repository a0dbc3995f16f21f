"""The fields of a file: what each means, what is legal, and what holds where it is left out. Pure.

`docs/cluster-file.md`, `docs/suite-file.md` and what `seatrial explain` says of a field are made
from it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel

# Path and kind of the fields that hold a model, by its name
Places = dict[str, list[tuple[str, str]]]
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
            yield from ((place + field.name, field) for field in self.fields)


def sections(model: type[BaseModel], link: Link = str) -> Iterator[Section]:
    """Yield the section of the model and of each model in it, in the order in which they are
    named.
    """
    schema = model.model_json_schema()
    places: Places = {}
    _place_all("", "", schema, schema["$defs"], places)
    titles = _titles(places)
    yield Section("Fields", ("",), schema.get("description", ""), _fields(schema, titles, link))
    for name, title in titles.items():
        held = tuple(dict.fromkeys(f"{path.partition(',')[0]}." for path, _ in places[name]))
        part = schema["$defs"][name]
        yield Section(title, held, part.get("description", ""), _fields(part, titles, link))


def _fields(model: Schema, titles: dict[str, str], link: Link) -> tuple[Field, ...]:
    required = model.get("required", [])
    return tuple(
        Field(
            name,
            _legal(field, titles, link),
            None if name in required else _default(field),
            field.get("description", ""),
        )
        for name, field in model["properties"].items()
    )


def _place_all(
    path: str, holder: str, model: Schema, models: dict[str, Schema], places: Places
) -> None:
    """Collect the fields that hold each model below `path`, with the kind of their `holder`."""
    for field_name, field in model["properties"].items():
        names = _references(field)
        for name in names:
            new = name not in places
            kind = "" if len(names) == 1 else _kind(models[name])
            places.setdefault(name, []).append((path + field_name + kind, holder))
            if new:
                _place_all(f"{path}{field_name}.", kind or holder, models[name], models, places)


def _titles(places: Places) -> dict[str, str]:
    """Return where each section is: `platform.volumes`.

    If fields share a path, with the kind of holder: `platform.mounts, kind docker`.
    """
    held = Counter(path for of_model in places.values() for path, _ in of_model)
    titles = {}
    for name, of_model in places.items():
        kinds: dict[str, list[str]] = {}
        for path, holder in of_model:
            kinds.setdefault(path, []).append(holder.removeprefix(", "))
        titles[name] = " and ".join(
            path if held[path] == 1 else f"{path}, {' and '.join(of_path)}"
            for path, of_path in kinds.items()
        )
    return titles


def _kind(model: Schema) -> str:
    """Return the kind of one of several models of a field: `, kind gcs`."""
    kinds = (
        (name, field["const"])
        for name, field in model["properties"].items()
        if name in ("kind", "builder")
    )
    name, value = next(kinds, ("of", " and ".join(model["required"])))
    return f", {name} {value}"


def _references(field: Any) -> list[str]:
    """Return the names of the models that a field may hold."""
    if isinstance(field, dict):
        own = [field["$ref"].rpartition("/")[2]] if "$ref" in field else []
        inner = (value for key, value in field.items() if key not in ("discriminator", "default"))
        return list(
            dict.fromkeys([*own, *(model for value in inner for model in _references(value))])
        )
    return (
        [model for part in field for model in _references(part)] if isinstance(field, list) else []
    )


def _default(field: Schema) -> str:
    value = field.get("default")
    if value in (None, [], {}):
        return "unset" if value is None and "default" in field else "none"
    if isinstance(value, dict):
        return f"`{value['name']}`" if "name" in value else "its fields' own"
    written = yaml.safe_dump(value, default_flow_style=True).strip()
    return f"`{written.removesuffix('...').strip()}`"


def _legal(field: Schema, titles: dict[str, str], link: Link) -> str:
    """Describe the values of a field, with links to the sections of models."""
    match field:
        case {"$ref": reference}:
            title = titles.get(reference.rpartition("/")[2])
            words = link(title) if title else ""
        case {"anyOf": parts} | {"oneOf": parts}:
            kinds = (_legal(part, titles, link) for part in parts if part.get("type") != "null")
            words = " or ".join(kind for kind in dict.fromkeys(kinds) if kind)
        case {"$comment": comment}:
            words = comment
        case {"enum": values}:
            words = ", ".join(f"`{value}`" for value in values)
        case {"const": value}:
            words = f"`{value}`"
        case {"type": "array"}:
            items = field.get("items") or field["prefixItems"][0]
            words = (
                f"list of {_legal(items, titles, link)}{_LENGTHS.get(field.get('minItems', 0), '')}"
            )
        case {"type": "object", "additionalProperties": True}:
            words = "a part of a manifest"
        case {"type": "object"}:
            words = f"mapping of names to {_legal(field['additionalProperties'], titles, link)}"
        case _:
            pattern = f" like `{field['pattern']}`" if "pattern" in field else ""
            bounds = (f"{bound} {field[key]:g}" for key, bound in _BOUNDS.items() if key in field)
            words = ", ".join((f"{_TYPES[field['type']]}{pattern}", *bounds))
    return words
