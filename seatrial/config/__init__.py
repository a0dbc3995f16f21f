"""The files that a user writes, as models: cluster, suite, image, alerts."""

from collections.abc import Callable
from typing import Any

# By kind of platform, a function that imports its settings model. `seatrial.platforms` fills it.
PLATFORMS: dict[str, Callable[[], Any]] = {}
