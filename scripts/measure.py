"""The size of the code in nodes of its syntax tree, without docstrings, and how densely they are
packed.

    python -m scripts.measure

Prints a line for each package and the functions with the most branches. More than a limit below is
an error: size is counted in nodes, since lines can be packed. Limits go down, but for a new
capability. Modules that import each other in a circle are an error too, and so is a constant behind
functions that needs none of them.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
SOURCES = ("seatrial", "flows", "tasks")
BESIDE = ("benchmarks", "scripts", "tests")  # of which the length of modules and functions counts
MOST_NODES = 525_112
MOST_A_LINE, MOST_A_LINE_OF_MODULE = 6.0, 7.0
MOST_LINES_OF_MODULE, MOST_LINES_OF_FUNCTION = 450, 50
MOST_NESTED = 22  # comprehensions that hold another
MOST_BRANCHES = 25  # of a function
SHOWN = 10
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.While,
    ast.ExceptHandler,
    ast.match_case,
    ast.comprehension,
)


@dataclass(frozen=True, slots=True)
class Measure:
    """The size of a module; `branches` and `function_lines` by function."""

    nodes: int
    lines: int
    nested: int
    branches: dict[str, int]
    function_lines: dict[str, int]

    @property
    def a_line(self) -> float:
        """Nodes a line."""
        return self.nodes / max(1, self.lines)


def measure(source: str, name: str) -> Measure:
    """Measure the source of a module."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            del node.body[0]
    nodes = list(ast.walk(tree))
    functions = [node for node in nodes if isinstance(node, _FUNCTIONS)]
    named = {f"{name}:{each.lineno} {each.name}": each for each in functions}
    branches = {function: _branches(each) for function, each in named.items()}
    lines = {
        function: (each.end_lineno or each.lineno) - each.lineno + 1
        for function, each in named.items()
    }
    nested = sum(isinstance(node, _COMPREHENSIONS) and _holds_another(node) for node in nodes)
    return Measure(len(nodes), source.count("\n"), nested, branches, lines)


def _branches(function: ast.AST) -> int:
    """Count the branches of a function; each further part of a condition counts."""
    nodes = list(ast.walk(function))
    parts = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    filters = sum(len(node.ifs) for node in nodes if isinstance(node, ast.comprehension))
    return sum(isinstance(node, _BRANCHES) for node in nodes) + parts + filters


def _holds_another(node: ast.AST) -> bool:
    return any(isinstance(inner, _COMPREHENSIONS) for inner in ast.walk(node) if inner is not node)


def excesses(modules: dict[str, Measure]) -> list[str]:
    """Return what is above its limit, a line for each."""
    nodes, lines = sum(m.nodes for m in modules.values()), sum(m.lines for m in modules.values())
    nested = sum(m.nested for m in modules.values())
    measured: list[tuple[str, str, float, float]] = [
        ("all", "nodes", nodes, MOST_NODES),
        ("all", "nested comprehensions", nested, MOST_NESTED),
        ("all", "nodes a line", nodes / max(1, lines), MOST_A_LINE),
    ]
    for name, module in modules.items():
        measured.append((name, "nodes a line", module.a_line, MOST_A_LINE_OF_MODULE))
        measured += [
            (function, "branches", count, MOST_BRANCHES)
            for function, count in module.branches.items()
        ]
    return _above(measured)


def too_long(modules: Mapping[str, Measure]) -> list[str]:
    """Return modules and functions of too many lines, a line for each."""
    measured: list[tuple[str, str, float, float]] = []
    for name, module in modules.items():
        measured.append((name, "lines", module.lines, MOST_LINES_OF_MODULE))
        measured += [
            (function, "lines", count, MOST_LINES_OF_FUNCTION)
            for function, count in module.function_lines.items()
        ]
    return _above(measured)


def _above(measured: Sequence[tuple[str, str, float, float]]) -> list[str]:
    return [
        f"{name}: {value:.6g} {measure_name}, {most} at most"
        for name, measure_name, value, most in measured
        if value > most
    ]


def late_constants(source: str) -> list[str]:
    """Return the constants that could stand before the first function or class of a module, and
    stand behind it.
    """
    body = ast.parse(source).body
    first = next(
        (place for place, node in enumerate(body) if isinstance(node, (*_FUNCTIONS, ast.ClassDef))),
        len(body),
    )
    # What a constant there may need
    bound = {name for node in body[first:] for name in _bound(node)}
    late: list[str] = []
    for node in body[first:]:
        if isinstance(node, ast.Assign | ast.AnnAssign) and not _names(node, ast.Load) & bound:
            late += _names(node, ast.Store)
            bound -= _names(node, ast.Store)
    return late


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, context)
    }


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return {node.name}
    imported = {(alias.asname or alias.name) for each in ast.walk(node) for alias in getattr(each, "names", ())
                if isinstance(alias, ast.alias)}  # fmt: skip
    return _names(node, ast.Store) | imported


def circles(imports: Mapping[str, Set[str]]) -> set[str]:
    """Return the modules that import each other in a circle, or lie between circles; `imports` is
    by module.
    """
    left = dict(imports)
    while True:
        imported = set().union(*left.values())
        ends = {name for name in left if name not in imported or not left[name] & left.keys()}
        if not ends:
            return set(left)
        left = {name: others for name, others in left.items() if name not in ends}


def imports_of(package: str) -> dict[str, Set[str]]:
    """Return the modules that each module imports, in functions and for types too."""
    graph = grimp.build_graph(package, cache_dir=None)
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def _package(name: str) -> str:
    parts = Path(name).parts
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def _names_of(folders: Sequence[str]) -> dict[Path, str]:
    """Return the names of the modules in folders; a link's file counts once."""
    every = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {path: str(path.relative_to(ROOT)) for path in every if not path.is_symlink()}


def main() -> int:
    names = _names_of(SOURCES)
    modules = {name: measure(path.read_text(), name) for path, name in names.items()}
    beside = {name: measure(path.read_text(), name) for path, name in _names_of(BESIDE).items()}
    packages: dict[str, list[Measure]] = defaultdict(list)
    for name, module in modules.items():
        packages[_package(name)].append(module)
        packages["all"].append(module)
    print(f"{'package':20} {'nodes':>8} {'lines':>7} {'nodes a line':>13} {'nested':>7}")
    for package, parts in sorted(packages.items()):
        nodes, lines = sum(part.nodes for part in parts), sum(part.lines for part in parts)
        nested = sum(part.nested for part in parts)
        print(f"{package:20} {nodes:8} {lines:7} {nodes / max(1, lines):13.2f} {nested:7}")
    branches = {
        function: count
        for module in modules.values()
        for function, count in module.branches.items()
    }
    for function, count in nlargest(SHOWN, branches.items(), key=lambda item: item[1]):
        print(f"{count} branches: {function}")
    wrong = excesses(modules) + too_long({**modules, **beside})
    for path, name in names.items():
        wrong += [
            f"{name}: {constant} must stand before functions and classes"
            for constant in late_constants(path.read_text())
        ]
    if around := circles(imports_of("seatrial")):
        wrong.append(f"modules import each other in a circle: {', '.join(sorted(around))}")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
