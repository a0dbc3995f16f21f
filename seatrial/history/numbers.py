"""What earlier runs measured of given series, run by run: what a chart of the past is drawn from."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy import Connection, select

from seatrial.history.records import series_key
from seatrial.history.schema import readings, series
from seatrial.history.series import KEYS_PER_QUERY
from seatrial.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Number:
    """A value in its measurement's unit, of repeats the median as it was judged; None where it was only recorded."""

    value: float
    verdict: Verdict | None


Numbers = dict[str, dict[str, Number]]


def numbers(connection: Connection, run_ids: Sequence[str], names: Sequence[str]) -> Numbers:
    """By series and run id; a run that has no finite value of a series is left out."""
    found: Numbers = defaultdict(dict)
    columns = (series.c.series, readings.c.run_id, readings.c.series_id, readings.c.value, readings.c.verdict)
    for start in range(0, len(names), KEYS_PER_QUERY):
        keys = [series_key(name) for name in names[start : start + KEYS_PER_QUERY]]
        query = (
            select(*columns)
            .join(readings, readings.c.series_id == series.c.id)
            .where(readings.c.run_id.in_(run_ids), series.c.series_key.in_(keys), readings.c.value.is_not(None))
            .order_by(readings.c.series_id)
        )
        taken = defaultdict(list)
        for row in connection.execute(query):
            taken[row.series_id, row.run_id].append(row)
        for (_, run_id), rows in taken.items():
            judged = rows[0].verdict
            found[rows[0].series][run_id] = Number(
                median(row.value for row in rows), Verdict(judged) if judged else None
            )
    return dict(found)
