from pathlib import Path

import pytest

from tests.fuzz.fuzzing import problems
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

COUNT = -(-10_000 // len(TARGETS))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_any_input_is_accepted_or_refused_in_one_line(
    target: Target, tmp_path: Path, seed: int
) -> None:
    broken = problems(target, COUNT, tmp_path, seed=seed * COUNT)
    assert not broken, "\n".join(broken[:5])
