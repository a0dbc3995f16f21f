"""Records that the store returns."""

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from seatrial.model.reason import Reason
from seatrial.model.verdict import Verdict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pandas import DataFrame

VERDICTS = tuple(Verdict)


@dataclass(frozen=True, slots=True)
class RunRow:
    """One earlier run; times are in UTC, `out` is the folder it wrote to."""

    run_id: str
    cluster: str
    suite: str
    started: datetime
    finished: datetime
    verdict: Verdict
    reason: Reason = field(default=Reason(), kw_only=True)
    fingerprint: dict[str, str]
    out: str
    # How much of it was compared: none, some or all; None in runs of earlier versions
    judged: str | None = None

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.PASS

    @property
    def lacks_baseline(self) -> bool:
        """Whether the run passed without a baseline for some of its numbers."""
        return self.passed and self.judged not in (None, "all")

    def to_dict(self) -> dict[str, Any]:
        """Return the row as `seatrial history --json` prints it."""
        times = {
            name: getattr(self, name).isoformat(timespec="seconds")
            for name in ("started", "finished")
        }
        return {
            **asdict(self),
            **times,
            "code": self.reason.code,
            "reason": self.reason.sentence,
            "verdict": self.verdict.value,
        }


@dataclass(frozen=True, slots=True)
class Readings:
    """Readings of series in runs, one element per number; `run` and `series` are indexes of the
    requested lists.

    Numbers of one series in one run are in order of measurement; `verdict` is an index of VERDICTS,
    -1 if not judged.
    """

    run: "NDArray[np.int64]"
    series: "NDArray[np.int64]"
    value: "NDArray[np.float64]"
    verdict: "NDArray[np.int64]"

    @property
    def good(self) -> "NDArray[np.bool_]":
        """Mask of the readings that were not judged bad."""
        passed: NDArray[np.bool_] = (self.verdict < 0) | (
            self.verdict == VERDICTS.index(Verdict.PASS)
        )
        return passed

    def medians(self) -> "DataFrame":
        """Return the median of each series in each run, with the verdict of its first number.

        Columns: run, series, value and verdict, as here.
        """
        import pandas as pd

        frame = pd.DataFrame(asdict(self))
        by_place = frame.groupby(["run", "series"], sort=False, as_index=False)
        return by_place.agg({"value": "median", "verdict": "first"})

    def moved(self, series: "NDArray[np.int64]") -> "Readings":
        """Return the readings with other indexes of series; those at -1 are left out."""
        kept = series >= 0
        return Readings(self.run[kept], series[kept], self.value[kept], self.verdict[kept])


@dataclass(frozen=True, slots=True)
class Pin:
    """A baseline that a person approved for one series (`Measurement.series()`), in `unit`.

    `low` and `high` bound what is expected; None leaves that side open. `run_id` is the run it was
    taken from.
    """

    series: str
    centre: float
    low: float | None
    high: float | None
    unit: str
    pinned_by: str
    pinned_at: datetime
    run_id: str | None = None
    note: str = ""
