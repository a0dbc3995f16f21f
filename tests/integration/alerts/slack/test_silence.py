"""Checks that did not run, and checks that died."""

from datetime import timedelta
from pathlib import Path

from seatrial.alerts.settings import AlertSettings
from seatrial.history.store import Store
from seatrial.tasks.notify import Notified, watch
from tests import nights
from tests.integration.alerts.conftest import CLUSTER
from tests.integration.alerts.slack.told import night
from tests.slack_server import Slack


def test_an_overdue_check_is_reported_once_and_ends_with_a_run(
    slack: Slack, by_token: AlertSettings, store: Store
) -> None:
    store.save(nights.good(0), Path("/gone"))
    notified = watch(CLUSTER, "nightly", timedelta(hours=26), store, by_token)
    assert notified == Notified("slack #alerts: sent to #alerts")
    (message,) = slack.posted
    assert message.blocks[0]["text"]["text"] == "h100-east: the check did not run"
    assert "the last run, run-0, ended " in message.shown
    assert watch(CLUSTER, "nightly", timedelta(hours=26), store, by_token).summary.startswith(
        "reported before: "
    )
    assert watch(
        CLUSTER, "nightly", timedelta(hours=26), store, by_token, gone="again"
    ).summary.startswith("reported before")
    night(nights.good(1), store, by_token)
    assert "h100-east: the check runs again" in message.shown
    assert len(slack.posted) == 1
    assert (
        watch(CLUSTER, "nightly", timedelta(days=36500), store, by_token).summary
        == "the last run is young enough"
    )


def test_a_check_that_died_is_reported(slack: Slack, by_token: AlertSettings, store: Store) -> None:
    watch(
        CLUSTER,
        "nightly",
        timedelta(days=36500),
        store,
        by_token,
        gone="the check died: flow run brave-fox crashed: <SIGKILL>",
    )
    (message,) = slack.posted
    assert "the check died: flow run brave-fox crashed: &lt;SIGKILL&gt;" in message.shown
