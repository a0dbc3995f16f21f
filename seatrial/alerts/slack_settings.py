"""Where and how Slack is reached. Pure; the secrets in it show nowhere."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pydantic import SecretStr

from seatrial.text.addresses import is_loopback, split

SAFE = "must start with https:// (http:// only to this machine), then a host, and a port of 1 to 65535 if any"
HOW_TO = "set SEATRIAL_SLACK_TOKEN and SEATRIAL_SLACK_CHANNEL, or SEATRIAL_SLACK_WEBHOOK"


@dataclass(frozen=True, slots=True)
class SlackSettings:
    """Where to send: a bot token with a channel, or an incoming webhook. Secrets never show in repr or text."""

    token: SecretStr | None = None
    channel: str | None = None
    webhook: SecretStr | None = None
    api_url: str | None = None

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self | None:
        """SEATRIAL_SLACK_TOKEN, _CHANNEL, _WEBHOOK and _API_URL; None when neither token nor webhook is set."""
        env = os.environ if environ is None else environ
        settings = cls(
            token=secret(env.get("SEATRIAL_SLACK_TOKEN")),
            channel=env.get("SEATRIAL_SLACK_CHANNEL", "").strip() or None,
            webhook=secret(env.get("SEATRIAL_SLACK_WEBHOOK")),
            api_url=env.get("SEATRIAL_SLACK_API_URL", "").strip() or None,
        )
        return settings if settings.token or settings.webhook else None

    def problem(self) -> str | None:
        """What keeps these settings from working, if anything; never quotes a secret."""
        if self.webhook is None and (self.token is None or self.channel is None):
            missing = "SEATRIAL_SLACK_TOKEN" if self.token is None else "SEATRIAL_SLACK_CHANNEL"
            return f"{missing} is not set; {HOW_TO}"
        return self.malformed()

    def malformed(self) -> str | None:
        """What is set, and can never work as it is written."""
        if self._by_token and not safe(self.api_url or "https://slack.com"):
            return f"SEATRIAL_SLACK_API_URL {SAFE}"
        if not self._by_token and self.webhook and not safe(self.webhook.get_secret_value()):
            return f"SEATRIAL_SLACK_WEBHOOK {SAFE}"
        return None

    @property
    def _by_token(self) -> bool:
        return self.token is not None and self.channel is not None


def secret(value: str | None) -> SecretStr | None:
    return SecretStr(value.strip()) if value and value.strip() else None


def safe(url: str) -> bool:
    """Whether secrets may be sent there: encrypted, or not leaving this machine."""
    parts = split(url)
    if parts is None:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
