"""Read a YAML file into a pydantic model; each error is one line with file, line, field and legal values."""

import re
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from seatrial.config.problems import SHOWN_CHARS, problems
from seatrial.model.errors import FileError, InputError

try:
    from yaml import CSafeLoader as Loader  # libyaml's is many times faster
except ImportError:  # PyYAML was built without it
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

MAX_BYTES = 1_000_000
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")  # fits into 64 bits


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
    return read_yaml(_text(path), path, model, defaults)


def read_yaml(text: str, path: Path, model: type[Model], defaults: dict[str, Any] | None = None) -> Model:
    """Read `text`, the content of `path`, as `load_yaml` does."""
    content = _mapping(text, path)
    try:
        return model.model_validate({**(defaults or {}), **content})
    except ValidationError as error:
        found = problems(error.errors(include_url=False), model, yaml.compose(text, Loader=_UniqueKeyLoader))
        raise FileError([f"{path}: {problem}" for problem in found]) from error


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1).decode()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    if len(text) > MAX_BYTES:
        raise InputError(f"{path}: is larger than {MAX_BYTES} bytes, so it is no cluster or suite file")
    return text


def _mapping(text: str, path: Path) -> dict[str, Any]:
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
            problem = f"a number must be plain and decimal, is {str(node.value)[:SHOWN_CHARS]!r}: quote what is text"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


_UniqueKeyLoader.add_constructor("tag:yaml.org,2002:int", _UniqueKeyLoader.construct_yaml_int)
_UniqueKeyLoader.add_constructor("tag:yaml.org,2002:float", _UniqueKeyLoader.construct_yaml_float)


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}: not YAML: {problem}" if mark else f"not YAML: {problem}"
