"""notify against a real HTTP server on this machine that is as strict as Slack's Web API and incoming webhooks."""

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from seatrial.alerts.config import Notify, SlackNotify
from seatrial.alerts.incident import night_of
from seatrial.alerts.settings import AlertSettings
from seatrial.errors import SeatrialError
from seatrial.history.store import Store
from seatrial.report.slack_settings import SlackSettings
from seatrial.result import RunResult
from seatrial.verdict import Verdict
from tasks.notify import Notified, notify, watch
from tasks.sinks import slack_client
from tests import nights, samples
from tests.integration.alerts.conftest import CLUSTER
from tests.slack_server import PATH, TOKEN, Answer, Slack, limited, refusal

WAYS = pytest.mark.parametrize("way", ["by_token", "by_webhook"])


@pytest.fixture(autouse=True)
def _no_secret_in_any_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    said = "\n".join(record.getMessage() for record in caplog.get_records("call"))
    assert TOKEN not in said
    assert PATH not in said


def night(result: RunResult, store: Store | None, settings: AlertSettings, out: Path | None = None) -> Notified:
    """As the flow does it: recorded, then told."""
    if store:
        store.save(result, out or Path("/gone"))
    return notify(result, CLUSTER, store, settings, out / "report.html" if out else None)


def test_a_whole_incident_is_one_message(slack: Slack, by_token: AlertSettings, store: Store, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("<!doctype html>the report")
    assert night(nights.good(0), store, by_token) == Notified("nothing new")
    assert not slack.requests

    told = night(nights.bad(1, fingerprint={"driver": "575.57"}), store, by_token, tmp_path)
    assert told == Notified("slack #alerts: sent to #alerts")
    (message,) = slack.posted
    assert message.blocks[0]["text"]["text"] == "h100-east fails"
    assert "*node node-5* (97%)" in message.shown
    assert "*205 GB/s*, expected 364 – 410 GB/s (catalog), -47 %" in message.shown
    assert "driver 570.124.06 → 575.57" in message.shown
    assert "`seatrial compare run-0 run-1`" in message.shown
    assert slack.files(message)["busbw.png"].startswith(b"\x89PNG")
    assert b"the report" in slack.files(message)["report.html"]
    (detailed,) = slack.replies(message)
    assert "DCGM diagnostics" in detailed.shown

    assert night(nights.bad(2), store, by_token).said == "slack #alerts: message in #alerts updated"
    assert (len(slack.posted), len(slack.replies(message)), message.edits) == (1, 1, 1)
    assert message.blocks[0]["text"]["text"] == "h100-east fails (2 runs)"

    assert night(nights.good(3), store, by_token).said == "slack #alerts: told #alerts the change"
    assert (len(slack.posted), message.edits) == (1, 2)
    assert message.blocks[0]["text"]["text"] == "h100-east recovered: pass again after 2 runs of fail"
    recovery = slack.replies(message)[-1]
    assert recovery.broadcast
    assert recovery.text == ":large_green_circle: h100-east: pass again after 2 runs of fail"
    before = len(slack.requests)
    assert night(nights.good(4), store, by_token) == Notified("nothing new")
    assert len(slack.requests) == before


def test_what_changes_is_a_reply_and_told_once(slack: Slack, by_token: AlertSettings, store: Store) -> None:
    night(nights.bad(1, verdict=Verdict.DEGRADED), store, by_token)
    (message,) = slack.posted
    for number, verdict, who in (
        (2, Verdict.FAIL, "node-5"),
        (3, Verdict.DEGRADED, "node-5"),
        (4, Verdict.FAIL, "node-2"),
    ):
        night(nights.bad(number, verdict=verdict, suspects=nights.suspected(who)), store, by_token)
    night(nights.bad(5, suspects=nights.suspected("node-5", "node-2")), store, by_token)
    said = [reply.text for reply in slack.replies(message) if reply.broadcast]
    assert said == [
        ":red_circle: h100-east: fail, was degraded",
        ":red_circle: h100-east: new suspect: node node-2",
    ]
    assert len(slack.posted) == 1


def test_nights_without_a_measurement_are_another_matter(slack: Slack, by_token: AlertSettings, store: Store) -> None:
    night(nights.bad(1), store, by_token)
    for number in (2, 3):
        night(nights.unmeasured(number), store, by_token)
    fault, unmeasured = slack.posted
    assert unmeasured.blocks[0]["text"]["text"] == "h100-east could not be checked (2 runs)"
    assert fault.blocks[0]["text"]["text"] == "h100-east fails"  # still open, and nobody says otherwise
    night(nights.good(4), store, by_token)
    assert "recovered" in fault.shown
    assert "measured again" in unmeasured.shown
    assert len(slack.posted) == 2


def test_what_slack_missed_is_told_by_the_next_run(
    slack: Slack, by_token: AlertSettings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slack_sdk.http_retry.handler.time.sleep", lambda _: None)
    slack.plan("chat.postMessage", *[Answer("<html>oops</html>", 500)] * 3)
    told = night(nights.bad(1), store, by_token)
    assert told.failed
    assert "Slack says HTTP 500; see https://slack-status.com" in told.said
    assert told.said.endswith("; the next run tells it")
    assert not slack.posted
    assert not night(nights.bad(2), store, by_token).failed
    assert slack.posted[0].blocks[0]["text"]["text"] == "h100-east fails (2 runs)"
    slack.plan("chat.update", *[Answer("", 503)] * 3)
    assert night(nights.good(3), store, by_token).failed
    assert not night(nights.good(4), store, by_token).failed
    assert "recovered" in slack.posted[0].shown


def test_an_incident_that_nobody_heard_of_is_told_when_it_is_over(
    slack: Slack, by_token: AlertSettings, store: Store
) -> None:
    slack.plan("chat.postMessage", *[refusal("invalid_auth")] * 2)
    night(nights.bad(1), store, by_token)
    night(nights.good(2), store, by_token)
    night(nights.good(3), store, by_token)
    (message,) = slack.posted
    assert message.blocks[0]["text"]["text"] == "h100-east recovered: pass again after 1 run of fail"
    assert "It was: " in message.shown


def test_a_message_that_somebody_deleted_is_posted_anew(slack: Slack, by_token: AlertSettings, store: Store) -> None:
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
    told = night(nights.bad(2), store, by_token)
    assert told == Notified(f"slack #alerts: message in #alerts cannot be updated ({rule})")
    night(nights.bad(3, suspects=nights.suspected("node-2")), store, by_token)
    assert night(nights.good(4), store, by_token).said == "slack #alerts: told #alerts the change"
    (message,) = slack.posted
    assert [reply.text for reply in slack.replies(message) if reply.broadcast] == [
        ":red_circle: h100-east: new suspect: node node-2",
        ":large_green_circle: h100-east: pass again after 3 runs of fail",
    ]


def test_the_same_run_twice_counts_once(slack: Slack, by_token: AlertSettings, store: Store) -> None:
    night(nights.bad(1), store, by_token)
    night(nights.bad(1), store, by_token)
    (message,) = slack.posted
    assert message.blocks[0]["text"]["text"] == "h100-east fails"


def test_a_channel_and_mentions_of_the_clusters_own(slack: Slack, store: Store) -> None:
    mentions = {"fail": ("U024BE7LH", "S0614TZR7"), "degraded": ("here",)}
    own = Notify(slack=SlackNotify(channel="gpu-east", mentions=mentions), quiet="digest")
    cluster = CLUSTER.model_copy(update={"notify": own})
    environment = {"SEATRIAL_SLACK_TOKEN": TOKEN, "SEATRIAL_SLACK_API_URL": f"{slack.url}/api"}
    settings = AlertSettings.from_env(own, environment)
    notify(nights.bad(1, verdict=Verdict.DEGRADED), cluster, store, settings)
    (message,) = slack.posted
    assert message.channel == "C0EAST123"
    assert "<!here>" in message.shown
    notify(nights.bad(2), cluster, store, settings)
    assert "<@U024BE7LH> <!subteam^S0614TZR7>" in slack.replies(message)[-2].text
    notify(nights.good(3), cluster, store, settings)
    notify(nights.good(4), cluster, store, settings)
    assert slack.posted[-1].text.startswith(":large_green_circle: h100-east passes, nightly: ")
    assert len(slack.posted) == 2


def test_a_missing_scope_costs_only_the_files(slack: Slack, by_token: AlertSettings, store: Store) -> None:
    slack.scopes = {"chat:write"}
    told = night(nights.bad(1), store, by_token)
    assert told.said.endswith("sent to #alerts; files not attached: missing_scope; give the app the scope files:write")
    assert not told.failed
    assert len(slack.posted) == 1


def test_without_a_history_every_bad_night_stands_alone(slack: Slack, by_token: AlertSettings) -> None:
    for number in (1, 2):
        night(nights.bad(number), None, by_token)
    assert len(slack.posted) == 2
    assert night(nights.good(3), None, by_token) == Notified("nothing new")


def test_a_webhook_hears_what_is_new_and_nothing_else(slack: Slack, by_webhook: AlertSettings, store: Store) -> None:
    for result in (nights.good(0), nights.bad(1), nights.bad(2), nights.good(3), nights.good(4)):
        night(result, store, by_webhook)
    first, last = slack.hooked
    assert first["blocks"][0]["text"]["text"] == "h100-east fails"
    assert last["text"].endswith("h100-east: pass again after 2 runs of fail")


@WAYS
def test_rate_limited_then_well(slack: Slack, way: str, request: pytest.FixtureRequest) -> None:
    for method in ("chat.postMessage", PATH):
        slack.plan(method, limited())
    assert "sent to " in night(nights.bad(1), None, request.getfixturevalue(way)).said
    assert [name for name, _, _ in slack.requests][:2] in (["chat.postMessage"] * 2, [PATH] * 2)


@WAYS
@pytest.mark.parametrize("retry_after", ["3600", "soon"])
def test_a_long_rate_limit_is_not_waited_for(
    slack: Slack, way: str, retry_after: str, request: pytest.FixtureRequest
) -> None:
    for method in ("chat.postMessage", PATH):
        slack.plan(method, limited(retry_after))
    told = night(nights.bad(1), None, request.getfixturevalue(way))
    assert "Slack says ratelimited; Slack is rate limiting this app; the next run will try again" in told.said
    assert len(slack.requests) == 1


@WAYS
def test_a_broken_slack_is_tried_again_a_few_times(
    slack: Slack, way: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slack_sdk.http_retry.handler.time.sleep", lambda _: None)
    for method in ("chat.postMessage", PATH):
        slack.plan(method, *[Answer("<html>oops</html>", 500)] * 9)
    assert night(nights.bad(1), None, request.getfixturevalue(way)).failed
    assert len(slack.requests) == 1 + slack_client.MAX_RETRIES


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("invalid_auth", "Slack says invalid_auth; check SEATRIAL_SLACK_TOKEN"),
        (
            "channel_not_found",
            "Slack says channel_not_found; check SEATRIAL_SLACK_CHANNEL; a private channel needs the app invited",
        ),
        ("brand_new_error", "Slack says brand_new_error"),
    ],
)
def test_slacks_refusals_come_with_a_next_step(slack: Slack, by_token: AlertSettings, error: str, said: str) -> None:
    slack.plan("chat.postMessage", refusal(error))
    assert night(nights.bad(1), None, by_token).said == f"slack #alerts: FAILED {said}; the next run tells it"


def test_an_unknown_channel_is_named(slack: Slack) -> None:
    settings = AlertSettings(SlackSettings(SecretStr(TOKEN), "nowhere", api_url=f"{slack.url}/api"))
    assert "slack #nowhere: FAILED Slack says channel_not_found" in night(nights.bad(1), None, settings).said


def test_a_dead_webhook_is_named(slack: Slack, by_webhook: AlertSettings) -> None:
    slack.plan(PATH, Answer("no_service", 404))
    assert "Slack says no_service; make a new SEATRIAL_SLACK_WEBHOOK" in night(nights.bad(1), None, by_webhook).said


@WAYS
def test_a_slack_that_hangs_is_not_waited_for(
    slack: Slack, way: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slack_client, "TIMEOUT_S", 0.3)
    for method in ("chat.postMessage", PATH):
        slack.plan(method, *[Answer(hang=True)] * 9)
    told = night(nights.bad(1), None, request.getfixturevalue(way))
    assert "Slack did not answer within 0.3 s; check the network or proxy of this host" in told.said
    assert len(slack.requests) == 1


def test_a_slack_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slack_sdk.http_retry.handler.time.sleep", lambda _: None)
    nobody = AlertSettings(SlackSettings(SecretStr(TOKEN), "alerts", api_url="http://127.0.0.1:9/api"))
    told = night(nights.bad(1), None, nobody)
    assert "Slack cannot be reached (" in told.said
    assert "check the network or proxy" in told.said


def test_a_thousand_nodes_stay_under_slacks_limits(slack: Slack, by_token: AlertSettings, store: Store) -> None:
    names = [f"rack-{i // 32}-node-{i}" for i in range(1000)]
    judged = nights.bad(1).checks[1].judgements * 40
    checks = [replace(nights.bad(1).checks[1], judgements=judged)] * 3
    huge = nights.bad(1, suspects=nights.suspected(*names), checks=checks, reason="; ".join(names))
    told = night(huge, store, by_token)
    assert told.said == "slack #alerts: sent to #alerts"  # the server holds messages to Slack's limits
    (message,) = slack.posted
    assert "and 997 more in the report" in message.shown
    assert slack.replies(message)


def test_what_a_log_says_calls_and_links_nobody(slack: Slack, by_token: AlertSettings, store: Store) -> None:
    evil = "<!channel> <@U024BE7LH> <https://evil.example.com|ok> `x` ```y``` *bold* _it_ ~no~ & &lt;!here&gt;\n> quote"
    night(replace(samples.hostile(evil), run_id="run-1"), store, by_token)
    notify(replace(samples.hostile(evil), run_id="run-2"), CLUSTER, store, by_token)
    for message in slack.messages.values():
        for said in (message.shown, message.text):
            assert not any(mark in said for mark in ("<!", "<@", "<http", "<U", "```", "`x`", "*bold*", "_it_", "~no~"))
    assert all(
        element.get("verbatim")
        for m in slack.posted
        for b in m.blocks[1:]
        for element in b.get("elements", [b.get("text")])
    )


def test_secrets_in_a_log_stay_here(
    slack: Slack, by_token: AlertSettings, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = {"HF_TOKEN": "hf_plantedPlantedPlanted1", "DB_PASSWORD": "planted-swordfish"}
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    said = f"ranks died: {planted['HF_TOKEN']} and {planted['DB_PASSWORD']} and token={TOKEN}"
    (tmp_path / "report.html").write_text(said)
    faulty = nights.bad(1, reason=said, suspects=(replace(nights.suspected("node-1")[0], evidence=said),))
    night(faulty, store, by_token, tmp_path)
    night(nights.bad(2, reason=said), store, by_token)
    sent = b"".join(body for _, _, body in slack.requests).decode(errors="replace")
    assert "ranks died" in sent
    for secret in (*planted.values(), TOKEN):
        assert secret not in sent
    incident = json.dumps([i.reason for i in store.incidents("h100-east", "nightly", night_of(nights.bad(2)), [])])
    assert not any(secret in incident for secret in (*planted.values(), TOKEN))


def test_silence_is_told_once_and_ends_with_a_run(slack: Slack, by_token: AlertSettings, store: Store) -> None:
    store.save(nights.good(0), Path("/gone"))
    told = watch(CLUSTER, "nightly", timedelta(hours=26), store, by_token)
    assert told == Notified("slack #alerts: sent to #alerts")
    (message,) = slack.posted
    assert message.blocks[0]["text"]["text"] == "h100-east: the check did not run"
    assert "the last run, run-0, ended " in message.shown
    assert watch(CLUSTER, "nightly", timedelta(hours=26), store, by_token).said.startswith("told before: ")
    assert watch(CLUSTER, "nightly", timedelta(hours=26), store, by_token, gone="again").said.startswith("told before")
    night(nights.good(1), store, by_token)
    assert "h100-east: the check runs again" in message.shown
    assert len(slack.posted) == 1
    assert watch(CLUSTER, "nightly", timedelta(days=36500), store, by_token).said == "the last run is young enough"


def test_a_check_that_died_is_told(slack: Slack, by_token: AlertSettings, store: Store) -> None:
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


def test_a_history_that_fails_costs_no_message(
    slack: Slack, by_token: AlertSettings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object) -> None:
        raise SeatrialError("history: locked")

    monkeypatch.setattr(store, "incidents", locked)
    assert night(nights.bad(1), store, by_token).said == "slack #alerts: sent to #alerts"
    assert len(slack.posted) == 1
