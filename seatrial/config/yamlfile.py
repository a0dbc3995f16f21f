"""Read a YAML file into a pydantic model; each error is one line with file, line, field and legal
values.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Tag,
    ValidationError,
)

from seatrial.model.errors import FileError, InputError, os_errors_named
from seatrial.model.sizes import parse_size
from seatrial.text.lines import one_line
from seatrial.text.words import nearest_of

Values = dict[str, Any]  # by field
# A size of messages or files: a whole number of bytes, or a text such as 64K.
ByteSize = Annotated[
    int, BeforeValidator(parse_size, json_schema_input_type=int | str), Field(gt=0, le=1 << 40)
]
SHOWN_CHARS = 80  # of a value
_MOST = 20
# Where the field alone would be no example.
_EXAMPLES = {"builder": "{builder: docker, build: cpu}, or the reference of an image alone"}
_WORDS = {  # by pydantic's type of error
    "dict_type": "must be a mapping of fields",
    "model_type": "must be a mapping of fields",
    "model_attributes_type": "must be a mapping of fields",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
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
MAX_BYTES = 1_000_000


def problems(
    errors: Sequence[Any], model: type[BaseModel], document: yaml.Node | None
) -> list[str]:
    """Put each of pydantic's errors in words, in the order of the lines of the document; what is
    absent last.

    Each is there once, and no more than a person would read. `document` is None for an empty file.
    """
    place_by_line: dict[str, int] = {}
    for error in errors:
        # Pydantic counts valid entries alone, and names the others too
        has_others = error["type"] == "too_short" and error["ctx"]["min_length"] <= len(
            error["input"]
        )
        if has_others or _is_misspelt_field(error, errors):
            continue
        for one in _separate(error):
            fields, number, at = _place(one["loc"], model, document)
            problem = _explain(one, at)
            if fields:
                problem = f"{'.'.join(fields)}: {problem}"
            if number:
                problem = f"line {number}: {problem}"
            place_by_line.setdefault(problem, number or 1 << 30)
    lines = sorted(place_by_line, key=place_by_line.__getitem__)
    more = len(lines) - _MOST
    if more <= 0:
        return lines
    return [*lines[:_MOST], f"and {more} more errors"]


def _is_misspelt_field(error: Any, errors: Sequence[Any]) -> bool:
    """Return whether a field is missing because its name is misspelt, which is an error of its
    own.
    """
    return error["type"] == "missing" and any(
        other["type"] == "extra_forbidden"
        and other["loc"][:-1] == error["loc"][:-1]
        and nearest_of(str(other["loc"][-1]), error["loc"][-1:])
        for other in errors
    )


def _separate(error: Any) -> Iterator[Any]:
    """Split an error about several fields into one for each; each message begins with the field to
    change.
    """
    if error["type"] != "value_error":
        yield error
        return
    messages = str(error["msg"]).removeprefix("Value error, ")
    for message in messages.splitlines():
        field, colon, rest = message.partition(": ")
        is_name = field.replace("_", "").replace(".", "").isalpha()
        if colon and isinstance(error["input"], dict) and is_name:
            location = (*error["loc"], *field.split("."))
            yield {**error, "loc": location, "msg": rest}
        else:
            yield {**error, "msg": message}


def _place(
    location: Sequence[str | int], model: type[BaseModel], document: yaml.Node | None
) -> tuple[list[str], int | None, Any]:
    """Follow a location of pydantic's through model and document, without the tags of unions.

    Return the fields as the file has them, the line, and the model (or a union's models by tag)
    there; for a field that is unknown or missing, the model that holds it.
    """
    at: Any = model
    node = document
    line = None
    fields: list[str] = []
    for part in location:
        if part == "[key]":
            continue
        if isinstance(at, Mapping) and part in at:
            at = at[part]
            continue
        child, child_line = _child(node, part, line)
        # One of a kind that is not known here, or one that `<<` has brought
        is_key = isinstance(at, Mapping) and (at or isinstance(node, yaml.MappingNode))
        is_field = child or is_key or part in getattr(at, "model_fields", {})
        if isinstance(part, str) and not is_field:  # pydantic's name of a union's member
            continue
        fields.append(str(part))
        node, line = child, child_line
        if isinstance(part, str):
            at = _models_in(at).get(part, at)
    return fields, line, at


def _child(
    node: yaml.Node | None, part: str | int, line: int | None
) -> tuple[yaml.Node | None, int | None]:
    """Return the node of a field or entry, and its line; where the document has none, the line of
    what holds it.
    """
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == part:
                return value, key.start_mark.line + 1
        return None, line
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        entry = node.value[part]
        return entry, entry.start_mark.line + 1
    return None, line


def _explain(problem: Any, at: Any) -> str:
    """Put one of pydantic's errors in words: what must be there, and what is there; `at` is the
    model at its place.
    """
    kind = problem["type"]
    value = problem.get("input")
    context: Values = dict(problem.get("ctx", {}))
    for key, each in context.items():
        if isinstance(each, float) and each.is_integer():  # a bound
            context[key] = int(each)
    if "discriminator" in context:
        context["discriminator"] = str(context["discriminator"]).strip("'")
    if kind == "extra_forbidden":
        return _unknown_field(str(problem["loc"][-1]), at)
    if kind == "missing":
        return "is required"
    if kind == "union_tag_not_found":
        name = context["discriminator"]
        first = next(iter(_models_in(at)), name)
        example = _EXAMPLES.get(name, f"{{{name}: {first}}}")
        return f"needs a field {name}, such as {example}"
    if kind == "string_type":
        remedy = "" if isinstance(value, list | dict) else ": quote it"
        return f"must be text, is {_shown(value)}{remedy}"
    message = str(problem["msg"])
    if kind == "value_error":
        return message
    if kind in _WORDS:
        message = _WORDS[kind].format(**context)
    has_value = kind == "union_tag_invalid" or "got " in message
    message = message[:1].lower() + message[1:]
    if not has_value:
        message += f", is {_shown(value)}"
    if kind == "literal_error" and isinstance(value, str):
        legal = str(context["expected"]).split("'")[1::2]
        if nearest := nearest_of(value, legal):
            message += f"; {nearest}"
    return message


def _unknown_field(name: str, at: Any) -> str:
    """Say which field was meant, and which ones the model at that place has."""
    parts = ["unknown field"]
    legal = sorted(getattr(at, "model_fields", {}))
    if nearest := nearest_of(name, legal):
        parts.append(nearest)
    if legal:
        parts.append(f"legal: {', '.join(legal)}")
    return "; ".join(parts)


def _shown(value: object) -> str:
    """Return a value as the file may have it, or its kind."""
    if isinstance(value, dict | BaseModel):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "empty"
    if isinstance(value, str):
        return f"{value!r:.{SHOWN_CHARS}}"
    return str(value).lower()


def _models_in(at: Any) -> Mapping[str, Any]:
    """Return the models by the parts of an error's location: fields of a model, tags of a union.

    A field with several models has a mapping of their tags; one without any, an empty one.
    """
    if isinstance(at, Mapping):
        return at
    models: Values = {}
    for name, info in getattr(at, "model_fields", {}).items():
        # The models of a field that others register come with it
        registered = [meta for meta in info.metadata if isinstance(meta, Mapping)]
        members = registered[0] if registered else _members(info.annotation)
        models[name] = members
        if len(members) == 1:
            (models[name],) = members.values()
    return models


def _members(annotation: Any, tag: str = "") -> Values:
    """Return the models in an annotation by pydantic's tag in a location.

    `tag` is the one that an annotation further out gives; else it is the model's field `kind` or
    `builder`, else its name.
    """
    for meta in getattr(annotation, "__metadata__", ()):
        if isinstance(meta, Tag):
            tag = meta.tag
            break
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields
        kind = fields.get("kind") or fields.get("builder")
        tags = getattr(kind and kind.annotation, "__args__", (annotation.__name__,))
        return dict.fromkeys([tag] if tag else tags, annotation)
    members: Values = {}
    for part in getattr(annotation, "__args__", ()):
        members |= _members(part, tag)
    return members


try:
    from yaml import CSafeLoader as Loader  # libyaml's is many times faster
except ImportError:  # PyYAML was built without it
    from yaml import SafeLoader as Loader  # type: ignore[assignment]


class Strict(BaseModel):
    """A model that refuses fields it does not know and cannot be changed once read.

    Its numbers are finite. The schema is built when it is first used, to start sooner.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


def no_boolean(value: object) -> object:
    """Refuse a boolean for a number: YAML reads yes and on as true, and Python counts true as 1."""
    if isinstance(value, bool):
        raise ValueError(f"must be a whole number, is {str(value).lower()}")
    return value


def matching(pattern: str, legal: str) -> Callable[[str], str]:
    """Return a check of a text, of that pattern from its first character to its last; `legal` says
    what it must be.

    The check raises ValueError, else returns the text.
    """

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {legal}, is {value!r}")
        return value

    return check


def further_option(own: str, example: str) -> Callable[[str], str]:
    """Return a check of one option of a command, such as `example`; those that seatrial sets match
    the pattern `own`.

    The check raises ValueError, else returns the option.
    """

    def check(value: str) -> str:
        match = re.fullmatch(r"--([a-z][a-z-]*)(=[^\s\"'\\]+)?", value)
        if not match:
            raise ValueError(f"must be one option with its value, such as {example}, is {value!r}")
        if re.fullmatch(own, match[1]):
            raise ValueError(f"--{match[1]} is set by another field or by seatrial; leave it out")
        return value

    return check


Model = TypeVar("Model", bound=Strict)


def load_yaml(path: Path, model: type[Model], defaults: Values | None = None) -> Model:
    """Read `path` as `model`, `defaults` under what the file says.

    Raises InputError when the file cannot be read, is not YAML or does not validate. `defaults` are
    by field, and give way to the file's value as a whole.
    """
    return read_yaml(_text(path), path, model, defaults)


def read_yaml(text: str, path: Path, model: type[Model], defaults: Values | None = None) -> Model:
    """Read `text`, the content of `path`, as `load_yaml` does."""
    content = read_mapping(text, path)
    if defaults:
        content = {**defaults, **content}
    try:
        return model.model_validate(content)
    except ValidationError as error:
        # Once more, since only the nodes know their lines
        document = yaml.compose(text, Loader=_UniqueKeyLoader)
        listed = problems(error.errors(include_url=False), model, document)
        lines = [f"{path}: {problem}" for problem in listed]
        raise FileError(lines) from error


def _text(path: Path) -> str:
    """Read a text of at most MAX_BYTES. Raises InputError."""
    try:
        with os_errors_named(f"{path}: cannot be read"), path.open("rb") as file:
            text = file.read(MAX_BYTES + 1).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    if len(text) > MAX_BYTES:
        raise InputError(
            f"{path}: is larger than {MAX_BYTES} bytes, so it is no cluster or suite file"
        )
    return text


def read_mapping(text: str, path: Path) -> Values:
    """Return the fields of the document by their names. Raises InputError if it is no mapping."""
    try:
        content = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        words = f"not YAML: {problem}"
        mark = getattr(error, "problem_mark", None)
        if mark:
            words = f"line {mark.line + 1}: {words}"
        raise InputError(f"{path}: {words}") from error
    except RecursionError as error:
        raise InputError(f"{path}: is nested too deeply") from error
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        # PyYAML's own errors: !!int abc, 2020-13-45
        raise InputError(f"{path}: not YAML that can be read: {one_line(error)}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: must be a mapping of fields, is {_shown(content)}")
    return {str(key): value for key, value in content.items()}


class _UniqueKeyLoader(Loader):
    """A loader that refuses duplicate keys; YAML silently keeps the last of two."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Make a mapping whose keys are texts, each there once; `<<` may come again."""
        seen: set[Any] = set()
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        for key_node, _ in pairs:
            key = key_node.value
            if not isinstance(key, str):
                problem = "a field's name must be plain text (a template that was not filled in?)"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            if key in seen and key != "<<":
                raise yaml.constructor.ConstructorError(
                    None, None, f"field {key!r} appears twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_int(self, node: Any) -> int:
        """Return a plain decimal integer; others that YAML 1.1 knows (0x1f, 017, 1:30) are seldom
        meant as numbers.
        """
        # Fits into 64 bits
        match = re.fullmatch(r"[-+]?(0|[1-9][0-9]{0,17})", str(node.value))
        self._check_number(node, match is not None)
        return int(node.value)

    def construct_yaml_float(self, node: Any) -> float:
        """Return a number that is not in the base of 60 (1:30.5), as YAML 1.1 has them."""
        self._check_number(node, ":" not in str(node.value))
        return super().construct_yaml_float(node)

    def _check_number(self, node: Any, is_plain: bool) -> None:
        if not is_plain:
            problem = (
                f"a number must be plain and decimal, is {str(node.value)[:SHOWN_CHARS]!r}: "
                "quote what is text"
            )
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


_UniqueKeyLoader.add_constructor("tag:yaml.org,2002:int", _UniqueKeyLoader.construct_yaml_int)
_UniqueKeyLoader.add_constructor("tag:yaml.org,2002:float", _UniqueKeyLoader.construct_yaml_float)
