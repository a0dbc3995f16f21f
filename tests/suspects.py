"""Whom a check, a run or a replayed run names, in their order."""

from collections.abc import Iterable
from typing import Protocol

from seatrial.model.result import Suspect


class Named(Protocol):
    """What has suspects."""

    @property
    def suspects(self) -> Iterable[Suspect]: ...


def suspect_names(result: Named) -> list[str]:
    return [suspect.name for suspect in result.suspects]


def kinds_and_names(result: Named) -> list[tuple[str, str]]:
    return [(suspect.kind, suspect.name) for suspect in result.suspects]
