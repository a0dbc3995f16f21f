"""Mutation testing: change one comparison, condition, number or sum at a time, and run the tests
that execute its line.

    python -m scripts.mutants SEED NUMBER [FILES...] [TESTS...]      `make mutants SEED=1 NUMBER=20`

Prints each mutant that no test notices, with its number; with FILES, of those alone, as
`seatrial/history/`; with TESTS alone, of the lines that these execute. Lines outside of functions
run when a module is imported, so they are left out. A mutant that means the same as the original
survives as well; telling them apart is a person's work. A test notices a mutant if it fails with it
twice and passes without it in between, so that a busy machine counts for nothing. Processor time
bounds loops without end; what waits too long is printed, and is not counted as noticed.
"""

import ast
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "seatrial"
LINKED = ("flows", "tasks")  # folders at the root, which the package has links to
# Other processes run them
OF_NODES = ("seatrial/remote/probes/", "seatrial/platforms/baremetal/on_host/")
TESTS = [
    "tests/unit",
    "tests/contract",
    "tests/integration/alerts",
    "tests/integration/cloud_build",
]
# For the tests of one mutant, and so many times as long as they took when traced
WALL_S, CPU_S, TIMES = 120, 20, 20
NOTICED, SURVIVES, TIMED_OUT = "noticed", "survives", "waited too long"
_PAIRS = (
    *(
        (ast.Lt, ast.LtE),
        (ast.Gt, ast.GtE),
        (ast.Eq, ast.NotEq),
        (ast.In, ast.NotIn),
        (ast.Is, ast.IsNot),
    ),
    *((ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div)),
)
_OTHER: dict[type[ast.AST], Any] = {
    one: other for pair in _PAIRS for one, other in (pair, pair[::-1])
}


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
        """Return the mutated source; what follows keeps its lines."""
        lines = b"\n" * source[self.start : self.end].count(b"\n")
        new = self.new.encode()
        return source[: self.start] + new[:-1] + lines + new[-1:] + source[self.end :]


def mutants(file: str, source: bytes) -> Iterator[Mutant]:
    """Yield every mutant of a file's functions, in the order of the file."""
    begins = [0]
    for text in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(text))
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    seen: set[tuple[int, int]] = set()
    for node in (
        node
        for function in functions
        for statement in function.body
        for node in _expressions(statement)
    ):
        start, end = (
            begins[node.lineno - 1] + node.col_offset,
            begins[node.end_lineno - 1] + node.end_col_offset,
        )
        if (new := _mutated(node)) and (start, end) not in seen:
            seen.add((start, end))
            yield Mutant(file, node.lineno, start, end, source[start:end].decode(), new)


def _expressions(node: ast.AST) -> Iterator[Any]:
    """Yield the expressions below a node, without those in f-strings, whose positions are not those
    in the file.
    """
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
        other = ast.Compare(
            node.left, [_OTHER[type(node.ops[0])](), *node.ops[1:]], node.comparators
        )
    elif isinstance(node, ast.BoolOp):
        other = ast.BoolOp(_OTHER[type(node.op)](), node.values)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OTHER and not _is_text(node):
        other = ast.BinOp(node.left, _OTHER[type(node.op)](), node.right)
    return f"({ast.unparse(other)})" if other else None


def _is_text(node: ast.BinOp) -> bool:
    """Return whether texts are joined, which no other operator can do."""
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (node.left, node.right)
    )


class _Mutation:
    """A plugin of pytest that runs the tests of each mutant in a process of its own, forked when
    all is imported.
    """

    def __init__(
        self, of_files: list[Mutant], number: int, random: random.Random, *, executed: bool
    ) -> None:
        self._every, self._number, self._random, self._executed = of_files, number, random, executed
        if not executed:
            self._every = random.sample(of_files, min(number, len(of_files)))
        self._wanted: dict[str, set[int]] = defaultdict(set)
        for mutant in self._every:
            self._wanted[str(Path(mutant.file).absolute())].add(mutant.line)
        self._lines: set[str] = set()  # executed by a test
        self._left: dict[CodeType, set[int]] = {}  # of those wanted, not yet executed by it
        self._root = f"{Path.cwd()}/"
        self._out = os.fdopen(os.dup(1), "w")

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_timeout_set_timer(self) -> bool:
        """Keep pytest-timeout from ending tests: a slow machine is no failure."""
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        tests = self._traced(session)
        every = [mutant for mutant in self._every if not self._executed or mutant.place in tests]
        chosen = self._random.sample(every, min(self._number, len(every)))
        endings = Counter[str]()
        for number, mutant in enumerate(chosen, 1):
            took = tests.get(mutant.place, {})
            running = [item for item in session.items if item.nodeid in took]
            end = _end(
                mutant, sorted(running, key=lambda item: took[item.nodeid]), sum(took.values())
            )
            endings[end] += 1
            if end != NOTICED:
                mutation = f"{mutant.place}: {' '.join(mutant.old.split())} -> {mutant.new}"
                print(
                    f"{number}: {mutation} ({end}; tests that run it: {len(running)})",
                    file=self._out,
                    flush=True,
                )
        others = f", {endings[TIMED_OUT]} {TIMED_OUT}" if endings[TIMED_OUT] else ""
        print(
            f"{endings[SURVIVES]} of {len(chosen)} mutants survive{others}",
            file=self._out,
            flush=True,
        )
        return True

    def _traced(self, session: pytest.Session) -> dict[str, dict[str, float]]:
        """Return the tests that pass and execute each line, as `file:line`, with the seconds that
        they took.
        """
        file = Path("lines.json")
        if (child := os.fork()) == 0:
            try:
                file.write_text(
                    json.dumps({item.nodeid: self._lines_of(item) for item in session.items})
                )
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        tests: dict[str, dict[str, float]] = defaultdict(dict)
        for test, (took, lines) in json.loads(file.read_text()).items():
            for line in lines:
                tests[line][test] = took
        return tests

    def _lines_of(self, item: pytest.Item) -> tuple[float, list[str]]:
        self._lines, self._left, began = set(), {}, time.monotonic()
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            passed = _failing([item]) is None
        finally:
            sys.settrace(None)
            threading.settrace(None)
        return time.monotonic() - began, sorted(self._lines) if passed else []

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if code not in self._left:
            wanted = self._wanted.get(code.co_filename, set())
            self._left[code] = wanted.intersection(line for *_, line in code.co_lines() if line)
        return self._line if self._left[code] else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        left, name = self._left[frame.f_code], frame.f_code.co_filename
        if event == "line" and frame.f_lineno in left:
            left.remove(frame.f_lineno)
            self._lines.add(f"{name.removeprefix(self._root)}:{frame.f_lineno}")
        return self._line if left else None


def _failing(items: list[pytest.Item]) -> int | None:
    """Return the index of the first test that fails."""
    for index, (item, after) in enumerate(zip_longest(items, items[1:])):
        failed = item.session.testsfailed
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if item.session.testsfailed > failed:
            return index
    return None


def _end(mutant: Mutant, tests: list[pytest.Item], took: float) -> str:
    """Run the tests with the mutant until one of them notices it."""
    while tests:
        with _written(mutant) as path:
            end, failing = _run(tests, took, path)
        if failing is None:
            return end
        one, tests = tests[failing : failing + 1], tests[failing + 1 :]
        passes = _run(one, took)[0] == SURVIVES
        with _written(mutant) as path:
            if passes and _run(one, took, path)[0] != SURVIVES:
                return NOTICED
    return SURVIVES


@contextmanager
def _written(mutant: Mutant) -> Iterator[Path]:
    """Write the mutant into its file within the context, for what is imported later and for other
    processes.
    """
    path, source = Path(mutant.file).absolute(), Path(mutant.file).read_bytes()
    path.write_bytes(mutant.apply(source))
    try:
        yield path
    finally:
        path.write_bytes(source)


def _run(
    tests: list[pytest.Item], took: float, changed: Path | None = None
) -> tuple[str, int | None]:
    """Run tests in a forked process; return whether they notice the mutant, and the index of the
    first that fails.
    """
    result = Path("failing.json")
    result.unlink(missing_ok=True)
    if (child := os.fork()) == 0:
        try:
            signal.setitimer(signal.ITIMER_PROF, CPU_S + TIMES * took)
            if changed:
                _replace(changed)
            result.write_text(json.dumps(_failing(tests)))
        finally:
            os._exit(0)
    limit = threading.Timer(WALL_S + TIMES * took, os.kill, (child, signal.SIGKILL))
    limit.start()
    status = os.waitpid(child, 0)[1]
    limit.cancel()
    limit.join()
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return TIMED_OUT, None
    if not result.exists():
        return NOTICED, None
    failing: int | None = json.loads(result.read_text())
    return SURVIVES if failing is None else NOTICED, failing


def _replace(path: Path) -> None:
    """Give the functions that are imported already the code that is in the file now."""
    codes: dict[tuple[str, int], list[CodeType]] = defaultdict(list)
    left = [compile(path.read_bytes(), str(path), "exec", dont_inherit=True)]
    while left:
        code = left.pop()
        codes[code.co_qualname, code.co_firstlineno].append(code)
        left += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename == str(path):
            new = codes[each.__code__.co_qualname, each.__code__.co_firstlineno]
            # One of several lambdas of a line stays
            each.__code__ = new[0] if len(new) == 1 else each.__code__
        elif callable(clear := getattr(type(each), "cache_clear", None)):
            clear(each)


def main(seed: int, number: int, words: list[str]) -> None:
    files = tuple(word for word in words if word.startswith(PACKAGE))
    among = [word for word in words if not word.startswith(PACKAGE)]
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    names = [name for name in tracked.decode().split("\0") if name and (ROOT / name).is_file()]
    modules = [
        f"{PACKAGE}/{name}" if name.startswith(LINKED) else name
        for name in names
        if name.endswith(".py")
    ]
    ours = [
        name
        for name in modules
        if name.startswith(files or PACKAGE) and not name.startswith(OF_NODES)
    ]
    every = [mutant for name in ours for mutant in mutants(name, (ROOT / name).read_bytes())]
    with tempfile.TemporaryDirectory(prefix="seatrial-mutants-") as folder:
        archive = subprocess.run(
            ["tar", "-c", "--", *names], cwd=ROOT, capture_output=True, check=True
        ).stdout
        subprocess.run(["tar", "-x"], cwd=folder, input=archive, check=True)
        for name in LINKED:  # or code would have the name of a link's file
            Path(folder, name).rename(Path(folder, PACKAGE, name))
        os.chdir(folder)
        os.chmod(folder, 0o755)  # tests of other users' files
        sys.path.insert(0, folder)
        sys.dont_write_bytecode = True
        os.environ |= {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        mutation = _Mutation(every, number, random.Random(seed), executed=bool(among and not files))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        options = [
            "-q",
            "-m",
            "not slow",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            f"--basetemp={folder}/t",
        ]
        pytest.main([*options, *(among or TESTS)], plugins=[mutation])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
