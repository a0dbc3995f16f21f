"""The dead man's switch: a check that died, or that did not run in its time, as the night it should have been. Pure."""

from datetime import datetime, timedelta

from seatrial.history.incident import RunOutcome
from seatrial.history.rows import RunRow
from seatrial.model.reason import Reason
from seatrial.model.verdict import Verdict
from seatrial.text import words


def overdue(last: RunRow | None, suite: str, max_age: timedelta, now: datetime) -> RunOutcome | None:
    """A silent night where the last run is older than its schedule allows; None where it is young enough.

    A cluster without any run is overdue at once, as it is watched to be checked.
    """
    if last is None:
        return _silent("", now, Reason.of("run-overdue", late=f"no run of suite {suite} is recorded"))
    age = now - last.finished
    if age <= max_age:
        return None
    late = f"the last run, {last.run_id}, ended {hours(age)} ago, {hours(max_age)} are allowed"
    return _silent(last.run_id, now, Reason.of("run-overdue", late=late))


def silent(why: str, last: RunRow | None, now: datetime) -> RunOutcome:
    """A silent night: the check has died, or was not started, and `why` says so."""
    return _silent(last.run_id if last else "", now, words.plain(why))


def hours(span: timedelta) -> str:
    """As people say it: "26 h", "3 days"."""
    whole = round(span.total_seconds() / 3600)
    return f"{whole} h" if whole < 72 else f"{whole // 24} days"


def _silent(run_id: str, now: datetime, reason: str) -> RunOutcome:
    return RunOutcome(run_id, now, "silent", Verdict.NOT_RUN, reason)
