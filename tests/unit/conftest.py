"""What several unit tests share."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("unit", deadline=None)  # a busy machine meets none
settings.load_profile("unit")


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)
