"""The files that a user writes, as models: cluster, suite, image, alerts."""

from collections.abc import Callable
from typing import Any

# By kind of platform, what imports the model of its settings. `seatrial.platforms` fills it.
PLATFORMS: dict[str, Callable[[], Any]] = {}
