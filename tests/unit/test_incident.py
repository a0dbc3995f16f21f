"""What is news, what is not, and when it is over."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.alerts.alert import overdue, silent
from seatrial.history.incident import Incident, Kind, Receipt, RunOutcome, advance, outcome_of
from seatrial.history.rows import RunRow
from seatrial.model.reason import uncoded
from seatrial.model.verdict import Verdict
from tests import nights

NOW = datetime(2026, 3, 14, 2, tzinfo=UTC)
# U: unsure
F, D, C, P, U, N = (
    Verdict(v) for v in ("fail", "degraded", "corrupt", "pass", "inconclusive", "not_run")
)


def night(
    number: int, verdict: Verdict, *suspects: str, checks: tuple[str, ...] = ()
) -> RunOutcome:
    kind: Kind | None = None if verdict is P else "unmeasured" if verdict in (U, N) else "fault"
    return RunOutcome(
        f"run-{number}",
        NOW + timedelta(days=number),
        kind,
        verdict,
        uncoded("because"),
        suspects,
        checks,
    )


def after(*all_nights: RunOutcome, delivered: bool = True) -> list[Incident]:
    """The incidents after those nights; with `delivered`, the one sink hears of everything at
    once.
    """
    known: list[Incident] = []
    for one in all_nights:
        known = advance([i for i in known if not i.settled], "east", "nightly", one, ["slack"])
        if delivered:
            known = [i.with_receipt("slack", Receipt(len(i.changes))) for i in known]
    return known


@pytest.mark.parametrize("verdict", [F, D, C, P, U, N])
def test_outcome_has_kind_suspects_and_checks_of_a_run(verdict: Verdict) -> None:
    outcome = outcome_of(nights.bad(1, verdict=verdict, reason=uncoded("two\nlines\0")))
    assert outcome.kind == night(1, verdict).kind
    assert (outcome.run_id, outcome.suspects) == ("run-1", ("node-5",))
    assert outcome.reason == uncoded("two lines")
    assert outcome.checks == ("collectives",)


def test_bad_nights_are_one_incident_until_a_pass() -> None:
    (incident,) = after(night(1, F), night(2, F), night(3, F))
    assert (incident.run_count, incident.changes, incident.closed) == (3, ("fail: because",), None)
    (incident,) = after(night(1, F), night(2, F), night(3, P))
    assert incident.changes[-1] == "pass again after 2 runs, worst fail"
    assert incident.settled
    assert after(night(1, F), night(2, P), night(3, P)) == []
    (incident,) = after(night(1, D), night(2, F), night(3, D), night(4, P))
    assert incident.changes[-1] == "pass again after 3 runs, worst fail"


@pytest.mark.parametrize(
    ("later", "news"),
    [
        ([night(2, C)], ["corrupt, was fail"]),
        ([night(2, D)], []),
        ([night(2, D), night(3, F)], []),  # as bad as it was before
        ([night(2, F, "node 1")], ["new suspect: node 1"]),
        # Comes and goes
        ([night(2, F, "n1"), night(3, F), night(4, F, "n1")], ["new suspect: n1"]),
        (
            [night(2, C, "n1", "n2", checks=("training",))],
            ["corrupt, was fail; new suspects: n1, n2; now also training"],
        ),
        ([night(2, F, *"abcde")], ["new suspects: a, b, c and 2 more"]),
    ],
)
def test_new_suspects_and_worse_verdicts_are_news(later: list[RunOutcome], news: list[str]) -> None:
    (incident,) = after(night(1, F), *later)
    assert list(incident.changes[1:]) == news


@pytest.mark.parametrize("verdict", [U, N])
def test_a_night_without_a_measurement_closes_no_fault(verdict: Verdict) -> None:
    fault, unmeasured = after(night(1, F), night(2, verdict), night(3, verdict))
    assert (fault.kind, fault.closed, fault.run_count) == ("fault", None, 1)
    assert (unmeasured.kind, unmeasured.run_count, len(unmeasured.changes)) == ("unmeasured", 2, 1)


def test_any_measured_run_closes_an_unmeasured_incident() -> None:
    unmeasured, fault = after(night(1, U), night(2, F))
    assert unmeasured.changes[-1] == "measured again"
    assert fault.closed is None
    (unmeasured,) = after(night(1, U), night(2, P))
    assert unmeasured.closed


def test_any_run_closes_a_silence_incident() -> None:
    silence = silent("the check died: crashed", None, NOW)
    for verdict in (P, F, U):
        incidents = after(silence, night(1, verdict))
        assert incidents[0].changes[-1] == "runs again"
        assert [i.kind for i in incidents if not i.closed] == {
            P: [],
            F: ["fault"],
            U: ["unmeasured"],
        }[verdict]


def test_second_death_of_a_check_is_news_though_the_run_between_told_nobody() -> None:
    def dead(last_run: str) -> RunOutcome:
        return RunOutcome(last_run, NOW, "silent", N, uncoded("the check died"))

    assert len(after(dead("run-1"), dead("run-1"))) == 1
    first, second = after(dead("run-1"), dead("run-2"), delivered=False)
    assert (first.changes[-1], first.closed) == ("runs again", NOW)
    assert (second.closed, second.news("slack")) == (None, ("not_run: the check died",))


def test_recording_the_same_run_twice_changes_nothing() -> None:
    once, twice = after(night(1, F)), after(night(1, F), night(1, F))
    assert once == twice


def test_failed_delivery_is_retried_for_a_limited_time() -> None:
    (closed,) = after(night(1, F), night(2, P), delivered=False)
    assert closed.news("slack") == ("fail: because", "pass again after 1 run, worst fail")
    (still,) = after(night(1, F), night(2, P), night(3, P), delivered=False)
    assert not still.settled
    assert after(night(1, F), night(2, P), night(9, P), delivered=False)[0].settled


def test_new_sink_hears_only_of_open_incidents() -> None:
    known = after(night(1, F), night(2, U))
    again = advance(known, "east", "nightly", night(3, U), ["slack", "mail"])
    assert [i.news("mail") != () for i in again] == [True, True]
    closed = advance(known, "east", "nightly", night(3, P), ["slack", "mail"])
    assert all("mail" not in i.receipts for i in closed)


@given(st.lists(st.sampled_from([F, D, C, P, U, N]), max_size=12))
def test_at_most_one_incident_of_a_kind_is_open_and_each_run_changes_it_once(
    verdicts: list[Verdict],
) -> None:
    known: list[Incident] = []
    for number, verdict in enumerate(verdicts):
        known = [i for i in known if not i.settled]
        known = advance(known, "east", "nightly", night(number, verdict), ["slack"])
        opened = [i.kind for i in known if i.closed is None]
        assert len(opened) == len(set(opened))
        assert not (verdict is P and opened)
        assert all(len(i.changes) <= i.run_count + 1 for i in known)
        known = [i.with_receipt("slack", Receipt(len(i.changes))) for i in known]


def row(ended: datetime) -> RunRow:
    return RunRow(
        "run-7",
        "east",
        "nightly",
        ended - timedelta(minutes=9),
        ended,
        P,
        {},
        "/gone",
        reason=uncoded("all pass"),
    )


def test_a_check_is_overdue_after_its_limit() -> None:
    day = timedelta(hours=26)
    assert overdue(row(NOW - day), "nightly", day, NOW) is None
    late = overdue(row(NOW - day - timedelta(hours=2)), "nightly", day, NOW)
    assert late is not None
    assert (late.run_id, late.kind, late.verdict) == ("run-7", "silent", N)
    assert late.reason.sentence.startswith(
        "the last run, run-7, ended 28 h ago, 26 h are allowed; check its schedule"
    )
    never = overdue(None, "nightly", day, NOW)
    assert never is not None
    assert never.reason.sentence.startswith("no run of suite nightly is recorded")
    weeks = overdue(row(NOW - 9 * day), "nightly", day, NOW)
    assert weeks is not None
    assert "ended 9 days ago" in weeks.reason.sentence
