"""The files that a user writes, as models: cluster, suite, image, alerts."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seatrial.config.platform import PlatformSettings

# The settings model of each kind of platform, imported when it is called. `seatrial.platforms` fills it.
PLATFORMS: "dict[str, Callable[[], type[PlatformSettings]]]" = {}
