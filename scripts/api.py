"""The page `api.md` of the site: what another package may use, from its docstrings."""

import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType

MODULES = (
    "seatrial.checks.contract",
    "seatrial.checks.metrics",
    "seatrial.readers.report",
    "seatrial.platforms",
    "seatrial.platforms.testbed",
    "seatrial.platforms.state",
    "seatrial.config.cluster",
    "seatrial.config.run",
    "seatrial.config.yamlfile",
    "seatrial.model.errors",
    "seatrial.model.explanations",
    "seatrial.model.measurement",
    "seatrial.model.reason",
    "seatrial.model.result",
    "seatrial.model.testbed",
    "seatrial.model.verdict",
    "seatrial.remote.command",
    "seatrial.remote.mpi",
    "seatrial.remote.node_probe",
    "seatrial.remote.ssh",
    "seatrial.system.extensions",
)


def page() -> str:
    """Return the page in Markdown: each module with its public classes and functions, in the order
    of the source.
    """
    lines = ["# API", "", "For [checks, platforms and readers of your own](extending.md).", ""]
    for name in MODULES:
        lines += _module(importlib.import_module(name))
    return "\n".join(lines)


def _module(module: ModuleType) -> Iterator[str]:
    yield from (f"## {module.__name__}", "", _text(module), "")
    own = [
        each
        for each in vars(module).values()
        if getattr(each, "__module__", None) == module.__name__
    ]
    public = [each for each in own if inspect.isclass(each) or inspect.isfunction(each)]
    public = [each for each in public if each.__doc__ and not each.__name__.startswith("_")]
    for each in sorted(public, key=lambda one: inspect.getsourcelines(one)[1]):
        yield from _described(each, "### ")
        if inspect.isclass(each):
            for method in vars(each).values():
                if (
                    inspect.isfunction(method)
                    and method.__doc__
                    and not method.__name__.startswith("_")
                ):
                    yield from _described(method, "#### ", f"{each.__name__}.")


def _described(described: object, heading: str, owner: str = "") -> Iterator[str]:
    name = getattr(described, "__name__", "")
    yield from (
        f"{heading}{owner}{name}",
        "",
        f"    {name}{_signature(described)}",
        "",
        _text(described),
        "",
    )


def _signature(described: object) -> str:
    try:
        return str(inspect.signature(described))  # type: ignore[arg-type]
    except (TypeError, ValueError):  # an enumeration
        return ""


def _text(described: object) -> str:
    """Return the docstring, with its angle brackets as text."""
    return (inspect.getdoc(described) or "").replace("<", "&lt;")
