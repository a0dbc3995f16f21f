"""Slack refuses, limits, breaks, hangs or is not there; so does the history."""

import pytest
from pydantic import SecretStr

from seatrial.alerts.settings import AlertSettings, SlackSettings
from seatrial.history.store import Store
from seatrial.model.errors import SeatrialError
from seatrial.tasks.sinks import slack as slack_sink
from tests import nights
from tests.integration.alerts.slack.told import WAYS, night
from tests.slack_server import PATH, TOKEN, Answer, Slack, limited, refusal


def test_a_failed_slack_message_is_repeated_by_the_next_run(
    slack: Slack, by_token: AlertSettings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slack_sdk.http_retry.handler.time.sleep", lambda _: None)
    slack.plan("chat.postMessage", *[Answer("<html>oops</html>", 500)] * 3)
    notified = night(nights.bad(1), store, by_token)
    assert notified.failed
    assert "Slack says HTTP 500; see https://slack-status.com" in notified.summary
    assert notified.summary.endswith("; the next run sends it")
    assert not slack.posted
    assert not night(nights.bad(2), store, by_token).failed
    assert slack.posted[0].blocks[0]["text"]["text"] == "h100-east fails (2 runs)"
    slack.plan("chat.update", *[Answer("", 503)] * 3)
    assert night(nights.good(3), store, by_token).failed
    assert not night(nights.good(4), store, by_token).failed
    assert "recovered" in slack.posted[0].shown


@WAYS
def test_a_page_in_place_of_slacks_answer_is_told_as_one(
    way: str, slack: Slack, request: pytest.FixtureRequest
) -> None:
    for method in ("chat.postMessage", PATH):
        slack.plan(method, Answer("<html>log in</html>", 407))
    summary = night(nights.bad(1), None, request.getfixturevalue(way)).summary
    assert "Slack says HTTP 407; check the network or proxy of this host" in summary


def test_message_is_sent_without_files_when_a_scope_is_missing(
    slack: Slack, by_token: AlertSettings, store: Store
) -> None:
    slack.scopes = {"chat:write"}
    notified = night(nights.bad(1), store, by_token)
    assert notified.summary.endswith(
        "sent to #alerts; files not attached: missing_scope; give the app the scope files:write"
    )
    assert not notified.failed
    assert len(slack.posted) == 1


@WAYS
def test_a_short_rate_limit_is_waited_for(
    slack: Slack, way: str, request: pytest.FixtureRequest
) -> None:
    for method in ("chat.postMessage", PATH):
        slack.plan(method, limited())
    assert "sent to " in night(nights.bad(1), None, request.getfixturevalue(way)).summary
    assert [name for name, _, _ in slack.requests][:2] in (["chat.postMessage"] * 2, [PATH] * 2)


@WAYS
@pytest.mark.parametrize("retry_after", ["3600", "soon"])
def test_a_long_rate_limit_is_not_waited_for(
    slack: Slack, way: str, retry_after: str, request: pytest.FixtureRequest
) -> None:
    for method in ("chat.postMessage", PATH):
        slack.plan(method, limited(retry_after))
    notified = night(nights.bad(1), None, request.getfixturevalue(way))
    assert (
        "Slack says ratelimited; Slack is rate limiting this app; the next run will try again"
        in notified.summary
    )
    assert len(slack.requests) == 1


@WAYS
def test_server_errors_of_slack_are_retried_a_limited_number_of_times(
    slack: Slack, way: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slack_sdk.http_retry.handler.time.sleep", lambda _: None)
    for method in ("chat.postMessage", PATH):
        slack.plan(method, *[Answer("<html>oops</html>", 500)] * 9)
    assert night(nights.bad(1), None, request.getfixturevalue(way)).failed
    assert len(slack.requests) == 1 + slack_sink.MAX_RETRIES


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("invalid_auth", "Slack says invalid_auth; check SEATRIAL_SLACK_TOKEN"),
        (
            "channel_not_found",
            (
                "Slack says channel_not_found; check SEATRIAL_SLACK_CHANNEL; a private "
                "channel needs the app invited"
            ),
        ),
        ("brand_new_error", "Slack says brand_new_error"),
    ],
)
def test_slack_errors_have_a_next_step(
    slack: Slack, by_token: AlertSettings, error: str, reason: str
) -> None:
    slack.plan("chat.postMessage", refusal(error))
    assert (
        night(nights.bad(1), None, by_token).summary
        == f"slack #alerts: FAILED {reason}; the next run sends it"
    )


def test_an_unknown_channel_is_named(slack: Slack) -> None:
    settings = AlertSettings(SlackSettings(SecretStr(TOKEN), "nowhere", api_url=f"{slack.url}/api"))
    assert (
        "slack #nowhere: FAILED Slack says channel_not_found"
        in night(nights.bad(1), None, settings).summary
    )


def test_a_dead_webhook_is_named(slack: Slack, by_webhook: AlertSettings) -> None:
    slack.plan(PATH, Answer("no_service", 404))
    assert (
        "Slack says no_service; make a new SEATRIAL_SLACK_WEBHOOK"
        in night(nights.bad(1), None, by_webhook).summary
    )


@WAYS
def test_slack_request_times_out_without_retry_when_slack_hangs(
    slack: Slack, way: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slack_sink, "TIMEOUT_S", 0.3)
    for method in ("chat.postMessage", PATH):
        slack.plan(method, *[Answer(hang=True)] * 9)
    notified = night(nights.bad(1), None, request.getfixturevalue(way))
    assert (
        "Slack did not answer within 0.3 s; check the network or proxy of this host"
        in notified.summary
    )
    assert slack.arrived.wait(30)  # the client gives up sooner than a busy server reads
    assert len(slack.requests) == 1


def test_an_unreachable_slack_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slack_sdk.http_retry.handler.time.sleep", lambda _: None)
    nobody = AlertSettings(
        SlackSettings(SecretStr(TOKEN), "alerts", api_url="http://127.0.0.1:9/api")
    )
    notified = night(nights.bad(1), None, nobody)
    assert "Slack cannot be reached (" in notified.summary
    assert "check the network or proxy" in notified.summary


def test_a_failing_history_does_not_prevent_the_message(
    slack: Slack, by_token: AlertSettings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object) -> None:
        raise SeatrialError("history: locked")

    monkeypatch.setattr(store, "incidents", locked)
    assert night(nights.bad(1), store, by_token).summary == "slack #alerts: sent to #alerts"
    assert len(slack.posted) == 1
