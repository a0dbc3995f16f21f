from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import SecretStr

from seatrial.alerts.alert import Alert
from seatrial.alerts.settings import AlertSettings, check_alerts
from seatrial.alerts.slack_settings import SlackSettings
from seatrial.config.cluster import Cluster, load_cluster
from seatrial.config.notify import Notify
from seatrial.history import open_store
from seatrial.history.incident import Receipt, advance, outcome_of
from seatrial.model.errors import InputError
from seatrial.platforms.local.config import LocalPlatform
from seatrial.text.redact import Secrets
from tasks.notify import Notified, _listeners, notify, watch
from tasks.sinks import Delivery, Files, Sink, configured, full_receipt, material
from tasks.sinks.others import AppriseSink
from tasks.sinks.slack import SlackSink
from tasks.sinks.slack_client import shown
from tasks.sinks.webhook import WebhookSink
from tests import nights

TOKEN = "xoxb-not-a-real-token"
WEBHOOK = "https://hooks.example.com/services/T0/B0/not-real"
MAIL = "mailtos://user:swordfish@mail.example.com?to=ops@example.com"
CLUSTER = Cluster(name="h100-east", nodes=8, platform=LocalPlatform(kind="local"))


def settings(**environ: str) -> AlertSettings:
    return AlertSettings.from_env(Notify(), {f"SEATRIAL_{key}": value for key, value in environ.items()})


def test_without_settings_it_says_what_to_set() -> None:
    told = notify(nights.bad(1), CLUSTER, None, settings())
    assert told.summary == (
        "not configured: set SEATRIAL_SLACK_TOKEN and SEATRIAL_SLACK_CHANNEL, or SEATRIAL_SLACK_WEBHOOK;"
        " or SEATRIAL_ALERT_WEBHOOK or SEATRIAL_ALERT_URLS"
    )
    assert not told.failed


BAD = [
    ({"SLACK_WEBHOOK": "http://hooks.example.com/x"}, "SEATRIAL_SLACK_WEBHOOK must start with https://"),
    ({"SLACK_WEBHOOK": "not an address"}, "SEATRIAL_SLACK_WEBHOOK must start with https://"),
    ({"SLACK_WEBHOOK": "http://[::1"}, "SEATRIAL_SLACK_WEBHOOK must start with https://"),
    (
        {"SLACK_TOKEN": TOKEN, "SLACK_CHANNEL": "#a", "SLACK_API_URL": "http://slack.example.com/api"},
        "SEATRIAL_SLACK_API_URL must start with https://",
    ),
    (
        {"SLACK_TOKEN": TOKEN, "SLACK_CHANNEL": "#a", "SLACK_API_URL": "http://localhost.example.com/"},
        "SEATRIAL_SLACK_API_URL must start with https://",
    ),
    ({"SLACK_TOKEN": TOKEN, "SLACK_CHANNEL": "two words"}, "SEATRIAL_SLACK_CHANNEL: must be a channel's name or id"),
    ({"ALERT_WEBHOOK": "http://alerts.example.com/"}, "SEATRIAL_ALERT_WEBHOOK must start with https://"),
    ({"ALERT_WEBHOOK": "https://a..b/x"}, "SEATRIAL_ALERT_WEBHOOK must start with https://"),
    ({"ALERT_WEBHOOK": f"https://{'x' * 64}.example.com/x"}, "SEATRIAL_ALERT_WEBHOOK must start with https://"),
    ({"ALERT_WEBHOOK": "https://host:port/x"}, "SEATRIAL_ALERT_WEBHOOK must start with https://"),
    ({"ALERT_WEBHOOK": "https://host:0/x"}, "SEATRIAL_ALERT_WEBHOOK must start with https://"),
    ({"SLACK_WEBHOOK": "https://host:99999/x"}, "SEATRIAL_SLACK_WEBHOOK must start with https://"),
    (
        {"SLACK_TOKEN": TOKEN, "SLACK_CHANNEL": "#a", "SLACK_API_URL": "https://slack..com/api"},
        "SEATRIAL_SLACK_API_URL must start with https://",
    ),
    ({"ALERT_URLS": "carrierpigeon://x:secret@y"}, "SEATRIAL_ALERT_URLS: address 1 (carrierpigeon://...)"),
]


@pytest.mark.parametrize(("environ", "said"), BAD)
def test_what_cannot_work_is_bad_input_and_is_not_tried(
    environ: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = notify(nights.bad(1), CLUSTER, None, settings(**environ))
    assert answer.failed
    told = answer.summary
    assert told.startswith(f"not configured: {said}")
    assert not any(secret in told for secret in ("hooks.example.com", TOKEN, "secret@", "swordfish"))
    for key, value in environ.items():
        monkeypatch.setenv(f"SEATRIAL_{key}", value)
    with pytest.raises(InputError, match=r"^SEATRIAL_"):
        check_alerts(Notify())


@pytest.mark.parametrize(
    "addresses",
    [TOKEN, "mailtos://ops:correct horse-battery@mail.example.com", "swordfish@mail.example.com/?to=json://not-a-real"],
)
def test_an_address_that_is_none_does_not_show(addresses: str) -> None:
    _, problem = settings(ALERT_URLS=addresses).legal()
    assert problem
    assert f"SEATRIAL_ALERT_URLS: address {len(addresses.split())} is none that apprise knows; legal: " in problem
    for secret in ("xoxb", "not-a-real", "correct", "horse", "swordfish"):
        assert secret not in problem


def test_a_token_without_a_channel_is_said_and_keeps_no_other_from_hearing(monkeypatch: pytest.MonkeyPatch) -> None:
    told = notify(nights.bad(1), CLUSTER, None, settings(SLACK_TOKEN=TOKEN))
    assert told.summary.startswith("not configured: SEATRIAL_SLACK_CHANNEL is not set; set")
    sinks, problem = configured.sinks_of(settings(SLACK_TOKEN=TOKEN, ALERT_URLS=MAIL), CLUSTER)
    assert problem
    assert [sink.name.partition(" (")[0] for sink in sinks] == ["mailtos://user:****@mail.example.com"]


def test_two_addresses_of_one_service_are_two_receivers() -> None:
    both = "json://alerts.example.com/?to=east json://alerts.example.com/?to=west"
    sinks, _ = configured.sinks_of(settings(ALERT_URLS=both), CLUSTER)
    one, other = (sink.name for sink in sinks)
    assert one != other
    assert one.startswith("json://alerts.example.com (")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("msteams://T1/aaaabbbbcccc/dddd%40eeee", "POST /webhookb2/aaaabbbbcccc/dddd@eeee failed"),
        ("tgram://123456789:AAbbCCddEE/12", "https://api.example.com/bot123456789:AAbbCCddEE/send"),
        ("json://ops:swordfishes@x.example.com/?token=not-a-real-one", "swordfishes, token not-a-real-one"),
        ("slack://T1/B1/zzzz", "Max retries exceeded with url: /services/T1/B1/zzzz (Caused by NewConnectionError)"),
        ("slack://T1/B1/zzzz", "404 Client Error: Not Found for url: https://hooks.example.com/services/T1/B1/zzzz"),
    ],
)
def test_what_an_address_is_made_of_does_not_show(address: str, said: str) -> None:
    scrubbed = settings(ALERT_URLS=address).scrub(said)
    assert "***" in scrubbed
    for secret in ("aaaabbbbcccc", "dddd@eeee", "123456789", "AAbbCC", "swordfishes", "not-a-real-one", "zzzz"):
        assert secret not in scrubbed
    assert settings(ALERT_URLS=MAIL).scrub("mail.example.com: Connection refused").startswith("mail.example.com: ")


def test_a_receiver_that_is_mistyped_keeps_no_other_from_hearing(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    def tell(self: AppriseSink, alert: Alert, receipt: Receipt, files: Files) -> Delivery:
        heard.append(self.name)
        return Delivery(full_receipt(alert, {}), "sent")

    monkeypatch.setattr(AppriseSink, "tell", tell)
    own = settings(
        SLACK_TOKEN=TOKEN,
        SLACK_CHANNEL="two words",
        ALERT_WEBHOOK="http://alerts.example.com/",
        ALERT_URLS=f"carrierpigeon://x:secret@y {MAIL} owl://z",
    )
    told = notify(nights.bad(1), CLUSTER, None, own)
    assert len(heard) == 1
    assert told.failed
    assert told.summary.startswith("mailtos://user:****@mail.example.com (")
    assert ": sent; not configured: SEATRIAL_SLACK_CHANNEL: must be" in told.summary
    for wrong in ("SEATRIAL_ALERT_WEBHOOK must", "address 1 (carrierpigeon://...)", "address 3 (owl://...)"):
        assert wrong in told.summary
    quiet = notify(nights.good(2), CLUSTER, None, own)
    assert quiet.failed
    assert quiet.summary.startswith("nothing new; not configured: ")


def test_secrets_do_not_show() -> None:
    own = settings(SLACK_TOKEN=TOKEN, SLACK_CHANNEL="a", SLACK_WEBHOOK=WEBHOOK, ALERT_WEBHOOK=WEBHOOK, ALERT_URLS=MAIL)
    for secret in (TOKEN, WEBHOOK, "swordfish"):
        assert secret not in repr(own)
        assert secret not in own.scrub(f"failed: {WEBHOOK}\n{TOKEN} {MAIL}")
    assert own.scrub(f"failed: {WEBHOOK}\n{TOKEN}") == "failed: *** ***"


def test_whatever_a_sink_does_is_one_line_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> str:
        raise RuntimeError(f"cannot post to {WEBHOOK}\nsorry")

    monkeypatch.setattr("tasks.sinks.slack.webhook_client", broken)
    told = notify(nights.bad(1), CLUSTER, None, settings(SLACK_WEBHOOK=WEBHOOK), Path("/nowhere"))
    assert told == Notified(
        "slack webhook: FAILED RuntimeError: cannot post to *** sorry; the next run tells it", failed=True
    )
    monkeypatch.setattr(SlackSink, "tell", broken)
    told = notify(nights.bad(1), CLUSTER, None, settings(SLACK_TOKEN=TOKEN, SLACK_CHANNEL="a"))
    assert told.summary == "slack #a: FAILED seatrial itself failed (RuntimeError); the next run tells it"


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_a_host_that_is_none_is_what_the_webhook_says(host: str) -> None:
    sink = WebhookSink(SecretStr(f"https://{host}/not-real"), settings().scrub)
    told = sink.digest(nights.good(1))
    assert told.failed
    assert told.summary == "cannot be reached (LocationParseError); check SEATRIAL_ALERT_WEBHOOK and the network"


def test_a_digest_that_breaks_keeps_no_other_from_hearing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Delivery:
        raise RuntimeError(WEBHOOK)

    monkeypatch.setattr(WebhookSink, "digest", broken)
    monkeypatch.setattr(AppriseSink, "digest", lambda *_: Delivery(Receipt(), "digest sent"))
    cluster = CLUSTER.model_copy(update={"notify": Notify(quiet="digest")})
    told = notify(nights.good(1), cluster, None, settings(ALERT_WEBHOOK=WEBHOOK, ALERT_URLS=MAIL))
    assert told.failed
    assert told.summary.startswith("webhook: FAILED seatrial itself failed (RuntimeError); mailtos://")
    assert told.summary.endswith(": digest sent")


def test_a_new_receiver_hears_nothing_of_what_is_over() -> None:
    before, new = (cast(Sink, SimpleNamespace(name=name)) for name in ("before", "new"))
    bad, good = outcome_of(nights.bad(1)), outcome_of(nights.good(2))
    (incident,) = advance([], CLUSTER.name, "nightly", bad, ["before"])
    (over,) = advance([incident], CLUSTER.name, "nightly", good, ["before", "new"])
    assert over.closed
    site = material.AlertContext(CLUSTER, None, [before, new], Secrets())
    assert _listeners(site, over, outcome_of(nights.good(3))) == [before]
    assert _listeners(site, incident, bad) == [before, new]


def test_a_run_that_ends_an_incident_while_it_is_told_has_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, own = f"sqlite:///{tmp_path}/history.sqlite", settings(ALERT_WEBHOOK=WEBHOOK)
    heard: list[str] = []

    def tell(_: WebhookSink, alert: Alert, receipt: Receipt, files: Files) -> Delivery:
        if not heard:
            heard.append("slowly")
            with open_store(history) as other:
                notify(nights.good(1), CLUSTER, other, own)
        heard.extend(alert.incident.changes[receipt.reported :])
        return Delivery(full_receipt(alert, {}), "sent")

    monkeypatch.setattr(WebhookSink, "tell", tell)
    with open_store(history) as store:
        watch(CLUSTER, nights.good(1).suite, timedelta.max, store, own, "it died")
        assert heard == ["slowly", "not run: it died", "runs again", "not run: it died"]
        assert notify(nights.good(2), CLUSTER, store, own) == Notified("nothing new")


def test_the_environment_wins_over_blocks_and_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configured, "_block", lambda name: f"json://from-{name}")
    cluster = CLUSTER.model_copy(update={"notify": Notify.model_validate({"slack": {"channel": "east"}})})
    found = configured.settings_of(cluster)
    assert found.slack == SlackSettings(
        SecretStr("json://from-seatrial-slack-token"), "east", SecretStr("json://from-seatrial-slack-webhook")
    )
    assert found.urls == (SecretStr("json://from-seatrial-alert-urls"),)
    monkeypatch.setenv("SEATRIAL_SLACK_CHANNEL", "alerts")
    monkeypatch.setenv("SEATRIAL_SLACK_WEBHOOK", WEBHOOK)
    assert configured.settings_of(cluster).slack == SlackSettings(None, "alerts", SecretStr(WEBHOOK))
    monkeypatch.undo()
    monkeypatch.setattr(configured, "_block", lambda _: None)
    assert not configured.settings_of(cluster).anybody


@pytest.mark.parametrize(
    ("channel", "written"), [("alerts", "#alerts"), ("#alerts", "#alerts"), ("C024BE91L", "C024BE91L")]
)
def test_channels_are_shown_as_people_write_them(channel: str, written: str) -> None:
    assert shown(channel) == written


@pytest.mark.parametrize(
    ("notify", "said"),
    [
        ("{slack: {channel: 'two words'}}", "notify.slack.channel: must be a channel's name or id"),
        ("{slack: {mentions: {fail: ['@ann']}}}", "notify.slack.mentions.fail.0: must be here, channel, everyone"),
        ("{slack: {mentions: {terrible: [here]}}}", "notify.slack.mentions.terrible"),
        ("{slack: {token: xoxb-1}}", "notify.slack.token: unknown field; legal: channel, mentions"),
        ("{quiet: please}", "notify.quiet: input should be 'nothing' or 'digest', is 'please'"),
        ("{report_url: 'https://u:p@x.example.com'}", "notify.report_url: must be an http or https address without"),
        ("{report_url: 'https://x.example.com/{run}'}", "notify.report_url: must be an http or https address"),
        ("{mail: ops@example.com}", "notify.mail: unknown field; legal: quiet, report_url, slack"),
    ],
)
def test_bad_settings_are_one_line(notify: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "east.yaml"
    file.write_text(f"nodes: 2\nplatform: {{kind: local}}\nnotify: {notify}\n")
    with pytest.raises(InputError) as told:
        load_cluster(file)
    assert str(told.value).startswith(f"{file}: {said}")
    assert "\n" not in str(told.value)


def test_the_files_settings_are_read(tmp_path: Path) -> None:
    file = tmp_path / "east.yaml"
    file.write_text(
        "nodes: 2\nplatform: {kind: local}\n"
        "notify: {slack: {channel: '#gpu', mentions: {fail: [S0614TZR7]}}, quiet: digest}\n"
    )
    found = load_cluster(file).notify
    assert (found.slack.channel, found.slack.mentions, found.quiet) == ("#gpu", {"fail": ("S0614TZR7",)}, "digest")
