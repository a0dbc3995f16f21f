"""How far NCCL's ranks got while connecting, by `NCCL_DEBUG=INFO`. Pure."""

import re

from seatrial.text.words import some_of

_MAX_RANKS = 65_536
_NAMES = {  # in the order of the stages
    "Init START": "began to initialise",
    "Connected all rings": "connected their rings",
    "Connected all trees": "connected their trees",
    "Init COMPLETE": "are initialised",
}
_STAGES = tuple(_NAMES)
_RANK = re.compile(r"([\w.-]{1,253}+:\d{1,9}):\d{1,9} \[\d{1,4}\] NCCL INFO ")


class Stages:
    """Take the lines of a log; memory is bounded by the number of ranks."""

    def __init__(self) -> None:
        self._reached: dict[str, set[str]] = {stage: set() for stage in _STAGES}

    def take(self, text: str) -> None:
        """Take one line; only those of a stage count."""
        if " NCCL INFO " not in text:
            return
        stage = next((stage for stage in _STAGES if stage in text), None)
        rank = _RANK.search(text)
        if stage and rank and len(self._reached[stage]) < _MAX_RANKS:
            self._reached[stage].add(rank[1])

    def unfinished(self) -> str | None:
        """Say which ranks lag behind the last stage that any rank reached, or that none went on.

        None if no rank is behind.
        """
        everyone = set().union(*self._reached.values())
        if self._reached["Init COMPLETE"] >= everyone:
            return None
        last = max((stage for stage, ranks in self._reached.items() if ranks), key=_STAGES.index)
        ranks = self._reached[last]
        missing = sorted(everyone - ranks)
        if missing:
            return f"{len(ranks)} of {len(everyone)} ranks {_NAMES[last]}, not {some_of(missing)}"
        if last == "Connected all trees":
            return None  # the last lines of a run that goes on
        following = _STAGES[_STAGES.index(last) + 1]
        return f"all {len(ranks)} ranks {_NAMES[last]}, and none {_NAMES[following]}"
