import logging
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import SecretStr

from seatrial.alerts.alert import Alert
from seatrial.alerts.settings import APPRISE, AlertSettings, SlackSettings, check_alerts, muted
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.notify import Notify
from seatrial.history import open_store
from seatrial.history.incident import Receipt, advance, outcome_of
from seatrial.model.errors import InputError
from seatrial.model.result import now
from seatrial.platforms.local import LocalPlatform
from seatrial.tasks.notify import AlertContext, Notified, _receivers, notify, watch
from seatrial.tasks.sinks import Delivery, Files, Sink, configured, full_receipt
from seatrial.tasks.sinks.configured import AppriseSink, WebhookSink
from seatrial.tasks.sinks.slack import SlackSink, shown
from tests import nights

TOKEN = "xoxb-not-a-real-token"
WEBHOOK = "https://hooks.example.com/services/T0/B0/not-real"
MAIL = "mailtos://user:swordfish@mail.example.com?to=ops@example.com"
CLUSTER = Cluster(name="h100-east", nodes=8, platform=LocalPlatform(kind="local"))


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what a test replaces in place; tests/integration/alerts/test_bounded.py has the
    processes.
    """
    monkeypatch.setattr("seatrial.tasks.notify.BoundedSink", lambda sink: sink)


def settings(**environ: str) -> AlertSettings:
    return AlertSettings.from_env(
        Notify(), {f"SEATRIAL_{key}": value for key, value in environ.items()}
    )


def test_notify_without_settings_says_what_to_set() -> None:
    notified = notify(nights.bad(1), CLUSTER, None, settings())
    assert notified.summary == (
        "not configured: set SEATRIAL_SLACK_TOKEN and SEATRIAL_SLACK_CHANNEL, or "
        "SEATRIAL_SLACK_WEBHOOK;"
        " or SEATRIAL_ALERT_WEBHOOK or SEATRIAL_ALERT_URLS"
    )
    assert not notified.failed


SLACK = {"SLACK_TOKEN": TOKEN, "SLACK_CHANNEL": "#a"}


@pytest.mark.parametrize("environ", [SLACK, {"ALERT_WEBHOOK": WEBHOOK}, {"ALERT_URLS": MAIL}, {}])
def test_any_single_receiver_enables_alerts(environ: dict[str, str]) -> None:
    assert settings(**environ).anybody == bool(environ)


BAD = [
    (
        {"SLACK_WEBHOOK": "http://hooks.example.com/x"},
        "SEATRIAL_SLACK_WEBHOOK must start with https://",
    ),
    ({"SLACK_WEBHOOK": "https://host:99999/x"}, "SEATRIAL_SLACK_WEBHOOK must start with https://"),
    (
        {**SLACK, "SLACK_API_URL": "http://localhost.example.com/"},
        "SEATRIAL_SLACK_API_URL must start with https://",
    ),
    (
        {**SLACK, "SLACK_API_URL": "https://slack..com/api"},
        "SEATRIAL_SLACK_API_URL must start with https://",
    ),
    (
        {**SLACK, "SLACK_CHANNEL": "two words"},
        "SEATRIAL_SLACK_CHANNEL: must be a channel's name or id",
    ),
    (
        {"ALERT_WEBHOOK": "http://alerts.example.com/"},
        "SEATRIAL_ALERT_WEBHOOK must start with https://",
    ),
    ({"ALERT_WEBHOOK": "https://a..b/x"}, "SEATRIAL_ALERT_WEBHOOK must start with https://"),
    (
        {"ALERT_URLS": "carrierpigeon://x:secret@y"},
        "SEATRIAL_ALERT_URLS: address 1 (carrierpigeon://...)",
    ),
]


@pytest.mark.parametrize(("environ", "problem"), BAD)
def test_invalid_alert_settings_are_bad_input_and_not_tried(
    environ: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = notify(nights.bad(1), CLUSTER, None, settings(**environ))
    assert answer.failed
    summary = answer.summary
    assert summary.startswith(f"not configured: {problem}")
    assert not any(
        secret in summary for secret in ("hooks.example.com", TOKEN, "secret@", "swordfish")
    )
    for key, value in environ.items():
        monkeypatch.setenv(f"SEATRIAL_{key}", value)
    with pytest.raises(InputError, match=r"^SEATRIAL_"):
        check_alerts(Notify())


@pytest.mark.parametrize(
    "addresses",
    [
        TOKEN,
        "mailtos://ops:correct horse-battery@mail.example.com",
        "swordfish@mail.example.com/?to=json://not-a-real",
    ],
)
def test_invalid_alert_url_is_refused_without_showing_it(addresses: str) -> None:
    _, problem = settings(ALERT_URLS=addresses).legal()
    assert problem
    assert (
        f"SEATRIAL_ALERT_URLS: address {len(addresses.split())} is none that apprise knows; legal: "
        in problem
    )
    for secret in ("xoxb", "not-a-real", "correct", "horse", "swordfish"):
        assert secret not in problem


def test_a_token_without_a_channel_is_reported_and_other_receivers_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notified = notify(nights.bad(1), CLUSTER, None, settings(SLACK_TOKEN=TOKEN))
    assert notified.summary.startswith("not configured: SEATRIAL_SLACK_CHANNEL is not set; set")
    sinks, problem = configured.sinks_of(settings(SLACK_TOKEN=TOKEN, ALERT_URLS=MAIL), CLUSTER)
    assert problem
    assert [sink.name.partition(" (")[0] for sink in sinks] == [
        "mailtos://user:****@mail.example.com"
    ]


def test_two_addresses_of_one_service_are_two_receivers() -> None:
    both = "json://alerts.example.com/?to=east json://alerts.example.com/?to=west"
    sinks, _ = configured.sinks_of(settings(ALERT_URLS=both), CLUSTER)
    one, other = (sink.name for sink in sinks)
    assert one != other
    assert one.startswith("json://alerts.example.com (")


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("msteams://T1/aaaabbbbcccc/dddd%40eeee", "POST /webhookb2/aaaabbbbcccc/dddd@eeee failed"),
        ("tgram://123456789:AAbbCCddEE/12", "https://api.example.com/bot123456789:AAbbCCddEE/send"),
        (
            "json://ops:swordfishes@x.example.com/?token=not-a-real-one",
            "swordfishes, token not-a-real-one",
        ),
        (
            "slack://T1/B1/zzzz",
            "Max retries exceeded with url: /services/T1/B1/zzzz (Caused by NewConnectionError)",
        ),
        (
            "slack://T1/B1/zzzz",
            "404 Client Error: Not Found for url: https://hooks.example.com/services/T1/B1/zzzz",
        ),
    ],
)
def test_parts_of_a_secret_address_are_hidden(address: str, error: str) -> None:
    scrubbed = settings(ALERT_URLS=address).scrub(error)
    assert "***" in scrubbed
    for secret in (
        "aaaabbbbcccc",
        "dddd@eeee",
        "123456789",
        "AAbbCC",
        "swordfishes",
        "not-a-real-one",
        "zzzz",
    ):
        assert secret not in scrubbed
    assert (
        settings(ALERT_URLS=MAIL)
        .scrub("mail.example.com: Connection refused")
        .startswith("mail.example.com: ")
    )


def test_a_mistyped_receiver_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    def send(self: AppriseSink, alert: Alert, receipt: Receipt, files: Files) -> Delivery:
        heard.append(self.name)
        return Delivery(full_receipt(alert, {}), "sent")

    monkeypatch.setattr(AppriseSink, "send", send)
    own = settings(
        SLACK_TOKEN=TOKEN,
        SLACK_CHANNEL="two words",
        ALERT_WEBHOOK="http://alerts.example.com/",
        ALERT_URLS=f"carrierpigeon://x:secret@y {MAIL} owl://z",
    )
    notified = notify(nights.bad(1), CLUSTER, None, own)
    assert len(heard) == 1
    assert notified.failed
    assert notified.summary.startswith("mailtos://user:****@mail.example.com (")
    assert ": sent; not configured: SEATRIAL_SLACK_CHANNEL: must be" in notified.summary
    for wrong in (
        "SEATRIAL_ALERT_WEBHOOK must",
        "address 1 (carrierpigeon://...)",
        "address 3 (owl://...)",
    ):
        assert wrong in notified.summary
    quiet = notify(nights.good(2), CLUSTER, None, own)
    assert quiet.failed
    assert quiet.summary.startswith("nothing new; not configured: ")


def test_alert_settings_hide_secrets_in_repr_and_scrubbed_text() -> None:
    own = settings(
        SLACK_TOKEN=TOKEN,
        SLACK_CHANNEL="a",
        SLACK_WEBHOOK=WEBHOOK,
        ALERT_WEBHOOK=WEBHOOK,
        ALERT_URLS=MAIL,
    )
    for secret in (TOKEN, WEBHOOK, "swordfish"):
        assert secret not in repr(own)
        assert secret not in own.scrub(f"failed: {WEBHOOK}\n{TOKEN} {MAIL}")
    assert own.scrub(f"failed: {WEBHOOK}\n{TOKEN}") == "failed: *** ***"


def test_failure_of_a_sink_is_one_line_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> str:
        raise RuntimeError(f"cannot post to {WEBHOOK}\nsorry")

    monkeypatch.setattr("seatrial.tasks.sinks.slack.webhook_client", broken)
    notified = notify(
        nights.bad(1), CLUSTER, None, settings(SLACK_WEBHOOK=WEBHOOK), Path("/nowhere")
    )
    assert notified == Notified(
        "slack webhook: FAILED RuntimeError: cannot post to *** sorry; the next run sends it",
        failed=True,
    )
    monkeypatch.setattr(SlackSink, "send", broken)
    notified = notify(nights.bad(1), CLUSTER, None, settings(SLACK_TOKEN=TOKEN, SLACK_CHANNEL="a"))
    assert (
        notified.summary
        == "slack #a: FAILED seatrial itself failed (RuntimeError); the next run sends it"
    )


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_an_invalid_host_is_reported_by_the_webhook(host: str) -> None:
    sink = WebhookSink(SecretStr(f"https://{host}/not-real"), settings().scrub)
    delivery = sink.digest(nights.good(1))
    assert delivery.failed
    assert (
        delivery.summary
        == "cannot be reached (LocationParseError); check SEATRIAL_ALERT_WEBHOOK and the network"
    )


def test_a_failing_digest_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Delivery:
        raise RuntimeError(WEBHOOK)

    monkeypatch.setattr(WebhookSink, "digest", broken)
    monkeypatch.setattr(AppriseSink, "digest", lambda *_: Delivery(Receipt(), "digest sent"))
    cluster = CLUSTER.model_copy(update={"notify": Notify(quiet="digest")})
    notified = notify(
        nights.good(1), cluster, None, settings(ALERT_WEBHOOK=WEBHOOK, ALERT_URLS=MAIL)
    )
    assert notified.failed
    assert notified.summary.startswith(
        "webhook: FAILED seatrial itself failed (RuntimeError); mailtos://"
    )
    assert notified.summary.endswith(": digest sent")


def test_a_new_receiver_gets_no_resolved_incidents() -> None:
    before, new = (cast(Sink, SimpleNamespace(name=name)) for name in ("before", "new"))
    bad, good = outcome_of(nights.bad(1)), outcome_of(nights.good(2))
    (incident,) = advance([], CLUSTER.name, "nightly", bad, ["before"])
    (over,) = advance([incident], CLUSTER.name, "nightly", good, ["before", "new"])
    assert over.closed
    site = AlertContext(CLUSTER, None, [before, new])
    assert _receivers(site, over, outcome_of(nights.good(3))) == [before]
    assert _receivers(site, incident, bad) == [before, new]


def test_alert_sent_while_its_incident_closes_is_not_reported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, own = f"sqlite:///{tmp_path}/history.sqlite", settings(ALERT_WEBHOOK=WEBHOOK)
    heard: list[str] = []

    def send(_: WebhookSink, alert: Alert, receipt: Receipt, files: Files) -> Delivery:
        if not heard:
            heard.append("slowly")
            with open_store(history) as other:
                notify(nights.good(1), CLUSTER, other, own)
        heard.extend(alert.incident.changes[receipt.reported :])
        return Delivery(full_receipt(alert, {}), "sent")

    monkeypatch.setattr(WebhookSink, "send", send)
    with open_store(history) as store:
        watch(CLUSTER, nights.good(1).suite, timedelta.max, store, own, "it died")
        assert heard == ["slowly", "not_run: it died", "runs again", "not_run: it died"]
        assert notify(nights.good(2), CLUSTER, store, own) == Notified("nothing new")


def test_environment_takes_precedence_over_blocks_and_cluster_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(configured, "_block", lambda name: f"json://from-{name}")
    cluster = CLUSTER.model_copy(
        update={"notify": Notify.model_validate({"slack": {"channel": "east"}})}
    )
    alert_settings = configured.settings_of(cluster)
    assert alert_settings.slack == SlackSettings(
        SecretStr("json://from-seatrial-slack-token"),
        "east",
        SecretStr("json://from-seatrial-slack-webhook"),
    )
    assert alert_settings.urls == (SecretStr("json://from-seatrial-alert-urls"),)
    monkeypatch.setenv("SEATRIAL_SLACK_CHANNEL", "alerts")
    monkeypatch.setenv("SEATRIAL_SLACK_WEBHOOK", WEBHOOK)
    assert configured.settings_of(cluster).slack == SlackSettings(
        None, "alerts", SecretStr(WEBHOOK)
    )
    monkeypatch.undo()
    monkeypatch.setattr(configured, "_block", lambda _: None)
    assert not configured.settings_of(cluster).anybody


@pytest.mark.parametrize(
    ("channel", "written"),
    [("alerts", "#alerts"), ("#alerts", "#alerts"), ("C024BE91L", "C024BE91L")],
)
def test_channel_names_are_shown_with_a_hash_and_ids_without(channel: str, written: str) -> None:
    assert shown(channel) == written


def test_notify_section_of_the_cluster_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "east.yaml"
    file.write_text(
        "nodes: 2\nplatform: {kind: local}\n"
        "notify: {slack: {channel: '#gpu', mentions: {fail: [S0614TZR7]}}, quiet: digest}\n"
    )
    parsed = load_cluster(file).notify
    assert (parsed.slack.channel, parsed.slack.mentions, parsed.quiet) == (
        "#gpu",
        {"fail": ("S0614TZR7",)},
        "digest",
    )


def test_apprise_logger_is_muted_while_sending() -> None:
    with muted(APPRISE):
        assert logging.getLogger("apprise").disabled
    assert not logging.getLogger("apprise").disabled


def test_run_of_a_clock_that_was_ahead_does_not_hide_that_runs_have_stopped(tmp_path: Path) -> None:
    run = nights.good(1)
    with open_store(f"sqlite:///{tmp_path / 'history.sqlite'}") as store:
        for ahead in (timedelta(0), timedelta(days=300)):
            at = now() - timedelta(days=2) + ahead
            run = replace(run, run_id=f"ahead-{ahead.days}", started=at, finished=at)
            store.save(run, tmp_path)
        watch(CLUSTER, run.suite, timedelta(hours=26), store, settings())
        measured = outcome_of(nights.good(2))
        (silent,) = store.incidents(CLUSTER.name, run.suite, measured, [])
    assert (silent.kind, silent.last_run) == ("silent", "ahead-0")
    assert "ahead-0, ended 48 h ago, 26 h are allowed" in silent.reason.sentence
