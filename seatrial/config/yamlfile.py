"""Read a YAML file into a pydantic model; errors are one line with file, field and legal values."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Tag, ValidationError

from seatrial.model.errors import InputError
from seatrial.text.words import nearest_of

try:
    from yaml import CSafeLoader as Loader  # libyaml's is many times faster
except ImportError:  # PyYAML was built without it
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

MAX_BYTES = 1_000_000
_SHOWN_CHARS = 80
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")  # fits into 64 bits
_EXAMPLES = {"builder": "{builder: docker, build: cpu}"}  # where the field alone would be no example


class Strict(BaseModel):
    """A model that refuses fields it does not know and cannot be changed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


def no_boolean(value: object) -> object:
    """Refuse a boolean for a number: YAML reads yes and on as true, and Python counts true as 1."""
    if isinstance(value, bool):
        raise ValueError(f"must be a whole number, is {str(value).lower()}")
    return value


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
    except (ValueError, TypeError, AttributeError, LookupError) as error:  # PyYAML's own slips: !!int abc, 2020-13-45
        raise InputError(f"{path}: not YAML that can be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        kind = "empty" if content is None else f"a {type(content).__name__}"
        raise InputError(f"{path}: must be a mapping of fields, is {kind}")
    return {str(key): value for key, value in content.items()}


class _UniqueKeyLoader(Loader):
    """YAML silently keeps the last of two equal keys; a cluster file that says `nodes` twice is a mistake."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            key = key_node.value
            if not isinstance(key, str):
                problem = "a field's name must be plain text (a template that was not filled in?)"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            if key in seen and key != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"field {key!r} appears twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_int(self, node: Any) -> int:
        """Return a plain decimal integer; others that YAML 1.1 knows (0x1f, 017, 1:30) are seldom meant as numbers."""
        self._check_number(node, _INTEGER.fullmatch(str(node.value)) is not None)
        return int(node.value)

    def construct_yaml_float(self, node: Any) -> float:
        self._check_number(node, ":" not in str(node.value))
        return super().construct_yaml_float(node)

    def _check_number(self, node: Any, is_plain: bool) -> None:
        if not is_plain:
            problem = f"a number must be plain and decimal, is {str(node.value)[:_SHOWN_CHARS]!r}: quote what is text"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


_UniqueKeyLoader.add_constructor("tag:yaml.org,2002:int", _UniqueKeyLoader.construct_yaml_int)
_UniqueKeyLoader.add_constructor("tag:yaml.org,2002:float", _UniqueKeyLoader.construct_yaml_float)


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}: not YAML: {problem}" if mark else f"not YAML: {problem}"


def _refuse(path: Path, error: ValidationError, model: type[Strict]) -> NoReturn:
    """Name the first problem in full and count the rest, on one line. A misspelt field counts before its absence."""
    problems = sorted(error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden")
    first = problems[0]
    field = "".join(f"{part}." for part in first["loc"])[:-1]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    # What concerns several fields has no place of its own: its message begins with the field to change.
    raise InputError(f"{path}: {field}{': ' if field else ''}{_explain(first, model)}{more}") from error


def _explain(problem: Any, model: type[Strict]) -> str:
    if problem["type"] == "extra_forbidden":
        legal = _fields_at(model, problem["loc"][:-1])
        nearest = nearest_of(str(problem["loc"][-1]), legal)
        parts = ["unknown field", *([f"legal: {', '.join(legal)}"] if legal else []), *([nearest] if nearest else [])]
        return "; ".join(parts)
    if problem["type"] == "missing":
        return "is required"
    if problem["type"] == "union_tag_not_found":
        name = str(problem["ctx"]["discriminator"]).strip("'")
        first = next(iter(_models_in(_at(model, problem["loc"]))), name)
        return f"needs a field {name}, such as {_EXAMPLES.get(name, f'{{{name}: {first}}}')}"
    if problem["type"] == "string_type" and not isinstance(problem["input"], list | dict):
        return f"must be text, is {problem['input']!r:.{_SHOWN_CHARS}}: quote it"
    message = str(problem["msg"]).removeprefix("Value error, ")
    value = problem.get("input")
    has_value = "got " in message or " is " in message or problem["type"] == "value_error"
    shown = f", is {value!r:.{_SHOWN_CHARS}}" if isinstance(value, str | int | float) and not has_value else ""
    return f"{message[:1].lower()}{message[1:]}{shown}"


def _fields_at(model: type[Strict], location: tuple[str | int, ...]) -> list[str]:
    """Return the legal field names at `location`."""
    return sorted(getattr(_at(model, location), "model_fields", {}))


def _at(model: type[Strict], location: tuple[str | int, ...]) -> Any:
    """Return the model at `location`, or the members of a union by their tags."""
    at: Any = model
    for part in location:
        if isinstance(part, str) and part not in _own_tags(at):
            at = _models_in(at).get(part)
    return at


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
