"""Read a YAML file into a pydantic model; whatever is wrong becomes one line with file, field and what is legal."""

from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from seatrial.errors import InputError

MAX_BYTES = 1_000_000


class Strict(BaseModel):
    """A model that refuses fields it does not know and cannot be changed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=Strict)


def load_yaml(path: Path, model: type[Model], defaults: dict[str, Any] | None = None) -> Model:
    """Read `path` as `model`, `defaults` under what the file says.

    Raises InputError when the file cannot be read, is not YAML or does not validate.
    """
    content = _read_mapping(path)
    try:
        return model.model_validate({**(defaults or {}), **content})
    except ValidationError as error:
        _refuse(path, error, model)


def _read_mapping(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1).decode()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    if len(text) > MAX_BYTES:
        raise InputError(f"{path}: is larger than {MAX_BYTES} bytes, so it is no cluster or suite file")
    try:
        content = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        raise InputError(f"{path}: {_yaml_problem(error)}") from error
    except RecursionError as error:
        raise InputError(f"{path}: is nested too deeply") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: must be a mapping of fields, is {_kind(content)}")
    return {str(key): value for key, value in content.items()}


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML silently keeps the last of two equal keys; a cluster file that says `nodes` twice is a mistake."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = key_node.value
            if key in seen and key != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"field {key!r} appears twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}: not YAML: {problem}" if mark else f"not YAML: {problem}"


def _kind(content: object) -> str:
    return "empty" if content is None else f"a {type(content).__name__}"


def _refuse(path: Path, error: ValidationError, model: type[Strict]) -> NoReturn:
    """Name the first problem in full and count the rest, on one line."""
    problems = error.errors(include_url=False)
    first = problems[0]
    field = "".join(f"{part}." for part in first["loc"])[:-1]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    # What concerns several fields has no place of its own: its message begins with the field to change.
    raise InputError(f"{path}: {field}{': ' if field else ''}{_explain(first, model)}{more}") from error


def _explain(problem: Any, model: type[Strict]) -> str:
    if problem["type"] == "extra_forbidden":
        legal = _fields_at(model, problem["loc"][:-1])
        return f"unknown field; legal: {', '.join(legal)}" if legal else "unknown field"
    if problem["type"] == "missing":
        return "is required"
    message = str(problem["msg"]).removeprefix("Value error, ")
    value = problem.get("input")
    shown = f", is {value!r}" if isinstance(value, str | int | float) and "got " not in message else ""
    return f"{message[:1].lower()}{message[1:]}{shown}"


def _fields_at(model: type[Strict], location: tuple[str | int, ...]) -> list[str]:
    """The field names that are legal at `location`, as far as the annotations tell."""
    fields: Any = model
    for part in location:
        if isinstance(part, int):
            continue
        fields = _models_in(fields).get(part, fields)
    return sorted(getattr(fields, "model_fields", {}))


def _models_in(model: Any) -> dict[str, Any]:
    """Nested models by the name pydantic puts in an error's location: field name, or tag of a union member."""
    found: dict[str, Any] = {}
    for name, info in getattr(model, "model_fields", {}).items():
        members = _leaf_models(info.annotation)
        if len(members) == 1:
            found[name] = members[0]
        for member in members:
            for tag in _tags(member):
                found.setdefault(tag, member)
    return found


def _leaf_models(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [leaf for part in getattr(annotation, "__args__", ()) for leaf in _leaf_models(part)]


def _tags(model: Any) -> tuple[str, ...]:
    kind = model.model_fields.get("kind")
    return (model.__name__, *getattr(getattr(kind, "annotation", None), "__args__", ()))
