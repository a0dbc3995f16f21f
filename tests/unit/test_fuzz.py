"""A few of the inputs of `make test-fuzz`, and what the mutants of a function change."""

import ast
from pathlib import Path

import pytest

from scripts.mutants import mutants
from seatrial.model.errors import InputError
from seatrial.text.redact import Secrets
from tests.fuzz import targets
from tests.fuzz.fuzzing import MOST_BYTES, problems
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_any_input_is_accepted_or_refused_in_one_line(target: Target, tmp_path: Path) -> None:
    broken = problems(target, 10, tmp_path, seed=100_000)
    assert not broken, "\n".join(broken[:5])


@pytest.mark.parametrize(
    ("error", "seen"), [(KeyError("x"), True), (InputError("a\nb"), True), (InputError("a"), False)]
)
def test_a_traceback_and_an_error_of_several_lines_are_seen(
    tmp_path: Path, error: Exception, seen: bool
) -> None:
    def fail(_: Path) -> None:
        raise error

    assert bool(problems(Target("any", lambda dice: b"x", fail), 1, tmp_path)) is seen


def test_input_that_loops_forever_is_stopped_and_reported(tmp_path: Path) -> None:
    def spin(_: Path) -> None:
        while True:
            pass

    (problem,) = problems(Target("any", lambda dice: b"x", spin), 1, tmp_path, most_s=0.1)
    assert "processor time" in problem


def test_an_input_that_takes_too_much_memory_is_seen(tmp_path: Path) -> None:
    (problem,) = problems(
        Target("any", lambda dice: b"x", lambda _: bytearray(2 * MOST_BYTES)), 1, tmp_path
    )
    assert "MemoryError" in problem


def test_unredacted_secret_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "SECRETS", Secrets())
    (redaction,) = (target for target in TARGETS if target.name == "redaction")
    assert "the secret is still there" in problems(redaction, 1, tmp_path)[0]


SOURCE = '''
LIMIT = 3

def old_enough(age, names, on=True):
    """3 < 4"""
    if not on or age >= 5:
        return f"{age + 1} é" + "x"
    return [age - 1 for name in names if name in "ä"]
'''


def test_each_mutant_changes_one_expression_and_nothing_else() -> None:
    made = list(mutants("a.py", SOURCE.encode()))
    assert [(each.line, each.old, each.new) for each in made] == [
        (6, "not on or age >= 5", "(not on and age >= 5)"),
        (6, "not on", "(on)"),
        (6, "age >= 5", "(age > 5)"),
        (6, "5", "6"),
        (8, "age - 1", "(age + 1)"),
        (8, "1", "2"),
        (8, 'name in "ä"', "(name not in 'ä')"),
    ]
    for each in made:
        changed = each.apply(SOURCE.encode()).decode()
        ast.parse(changed)
        assert changed.replace(each.new, each.old) == SOURCE or each.new in ("(on)", "6", "2")
