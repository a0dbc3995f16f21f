"""What is told of an incident from night to night, to a Slack that is as strict as the real one."""

from pathlib import Path

import pytest

from seatrial.alerts.settings import AlertSettings
from seatrial.history.store import Store
from seatrial.tasks.notify import Notified
from tests import nights
from tests.integration.alerts.slack.told import night
from tests.slack_server import Slack, refusal


def test_a_whole_incident_is_one_message(
    slack: Slack, by_token: AlertSettings, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "report.html").write_text("<!doctype html>the report")
    assert night(nights.good(0), store, by_token) == Notified("nothing new")
    assert not slack.requests

    notified = night(nights.bad(1, fingerprint={"driver": "575.57"}), store, by_token, tmp_path)
    assert notified == Notified("slack #alerts: sent to #alerts")
    (message,) = slack.posted
    assert message.blocks[0]["text"]["text"] == "h100-east fails"
    assert "*node-5 (10.20.0.16)*, 97 % sure" in message.shown
    assert "*205 GB/s*, expected 364 – 410 GB/s (catalog), -47 %" in message.shown
    assert "driver 570.124.06 → 575.57" in message.shown
    assert "next: node-5: Read 'logs/run.log' of the run" in message.shown
    assert slack.files(message)["busbw.png"].startswith(b"\x89PNG")
    assert b"the report" in slack.files(message)["report.html"]
    (detailed,) = slack.replies(message)
    assert "DCGM diagnostics" in detailed.shown

    assert (
        night(nights.bad(2), store, by_token).summary == "slack #alerts: message in #alerts updated"
    )
    assert (len(slack.posted), len(slack.replies(message)), message.edits) == (1, 1, 1)
    assert message.blocks[0]["text"]["text"] == "h100-east fails (2 runs)"

    assert (
        night(nights.good(3), store, by_token).summary
        == "slack #alerts: sent the change to #alerts"
    )
    assert (len(slack.posted), message.edits) == (1, 2)
    assert (
        message.blocks[0]["text"]["text"]
        == "h100-east recovered: pass again after 2 runs, worst fail"
    )
    recovery = slack.replies(message)[-1]
    assert recovery.broadcast
    assert recovery.text == ":large_green_circle: h100-east: pass again after 2 runs, worst fail"
    before = len(slack.requests)
    assert night(nights.good(4), store, by_token) == Notified("nothing new")
    assert len(slack.requests) == before


def test_a_message_that_somebody_deleted_is_posted_anew(
    slack: Slack, by_token: AlertSettings, store: Store
) -> None:
    night(nights.bad(1), store, by_token)
    slack.messages.clear()
    night(nights.bad(2), store, by_token)
    (message,) = slack.posted
    assert message.blocks[0]["text"]["text"] == "h100-east fails (2 runs)"


@pytest.mark.parametrize("rule", ["edit_window_closed", "cant_update_message"])
def test_a_message_that_may_not_be_edited_is_not_posted_anew(
    slack: Slack, by_token: AlertSettings, store: Store, rule: str
) -> None:
    night(nights.bad(1), store, by_token)
    slack.plan("chat.update", *[refusal(rule)] * 3)
    notified = night(nights.bad(2), store, by_token)
    assert notified == Notified(f"slack #alerts: message in #alerts cannot be updated ({rule})")
    night(nights.bad(3, suspects=nights.suspected("node-2")), store, by_token)
    assert (
        night(nights.good(4), store, by_token).summary
        == "slack #alerts: sent the change to #alerts"
    )
    (message,) = slack.posted
    assert [reply.text for reply in slack.replies(message) if reply.broadcast] == [
        ":red_circle: h100-east: new suspect: node-2",
        ":large_green_circle: h100-east: pass again after 3 runs, worst fail",
    ]


def test_without_a_history_every_bad_run_sends_a_message_of_its_own(
    slack: Slack, by_token: AlertSettings
) -> None:
    for number in (1, 2):
        night(nights.bad(number), None, by_token)
    assert len(slack.posted) == 2
    assert night(nights.good(3), None, by_token) == Notified("nothing new")


def test_webhook_receives_only_the_start_and_the_end_of_an_incident(
    slack: Slack, by_webhook: AlertSettings, store: Store
) -> None:
    for result in (nights.good(0), nights.bad(1), nights.bad(2), nights.good(3), nights.good(4)):
        night(result, store, by_webhook)
    first, last = slack.hooked
    assert first["blocks"][0]["text"]["text"] == "h100-east fails"
    assert last["text"].endswith("h100-east: pass again after 2 runs, worst fail")
