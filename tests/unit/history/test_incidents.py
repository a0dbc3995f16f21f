"""What the history remembers for alerts and metrics."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from seatrial.alerts.alert import silent
from seatrial.history import open_store
from seatrial.history.incident import Incident, Receipt, outcome_of
from seatrial.history.store import Store
from seatrial.model.reason import uncoded
from seatrial.model.verdict import Verdict
from tests.unit.history.stored import START, a_run


def _keep(store: Store, incident: Incident, **receipts: Receipt) -> None:
    assert incident.id is not None
    store.keep_receipts(incident.id, receipts)


def test_open_incident_continues_over_runs_until_one_passes(made_url: str) -> None:
    hostile = "reason \0 \ud800 " + "x" * 5000
    nights = [
        a_run(n, verdict=verdict, reason=uncoded(hostile))
        for n, verdict in enumerate([Verdict.FAIL, Verdict.FAIL])
    ]
    with open_store(made_url) as store:
        (opened,) = store.incidents("lab", "quick", outcome_of(nights[0]), ["slack"])
        _keep(store, opened, slack=Receipt(1, {"ts": "17.1"}))
        assert store.incidents("lab", "other", outcome_of(a_run(0)), ["slack"]) == []
    with open_store(made_url) as store:
        (again,) = store.incidents("lab", "quick", outcome_of(nights[1]), ["slack"])
        assert (again.id, again.run_count, again.opened) == (opened.id, 2, opened.opened)
        assert again.receipts["slack"] == Receipt(1, {"ts": "17.1"})
        (over,) = store.incidents("lab", "quick", outcome_of(a_run(2)), ["slack"])
        assert over.news("slack") == ("pass again after 2 runs, worst fail",)
        _keep(store, over, slack=Receipt(2))
        assert store.incidents("lab", "quick", outcome_of(a_run(3)), ["slack"]) == []


def test_late_receipts_do_not_reopen_a_closed_incident(
    made_url: str,
) -> None:
    night = outcome_of(a_run(1))
    with open_store(made_url) as watch, open_store(made_url) as run:
        (gone,) = watch.incidents("lab", "quick", silent("it died", None, START), ["slack", "mail"])
        (over,) = run.incidents("lab", "quick", night, ["slack", "mail"])
        _keep(run, over, slack=Receipt(2, {"ts": "17.2"}))
        _keep(watch, gone, slack=Receipt(1, {"ts": "17.1"}), mail=Receipt(1))
        (now,) = run.incidents("lab", "quick", night, [])
        assert (now.closed, now.changes) == (night.at, over.changes)
        assert now.receipts == {"slack": Receipt(2, {"ts": "17.2"}), "mail": Receipt(1)}
        _keep(watch, gone, mail=Receipt(2))
        assert run.incidents("lab", "quick", night, []) == []


def test_changes_of_a_concurrent_run_are_kept(made_url: str) -> None:
    with open_store(made_url) as one, open_store(made_url) as other:
        (slow,) = one.incidents(
            "lab", "quick", outcome_of(a_run(1, verdict=Verdict.DEGRADED)), ["slack"]
        )
        other.incidents("lab", "quick", outcome_of(a_run(2, verdict=Verdict.CORRUPT)), ["slack"])
        _keep(one, slow, slack=Receipt(1))
        now, _ = other.incidents(
            "lab", "quick", outcome_of(a_run(3, verdict=Verdict.INCONCLUSIVE)), ["slack"]
        )
        assert (now.verdict, now.last_run, now.run_count) == (Verdict.CORRUPT, "run-002", 2)
        assert now.news("slack") == ("corrupt, was degraded",)


def test_runs_that_end_at_once_open_one_incident(made_url: str) -> None:
    def night(number: int) -> None:
        with open_store(made_url) as store:
            store.incidents(
                "lab", "quick", outcome_of(a_run(number, verdict=Verdict.FAIL)), ["slack"]
            )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(night, range(4)))
    with open_store(made_url) as store:
        (incident,) = store.incidents(
            "lab", "quick", outcome_of(a_run(9, verdict=Verdict.FAIL)), []
        )
        assert incident.run_count == 5


def test_last_run_and_last_pass_return_the_newest_matching_run(made_url: str) -> None:
    with open_store(made_url) as store:
        assert store.last_run("lab", "quick") is None
        for n, verdict in enumerate([Verdict.PASS, Verdict.PASS, Verdict.FAIL]):
            store.save(a_run(n, verdict=verdict), Path())
        last, good = (
            store.last_run("lab", "quick"),
            store.last_pass("lab", "quick", before="run-001"),
        )
        assert last is not None
        assert good is not None
        assert (last.run_id, good.run_id) == ("run-002", "run-000")
        assert store.last_pass("lab", "nightly", before="") is None
