from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from seatrial.report.slack_settings import SlackSettings
from seatrial.verdict import Verdict
from tasks import notify as module
from tasks.notify import notify
from tests import samples

TOKEN = "xoxb-not-a-real-token"
WEBHOOK = "https://hooks.example.com/services/T0/B0/not-real"


def test_a_pass_after_a_pass_needs_no_message() -> None:
    settings = SlackSettings(token=SecretStr(TOKEN), channel="alerts")
    assert notify(samples.healthy_local(), Verdict.PASS, settings, None) == "not needed: pass after pass"
    assert notify(samples.healthy_local(), None, settings, None) == "not needed: pass, and no run before"


def test_without_settings_it_says_what_to_set() -> None:
    said = notify(samples.faulty_h100(), None, SlackSettings.from_env({}), None)
    assert said == "not configured: set SEATRIAL_SLACK_TOKEN and SEATRIAL_SLACK_CHANNEL, or SEATRIAL_SLACK_WEBHOOK"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"TOKEN": TOKEN}, "not configured: SEATRIAL_SLACK_CHANNEL is not set; set"),
        ({"WEBHOOK": "http://hooks.example.com/x"}, "not configured: SEATRIAL_SLACK_WEBHOOK must start with https://"),
        ({"WEBHOOK": "not an address"}, "not configured: SEATRIAL_SLACK_WEBHOOK must start with https://"),
        ({"WEBHOOK": "http://[::1"}, "not configured: SEATRIAL_SLACK_WEBHOOK must start with https://"),
        (
            {"TOKEN": TOKEN, "CHANNEL": "#a", "API_URL": "http://slack.example.com/api"},
            "not configured: SEATRIAL_SLACK_API_URL must start with https://",
        ),
        (
            {"TOKEN": TOKEN, "CHANNEL": "#a", "API_URL": "http://localhost.example.com/"},
            "not configured: SEATRIAL_SLACK_API_URL must start with https://",
        ),
    ],
)
def test_what_cannot_work_is_not_tried(environ: dict[str, str], said: str) -> None:
    settings = SlackSettings.from_env({f"SEATRIAL_SLACK_{key}": value for key, value in environ.items()})
    assert settings is not None
    got = notify(samples.faulty_h100(), None, settings, None)
    assert got.startswith(said)
    assert environ.get("WEBHOOK", TOKEN) not in got


def test_secrets_do_not_show() -> None:
    settings = SlackSettings(SecretStr(TOKEN), "alerts", SecretStr(WEBHOOK))
    assert TOKEN not in repr(settings)
    assert WEBHOOK not in repr(settings)
    assert settings.scrub(f"failed: {WEBHOOK}\n{TOKEN}") == "failed: *** ***"


def test_any_failure_is_one_line_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> str:
        raise RuntimeError(f"cannot post to {WEBHOOK}\nsorry")

    monkeypatch.setattr(module, "_post_to_webhook", broken)
    said = notify(samples.faulty_h100(), None, SlackSettings(webhook=SecretStr(WEBHOOK)), Path("/nowhere"))
    assert said == "failed: RuntimeError: cannot post to *** sorry"


def test_the_environment_wins_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_block", lambda name: SecretStr(f"from {name}"))
    own = SlackSettings(webhook=SecretStr(WEBHOOK))
    assert module._with_blocks(own) == own
    monkeypatch.setenv("SEATRIAL_SLACK_CHANNEL", "alerts")
    found = module._with_blocks(None)
    assert found is not None
    assert found.channel == "alerts"
    assert found.token == SecretStr("from seatrial-slack-token")
    monkeypatch.setattr(module, "_block", lambda _: None)
    assert module._with_blocks(None) is None


@pytest.mark.parametrize(
    ("channel", "shown"), [("alerts", "#alerts"), ("#alerts", "#alerts"), ("C024BE91L", "C024BE91L")]
)
def test_channels_are_shown_as_people_write_them(channel: str, shown: str) -> None:
    assert module._channel(channel) == shown
