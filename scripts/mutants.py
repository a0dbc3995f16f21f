"""Mutation testing: change one comparison, condition, number or sum at a time, and run the tests that execute its line.

    python -m scripts.mutants SEED NUMBER [TESTS...]      `make mutants SEED=1 NUMBER=20`

Prints each mutant that no test notices; with TESTS, of the lines that these execute. Lines outside of functions run
when a module is imported, so they are left out.
A mutant that means the same as the original survives as well; telling them apart is a person's work.
"""

import ast
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("seatrial", "tasks", "flows")
OF_NODES = ("seatrial/remote/probes/", "seatrial/platforms/baremetal/on_host/")  # other processes run them
TESTS = ["tests/unit", "tests/contract"]
TIMEOUT_S = 600  # for the tests of one mutant: a loop that no longer ends is noticed
_LINES = "SEATRIAL_MUTANT_LINES"  # a file of lines by file, which the tests that run them are written to
_PAIRS = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)),
    *((ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div)),
)
_OTHER: dict[type[ast.AST], Any] = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}


@dataclass(frozen=True, slots=True)
class Mutant:
    """`new` in place of the bytes from `start` to `end` of a file; `line` is where they begin."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutants(file: str, source: bytes) -> Iterator[Mutant]:
    """Every mutant of a file's functions, in the order of the file."""
    begins = [0]
    for text in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(text))
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    seen: set[tuple[int, int]] = set()
    for node in (node for function in functions for statement in function.body for node in _expressions(statement)):
        start, end = begins[node.lineno - 1] + node.col_offset, begins[node.end_lineno - 1] + node.end_col_offset
        if (new := _mutated(node)) and (start, end) not in seen:
            seen.add((start, end))
            yield Mutant(file, node.lineno, start, end, source[start:end].decode(), new)


def _expressions(node: ast.AST) -> Iterator[Any]:
    """The expressions below a node, without those in f-strings, whose positions are not those in the file."""
    if isinstance(node, ast.expr):
        yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.JoinedStr):
            yield from _expressions(child)


def _mutated(node: ast.expr) -> str | None:
    """Return the text of a node with one thing changed, or None if it has nothing to change."""
    other: ast.expr | None = None
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return repr(not node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return repr(node.value + 1 if abs(node.value) < 1000 else node.value * 2)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        other = node.operand
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _OTHER:
        other = ast.Compare(node.left, [_OTHER[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BoolOp):
        other = ast.BoolOp(_OTHER[type(node.op)](), node.values)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OTHER and not _is_text(node):
        other = ast.BinOp(node.left, _OTHER[type(node.op)](), node.right)
    return f"({ast.unparse(other)})" if other else None


def _is_text(node: ast.BinOp) -> bool:
    """Whether texts are joined, which no other operator can do."""
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


class _Recorder:
    """A plugin of pytest that records which tests execute the wanted lines."""

    def __init__(self, file: Path) -> None:
        self._file, self._test = file, ""
        self._wanted = {str(Path(name).absolute()): set(lines) for name, lines in json.loads(file.read_text()).items()}
        self._tests: dict[str, set[str]] = defaultdict(set)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = item.nodeid
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._line if frame.f_code.co_filename in self._wanted else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        name = frame.f_code.co_filename
        if event == "line" and frame.f_lineno in self._wanted[name]:
            self._tests[f"{Path(name).relative_to(Path.cwd())}:{frame.f_lineno}"].add(self._test)
        return self._line

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps({line: sorted(tests) for line, tests in self._tests.items()}))


def pytest_configure(config: pytest.Config) -> None:
    if file := os.environ.get(_LINES):
        config.pluginmanager.register(_Recorder(Path(file)))


def _pytest(folder: Path, *words: str, **variables: str) -> bool:
    """Whether the tests pass in a copy of the repository."""
    options = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"]
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    command = [sys.executable, "-m", "pytest", *options, *words]
    try:
        limit = None if variables else TIMEOUT_S
        ended = subprocess.run(command, cwd=folder, env=env, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


def tests_of(chosen: list[Mutant], among: list[str], folder: Path) -> dict[str, list[str]]:
    """The tests that execute each line, as `file:line`."""
    lines: dict[str, list[int]] = defaultdict(list)
    for mutant in chosen:
        lines[mutant.file].append(mutant.line)
    file = folder / "lines.json"
    file.write_text(json.dumps(lines))
    _pytest(folder, "-p", "scripts.mutants", *among, **{_LINES: str(file)})
    return dict(json.loads(file.read_text()))


def survives(mutant: Mutant, tests: list[str], folder: Path) -> bool:
    path, source = folder / mutant.file, (folder / mutant.file).read_bytes()
    (folder / "tests.txt").write_text("\n".join(tests))
    path.write_bytes(mutant.apply(source))
    try:
        return _pytest(folder, "-x", f"@{folder / 'tests.txt'}")
    finally:
        path.write_bytes(source)


def main(seed: int, number: int, among: list[str]) -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    names = [name for name in tracked.decode().split("\0") if name and (ROOT / name).is_file()]
    ours = [
        name for name in names if name.endswith(".py") and name.startswith(PACKAGES) and not name.startswith(OF_NODES)
    ]
    every = [mutant for name in ours for mutant in mutants(name, (ROOT / name).read_bytes())]
    with tempfile.TemporaryDirectory(prefix="seatrial-mutants-") as at:
        folder = Path(at)
        archive = subprocess.run(["tar", "-c", "--", *names], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x"], cwd=folder, input=archive, check=True)
        if among:
            tests = tests_of(every, among, folder)
            every = [mutant for mutant in every if mutant.place in tests]
        chosen = random.Random(seed).sample(every, min(number, len(every)))
        if not among:
            tests = tests_of(chosen, TESTS, folder)
        left = 0
        for mutant in chosen:
            running = tests.get(mutant.place, [])
            if running and not survives(mutant, running, folder):
                continue
            left += 1
            why = f"tests that run it: {len(running)}"
            print(f"{mutant.place}: {' '.join(mutant.old.split())} -> {mutant.new} ({why})", flush=True)
    print(f"seed {seed}: {left} of {len(chosen)} mutants survive, of {len(every)} that there are")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
