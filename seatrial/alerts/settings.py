"""Where alerts go, from the environment and the cluster file. The secrets in it show nowhere."""

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
from seatrial.text.addresses import is_loopback, split
from seatrial.text.redact import redacted
from seatrial.text.words import plain

URLLIB3 = ("urllib3.connectionpool", "urllib3.util.retry")  # both name the path of what they try again
APPRISE = ("apprise",)


@contextmanager
def muted(names: tuple[str, ...]) -> Iterator[None]:
    """Disable those loggers meanwhile."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


SAFE = "must start with https:// (http:// only to this machine), then a host, and a port of 1 to 65535 if any"
SLACK_HOW_TO = "set SEATRIAL_SLACK_TOKEN and SEATRIAL_SLACK_CHANNEL, or SEATRIAL_SLACK_WEBHOOK"


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
            return f"{missing} is not set; {SLACK_HOW_TO}"
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


HOW_TO = f"{SLACK_HOW_TO}; or SEATRIAL_ALERT_WEBHOOK or SEATRIAL_ALERT_URLS"
_TELLING = 8  # characters from which on a part of an address is no common word
_ADDRESSED = re.compile(r"\b((?:with|for) url:) \S+")  # how requests and urllib3 quote an address in their errors
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,19}://")
_WEBHOOK, _URLS = "SEATRIAL_ALERT_WEBHOOK", "SEATRIAL_ALERT_URLS"


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """Slack, a webhook that takes JSON, and addresses as apprise knows them (e-mail, Teams, PagerDuty, ...)."""

    slack: SlackSettings | None = None
    webhook: SecretStr | None = None
    urls: tuple[SecretStr, ...] = ()

    @classmethod
    def from_env(cls, notify: Notify, environ: Mapping[str, str] | None = None) -> Self:
        """What SEATRIAL_SLACK_*, SEATRIAL_ALERT_WEBHOOK and SEATRIAL_ALERT_URLS say; the channel may be the file's."""
        env = os.environ if environ is None else environ
        slack = SlackSettings.from_env(env)
        if slack and slack.channel is None:
            slack = replace(slack, channel=notify.slack.channel)
        addresses = (secret(url) for url in env.get(_URLS, "").split())
        return cls(slack, secret(env.get(_WEBHOOK)), tuple(url for url in addresses if url))

    @property
    def anybody(self) -> bool:
        return bool(self.slack or self.webhook or self.urls)

    def secrets(self) -> list[str]:
        """What must not show, the longest first."""
        slack = (self.slack.token, self.slack.webhook) if self.slack else ()
        values = (held.get_secret_value() for held in (*slack, self.webhook, *self.urls) if held)
        return sorted(values, key=len, reverse=True)

    def scrub(self, text: str) -> str:
        """`text` on one line, without the secrets, wherever it came from."""
        text = _ADDRESSED.sub(r"\1 ***", text)
        for held in (*self.secrets(), *self._parts()):
            text = text.replace(held, "***")
        return plain("".join(redacted([text])))[:300]

    def _parts(self) -> list[str]:
        """What an address is made of, the longest first: a service's own address has the same token elsewhere."""
        slack = self.slack.webhook if self.slack else None
        addresses = [held.get_secret_value() for held in (slack, self.webhook, *self.urls) if held]
        return sorted({part for address in addresses for part in _parts_of(address)}, key=len, reverse=True)

    def legal(self) -> tuple[Self, str | None]:
        """The receivers that can work as they are written, and what is wrong with the others; never quotes a secret."""
        slack, webhook, unknown = self._bad_slack(), self._bad_webhook(), _unknown_urls(self.urls)
        kept = replace(
            self,
            slack=None if slack else self.slack,
            webhook=None if webhook else self.webhook,
            urls=tuple(url for number, url in enumerate(self.urls, 1) if number not in unknown),
        )
        return kept, "; ".join(problem for problem in (slack, webhook, *unknown.values()) if problem) or None

    def _bad_slack(self) -> str | None:
        problem = self.slack.malformed() if self.slack else None
        if problem or self.slack is None or self.slack.channel is None:
            return problem
        try:
            legal_channel(self.slack.channel)
        except ValueError as error:
            return f"SEATRIAL_SLACK_CHANNEL: {error}"
        return None

    def _bad_webhook(self) -> str | None:
        if self.webhook is None or safe(self.webhook.get_secret_value()):
            return None
        return f"{_WEBHOOK} {SAFE}"


def _parts_of(address: str) -> set[str]:
    """Login, path segments and values of an address, as written and decoded; what has a dot in it is a host, no token.

    Shorter ones are left, as they are words of the language too.
    """
    rest, _, query = address.partition("://")[2].partition("#")[0].partition("?")
    authority, *segments = rest.split("/")
    login, _, host = authority.rpartition("@")
    where = [] if "." in host or host.startswith("localhost") else host.split(":")
    values = [value.partition("=")[2] for value in query.split("&")]
    secrets = {part for part in (*login.split(":"), *where, *segments, *values) if part}
    return {part for part in (*secrets, *map(unquote_plus, secrets)) if len(part) >= _TELLING}


def check_alerts(notify: Notify) -> None:
    """Raises InputError when the environment's settings can never work; said before an hour is spent, not after it."""
    _, problem = AlertSettings.from_env(notify).legal()
    if problem:
        raise InputError(problem)


def _unknown_urls(urls: tuple[SecretStr, ...]) -> dict[int, str]:
    """What is wrong with the addresses that apprise does not understand, by number: the address itself is a secret."""
    if not urls:
        return {}
    import apprise

    problems = {}
    for number, url in enumerate(urls, 1):
        with muted(APPRISE):
            service = apprise.Apprise.instantiate(url.get_secret_value(), suppress_exceptions=True)
        if not service:
            problems[number] = (
                f"{_URLS}: address {number}{_service(url.get_secret_value())} is none that apprise knows; legal: such"
                " as mailtos://user:password@host?to=ops@example.com; see https://appriseit.com/services"
            )
    return problems


def _service(address: str) -> str:
    """Which service it is of, where it says so: what has no scheme may be a token, or what follows a blank in one."""
    scheme = _SCHEME.match(address)
    return f" ({scheme[0]}...)" if scheme else ""
