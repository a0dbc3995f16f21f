"""`seatrial simulate`: how the judge scored, as a table or as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from seatrial.simulate.score import HealthyNights, Score

_HEADINGS = ("fault", "size", "night 1", "found", "missed", "others", "nights")


def simulated_table(quiet: HealthyNights, scores: Sequence[Score]) -> Table:
    """One line per kind and size of fault."""
    alarms = f"{quiet.alarms} of {quiet.nights} healthy nights raised an alarm"
    table = Table(box=None, pad_edge=False, header_style="bold", caption_justify="left")
    table.caption = f"{alarms}; each series was measured {quiet.readings:.1f} times a night"
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading in _HEADINGS[:2] else "right", no_wrap=True)
    for score in scores:
        nights = "–" if score.median_nights is None else f"{score.median_nights:g}"
        counts = (score.first_night, len(score.nights), score.trials - len(score.nights), score.wrong)
        table.add_row(score.kind, score.size, *(f"{count}/{score.trials}" for count in counts), nights)
    return table


def simulated_json(nodes: int, seed: int, quiet: HealthyNights, scores: Sequence[Score]) -> dict[str, Any]:
    """The same as one document."""
    return {"nodes": nodes, "seed": seed, "healthy": quiet.to_dict(), "faults": [score.to_dict() for score in scores]}
