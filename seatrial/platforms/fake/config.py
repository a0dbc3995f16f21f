"""The settings of a cluster on the fake platform. No cluster file can name it."""

from typing import TYPE_CHECKING, Literal

from pydantic import PrivateAttr

from seatrial.config.platform import PlatformSettings

if TYPE_CHECKING:
    from seatrial.platforms.fake.platform import FakePlatform


class FakeSettings(PlatformSettings):
    """Holds the platform itself, which `seatrial.platforms.platform_for` returns."""

    kind: Literal["fake"]
    _platform: "FakePlatform" = PrivateAttr()

    def __init__(self, platform: "FakePlatform") -> None:
        super().__init__(kind="fake")
        self._platform = platform

    @property
    def platform(self) -> "FakePlatform":
        return self._platform
