"""The measure of the gate: what counts as a node and a branch, and that more than a limit is
said.
"""

from collections.abc import Set

import pytest

from scripts import measure as measures
from scripts.measure import circles, excesses, late_constants, measure, too_long

SOURCE = '''
"""A module."""

def chosen(names, on=True):
    """The names."""
    if on and names:
        return [name for name in names if name for part in name]
    return [[part for part in name] for name in names]
'''


def test_docstrings_do_not_count_as_nodes() -> None:
    bare = "\n".join(line for line in SOURCE.splitlines() if '"""' not in line)
    assert measure(SOURCE, "a.py").nodes == measure(bare, "a.py").nodes


def test_branches_and_nested_comprehensions_are_counted() -> None:
    measured = measure(SOURCE, "a.py")
    assert measured.branches == {"a.py:4 chosen": 7}  # if, and, for, if, for; for within for
    assert measured.nested == 1


@pytest.mark.parametrize(
    ("limit", "line"),
    [
        ("MOST_NODES", "all: 44 nodes, 0 at most"),
        ("MOST_NESTED", "all: 1 nested comprehensions, 0 at most"),
        ("MOST_A_LINE", "all: 5.5 nodes a line, 0 at most"),
        ("MOST_A_LINE_OF_MODULE", "a.py: 5.5 nodes a line, 0 at most"),
        ("MOST_LINES_OF_MODULE", "a.py: 8 lines, 0 at most"),
        ("MOST_LINES_OF_FUNCTION", "a.py:4 chosen: 5 lines, 0 at most"),
        ("MOST_BRANCHES", "a.py:4 chosen: 7 branches, 0 at most"),
    ],
)
def test_exceeded_limit_of_code_size_is_an_error(
    limit: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {"a.py": measure(SOURCE, "a.py")}
    assert excesses(modules) + too_long(modules) == []
    monkeypatch.setattr(measures, limit, 0)
    assert excesses(modules) + too_long(modules) == [line]


def test_modules_that_import_each_other_are_found() -> None:
    apart: dict[str, Set[str]] = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert circles(apart) == set()
    assert circles({**apart, "c": {"b"}, "d": {"a"}}) == {"b", "c"}


def test_constant_defined_after_functions_is_found() -> None:
    source = (
        "FIRST = 1\ndef f(): ...\nLATE = FIRST + 1\nLATER = [LATE]\nTABLE = {'f': f}\nOTHER = "
        "TABLE['f']\n"
    )
    assert late_constants(source) == ["LATE", "LATER"]
