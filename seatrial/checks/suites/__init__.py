"""The model of a suite file, made from the table of checks, and the suites that ship with the package."""

from pathlib import Path
from typing import Any

from pydantic import Field, create_model

from seatrial.checks.contract import CheckType
from seatrial.checks.table import CHECKS
from seatrial.config.run import Suite
from seatrial.config.yamlfile import load_yaml
from seatrial.model.errors import InputError

SHIPPED = ("quick", "nightly", "acceptance", "a4-sweep")


_NEEDED = {kind.after for kind in CHECKS}


def _field(kind: CheckType) -> Any:
    """The section as a field; `null` leaves a check out, unless others come after it."""
    optional = kind.section if kind.name in _NEEDED else kind.section | None
    return (optional, Field(kind.default, description=kind.description))


_SECTIONS: dict[str, Any] = {kind.name: _field(kind) for kind in CHECKS}
SuiteFile: type[Suite] = create_model("Suite", __base__=Suite, __doc__=Suite.__doc__, **_SECTIONS)


def load_suite(name_or_path: str) -> Suite:
    """The shipped suite of that name, or the YAML file at that path. Raises InputError."""
    if name_or_path in SHIPPED:
        return load_yaml(Path(__file__).parent / f"{name_or_path}.yaml", SuiteFile)
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml") and not path.exists():
        raise InputError(f"suite {name_or_path!r}: unknown; legal: {', '.join(SHIPPED)}, or the path of a YAML file")
    return load_yaml(path, SuiteFile, {"name": path.stem})
