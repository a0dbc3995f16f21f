"""The lane that tries 10,000 broken inputs: minutes, so only when it is asked for by its path (make test-fuzz)."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return None if any("tests/fuzz" in argument for argument in config.args) else True
