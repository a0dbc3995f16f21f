"""Settings of the receivers of alerts, from the environment and the cluster file.

Secrets are never shown.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self
from urllib.parse import unquote_plus

from pydantic import SecretStr

from seatrial.config.notify import Notify, legal_channel
from seatrial.model.errors import InputError
from seatrial.system.extras import has_module, how_to_install
from seatrial.text.addresses import is_loopback, split
from seatrial.text.redact import redacted
from seatrial.text.words import plain

# Both log the path of a request that they retry
URLLIB3 = ("urllib3.connectionpool", "urllib3.util.retry")
APPRISE = ("apprise",)
SAFE = (
    "must start with https:// (http:// only to this machine), then a host, and a port of 1 to "
    "65535 if any"
)
SLACK_HOW_TO = "set SEATRIAL_SLACK_TOKEN and SEATRIAL_SLACK_CHANNEL, or SEATRIAL_SLACK_WEBHOOK"
HOW_TO = f"{SLACK_HOW_TO}; or SEATRIAL_ALERT_WEBHOOK or SEATRIAL_ALERT_URLS"
# How requests and urllib3 quote an address in their errors
_ADDRESSED = re.compile(r"\b((?:with|for) url:) \S+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,19}://")
_WEBHOOK = "SEATRIAL_ALERT_WEBHOOK"
_URLS = "SEATRIAL_ALERT_URLS"


@contextmanager
def muted(names: tuple[str, ...]) -> Iterator[None]:
    """Disable the named loggers within the context."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


@dataclass(frozen=True, slots=True)
class SlackSettings:
    """A bot token with a channel, or an incoming webhook. Secrets are not in repr or text."""

    token: SecretStr | None = None
    channel: str | None = None
    webhook: SecretStr | None = None
    api_url: str | None = None

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self | None:
        """Read SEATRIAL_SLACK_TOKEN, _CHANNEL, _WEBHOOK and _API_URL; None without token and
        webhook.
        """
        settings = cls(
            token=secret(env.get("SEATRIAL_SLACK_TOKEN")),
            channel=env.get("SEATRIAL_SLACK_CHANNEL", "").strip() or None,
            webhook=secret(env.get("SEATRIAL_SLACK_WEBHOOK")),
            api_url=env.get("SEATRIAL_SLACK_API_URL", "").strip() or None,
        )
        return settings if settings.token or settings.webhook else None

    def problem(self) -> str | None:
        """Return why these settings cannot work, without secrets; None if they can."""
        if self.webhook is None and (self.token is None or self.channel is None):
            missing = "SEATRIAL_SLACK_TOKEN" if self.token is None else "SEATRIAL_SLACK_CHANNEL"
            return f"{missing} is not set; {SLACK_HOW_TO}"
        return self.malformed()

    def malformed(self) -> str | None:
        """Return which of the values that are set cannot work; None if all can."""
        if self._by_token:
            if not safe(self.api_url or "https://slack.com"):
                return f"SEATRIAL_SLACK_API_URL {SAFE}"
        elif self.webhook and not safe(self.webhook.get_secret_value()):
            return f"SEATRIAL_SLACK_WEBHOOK {SAFE}"
        return None

    @property
    def _by_token(self) -> bool:
        """Whether messages go by the API and not by the webhook."""
        return self.token is not None and self.channel is not None


def secret(value: str | None) -> SecretStr | None:
    """Return what a variable of the environment holds; None where it is empty."""
    stripped = (value or "").strip()
    return SecretStr(stripped) if stripped else None


def safe(url: str) -> bool:
    """Return whether secrets may be sent to `url`: it is encrypted, or on this machine."""
    parts = split(url)
    if parts is None:
        return False
    if parts.scheme == "https":
        return True
    return parts.scheme == "http" and is_loopback(parts.hostname or "")


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """Receivers: Slack, a webhook that takes JSON, and apprise URLs (e-mail, Teams, PagerDuty,
    ...).
    """

    slack: SlackSettings | None = None
    webhook: SecretStr | None = None
    urls: tuple[SecretStr, ...] = ()

    @classmethod
    def from_env(cls, notify: Notify, environ: Mapping[str, str] | None = None) -> Self:
        """Read SEATRIAL_SLACK_*, SEATRIAL_ALERT_WEBHOOK, SEATRIAL_ALERT_URLS; the channel may be
        the cluster file's.
        """
        env = os.environ if environ is None else environ
        slack = SlackSettings.from_env(env)
        if slack and slack.channel is None:
            slack = replace(slack, channel=notify.slack.channel)
        addresses = env.get(_URLS, "").split()
        return cls(slack, secret(env.get(_WEBHOOK)), tuple(map(SecretStr, addresses)))

    @property
    def anybody(self) -> bool:
        """Whether there is a receiver."""
        return bool(self.slack or self.webhook or self.urls)

    def secrets(self) -> list[str]:
        """Return all secrets, the longest first."""
        slack = (self.slack.token, self.slack.webhook) if self.slack else ()
        values = (held.get_secret_value() for held in (*slack, self.webhook, *self.urls) if held)
        return sorted(values, key=len, reverse=True)

    def scrub(self, text: str) -> str:
        """Return `text` on one line without the secrets."""
        slack = self.slack.webhook if self.slack else None
        # Services repeat a token of an address in addresses of their own.
        parts = set[str]()
        for held in (slack, self.webhook, *self.urls):
            if held:
                parts |= _parts_of(held.get_secret_value())
        longest_first = sorted(parts, key=len, reverse=True)
        text = _ADDRESSED.sub(r"\1 ***", text)
        for part in (*self.secrets(), *longest_first):
            text = text.replace(part, "***")
        return plain("".join(redacted([text])))[:300]

    def legal(self) -> tuple[Self, str | None]:
        """Return the valid receivers, and the problems of the others without secrets."""
        slack = self._bad_slack()
        unknown = _unknown_urls(self.urls)
        webhook = None
        if self.webhook is not None and not safe(self.webhook.get_secret_value()):
            webhook = f"{_WEBHOOK} {SAFE}"
        kept = replace(
            self,
            slack=None if slack else self.slack,
            webhook=None if webhook else self.webhook,
            urls=tuple(url for number, url in enumerate(self.urls, 1) if number not in unknown),
        )
        problems = filter(None, (slack, webhook, *unknown.values()))
        return kept, "; ".join(problems) or None

    def _bad_slack(self) -> str | None:
        """Return why Slack cannot be a receiver."""
        if self.slack is None:
            return None
        problem = self.slack.malformed()
        if problem or self.slack.channel is None:
            return problem
        try:
            legal_channel(self.slack.channel)
        except ValueError as error:
            return f"SEATRIAL_SLACK_CHANNEL: {error}"
        return None


def _parts_of(address: str) -> set[str]:
    """Return login, path segments and values of an address, as written and decoded; short ones may
    be common words.
    """
    _, _, after_scheme = address.partition("://")
    without_fragment, _, _ = after_scheme.partition("#")
    path, _, query = without_fragment.partition("?")
    authority, *segments = path.split("/")
    login, _, host = authority.rpartition("@")
    parts = {*login.split(":"), *segments}
    if "." not in host and not host.startswith("localhost"):
        parts.update(host.split(":"))
    parts.update(value.partition("=")[2] for value in query.split("&"))
    decoded = map(unquote_plus, parts)
    return {part for part in (*parts, *decoded) if len(part) >= 8}


def check_alerts(notify: Notify) -> None:
    """Raise InputError if the environment's settings cannot work."""
    _, problem = AlertSettings.from_env(notify).legal()
    if problem:
        raise InputError(problem)


def _unknown_urls(urls: tuple[SecretStr, ...]) -> dict[int, str]:
    """Return the problems of addresses that apprise does not understand, by number: the address
    itself is secret.
    """
    if not urls:
        return {}
    if not has_module("apprise"):
        return {1: f"{_URLS}: {how_to_install('apprise')}"}
    import apprise

    problems = {}
    for number, url in enumerate(urls, 1):
        address = url.get_secret_value()
        with muted(APPRISE):
            service = apprise.Apprise.instantiate(address, suppress_exceptions=True)
        if not service:
            scheme = _SCHEME.match(address)  # without one, all of it may be a token
            shown = f" ({scheme[0]}...)" if scheme else ""
            problems[number] = (
                f"{_URLS}: address {number}{shown} is none that apprise knows; legal: such"
                " as mailtos://user:password@host?to=ops@example.com; see "
                "https://appriseit.com/services"
            )
    return problems
