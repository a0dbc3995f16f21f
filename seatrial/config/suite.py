"""A suite: which checks run and how hard. What a check's section may say is the check's own (seatrial/checks)."""

from typing import TypeVar

from pydantic import Field

from seatrial.config.yamlfile import Strict

Section = TypeVar("Section", bound=Strict)


class Suite(Strict):
    """What is run on a testbed."""

    name: str = Field(min_length=1, max_length=63, description="what reports and history call it")

    def section(self, model: type[Section]) -> Section | None:
        """The section of that model; None where the suite leaves its check out."""
        return next((value for value in vars(self).values() if isinstance(value, model)), None)
