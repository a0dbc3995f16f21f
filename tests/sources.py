"""The syntax trees of this repository's modules, each parsed once."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Every node of the module."""
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def modules(*folders: str) -> tuple[Path, ...]:
    """The modules of these folders; without folders, of the three packages."""
    return tuple(
        path
        for each in folders or ("seatrial", "tasks", "flows")
        for path in sorted((ROOT / each).rglob("*.py"))
    )


def imported(path: Path) -> set[str]:
    """The top-level packages and modules that the module imports anywhere."""
    names: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names
