"""A few of the inputs of `make test-fuzz`, and that it sees what it is there for."""

from pathlib import Path

import pytest

from seatrial.errors import InputError
from tests.fuzz.fuzzing import problems
from tests.fuzz.targets import TARGETS, Target


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_whatever_comes_is_taken_or_refused_in_one_line(target: Target, tmp_path: Path) -> None:
    broken = problems(target, 20, tmp_path, seed=100_000)
    assert not broken, "\n".join(broken[:5])


@pytest.mark.parametrize(
    ("error", "seen"), [(KeyError("x"), True), (InputError("a\nb"), True), (InputError("a"), False)]
)
def test_a_traceback_and_an_error_of_several_lines_are_seen(tmp_path: Path, error: Exception, seen: bool) -> None:
    def fail(_: Path) -> None:
        raise error

    assert bool(problems(Target("any", lambda dice: b"x", fail), 1, tmp_path)) is seen
