"""What earlier runs measured of given series, run by run: what a chart of the past is drawn from."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from seatrial.history.records import series_key
from seatrial.history.schema import readings, series
from seatrial.history.series import KEYS_PER_QUERY
from seatrial.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Number:
    """A value in its measurement's unit, and what it was judged; None where it was only recorded."""

    value: float
    verdict: Verdict | None


Numbers = dict[str, dict[str, Number]]


def numbers(connection: Connection, run_ids: Sequence[str], names: Sequence[str]) -> Numbers:
    """By series and run id; a run that has no finite value of a series is left out."""
    found: Numbers = defaultdict(dict)
    for start in range(0, len(names), KEYS_PER_QUERY):
        keys = [series_key(name) for name in names[start : start + KEYS_PER_QUERY]]
        query = (
            select(series.c.series, readings.c.run_id, readings.c.value, readings.c.verdict)
            .join(readings, readings.c.series_id == series.c.id)
            .where(readings.c.run_id.in_(run_ids), series.c.series_key.in_(keys), readings.c.value.is_not(None))
            .where(readings.c.nth == 0)
        )
        for row in connection.execute(query):
            found[row.series][row.run_id] = Number(row.value, Verdict(row.verdict) if row.verdict else None)
    return dict(found)
