"""How much of what the links carry a plateau reaches. Pure.

Recorded as `busbw_share` beside each `busbw_plateau`, a fraction: 1 is a ring that saturates the links. NVLS on one
node and trees over two may exceed it (seatrial/catalog/physics.py).
"""

from dataclasses import replace

from seatrial.catalog.physics import wire
from seatrial.model.curves import SHARE
from seatrial.model.measurement import Measurement
from seatrial.model.result import Check
from seatrial.model.setup import Setup, part_of
from seatrial.text.numbers import short


def with_shares(check: Check, setup: Setup) -> Check:
    """The check with one more measurement for each plateau whose links are known; it is not judged, but told beside the
    judgement of the plateau."""
    measured = tuple(m for m in check.measurements if m.metric != SHARE)
    shares = tuple(
        Measurement(SHARE, share, "", m.subject, m.conditions, better=None)
        for m in measured
        if (share := _share(m, setup)) is not None
    )
    judged = tuple(replace(j, share=_share(j.measurement, setup)) for j in check.judgements)
    return replace(check, measurements=(*measured, *shares), judgements=judged)


def plateau_words(check: Check, setup: Setup) -> list[str]:
    """Each plateau in words, with its share of what the links allow if that is known."""
    return [_words(m, setup) for m in check.measurements if m.metric == "busbw_plateau"]


def _share(m: Measurement, setup: Setup) -> float | None:
    limit = wire(m, part_of(m, setup)) if m.metric == "busbw_plateau" and m.finite else None
    return m.value / limit.gb_s if limit else None


def _words(m: Measurement, setup: Setup) -> str:
    limit = wire(m, part_of(m, setup))
    share = f", {m.value / limit.gb_s:.0%} of {limit.words}".replace("%", " %") if limit and m.finite else ""
    return f"plateau {short(m.value)} GB/s{share}"
