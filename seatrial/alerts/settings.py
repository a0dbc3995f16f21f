"""Where alerts go, from the environment and the cluster file. The secrets in it show nowhere."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self
from urllib.parse import unquote_plus

from pydantic import SecretStr

from seatrial.alerts.muted import APPRISE, muted
from seatrial.alerts.slack_settings import HOW_TO as SLACK_HOW_TO
from seatrial.alerts.slack_settings import SAFE, SlackSettings, safe, secret
from seatrial.config.notify import Notify, legal_channel
from seatrial.model.errors import InputError
from seatrial.text.redact import redacted
from seatrial.text.words import plain

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
