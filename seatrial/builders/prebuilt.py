"""Builder `prebuilt`: builds nothing, checks that the reference exists."""

from pathlib import Path
from typing import NoReturn

from seatrial.builders import StoredImage
from seatrial.builders.plan import BuildPlan
from seatrial.config.image import Prebuilt
from seatrial.model.errors import MissingError
from seatrial.model.reason import Reason


class PrebuiltImage:
    """An image that someone else has made."""

    def reference(self, tag: str) -> str:
        return tag

    def exists(self, reference: str) -> StoredImage:
        """Raises MissingError when its registry says that there is no such image."""
        from seatrial.builders.registry import look_up

        stored = look_up(reference)
        if stored is None:
            raise MissingError(Reason.of("image-missing", image=reference))
        return stored

    def build(self, plan: BuildPlan, log_file: Path) -> NoReturn:
        raise MissingError(Reason.of("image-not-buildable", image=plan.reference))

    def render(self, plan: BuildPlan) -> str:
        return ""


def builder(config: Prebuilt) -> PrebuiltImage:
    return PrebuiltImage()
