"""slack_sdk as this project uses it: its retries bounded, its log muted, its errors as one line with a next step."""

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

if TYPE_CHECKING:
    from slack_sdk import WebClient, WebhookClient
    from slack_sdk.errors import SlackApiError
    from slack_sdk.http_retry.handler import RetryHandler

TIMEOUT_S = 10
MAX_WAIT_S = 30  # the longest Retry-After that is waited for
MAX_RETRIES = 2

# What to do about Slack's error codes: https://docs.slack.dev/reference/methods/chat.postMessage#errors
_TOKEN = "check SEATRIAL_SLACK_TOKEN"
_STATUS = "see https://slack-status.com and run again"
_NEXT_STEPS = {
    **dict.fromkeys(("invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive"), _TOKEN),
    "channel_not_found": "check SEATRIAL_SLACK_CHANNEL; a private channel needs the app invited",
    "not_in_channel": "invite the app to the channel with /invite",
    "is_archived": "choose another SEATRIAL_SLACK_CHANNEL",
    "missing_scope": "give the app the scope chat:write",
    "ratelimited": "Slack is rate limiting this app; the next run will try again",
    **dict.fromkeys(("no_service", "no_service_id", "no_team", "invalid_token"), "make a new SEATRIAL_SLACK_WEBHOOK"),
    "channel_is_archived": "make a new SEATRIAL_SLACK_WEBHOOK for another channel",
}


class SlackRefusedError(Exception):
    """Slack answered, and said no; `code` is its word for why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def web_client(token: SecretStr, api_url: str | None) -> "WebClient":
    from slack_sdk import WebClient

    return WebClient(
        token=token.get_secret_value(),
        base_url=f"{(api_url or 'https://slack.com/api').rstrip('/')}/",
        timeout=TIMEOUT_S,
        logger=_mute(),
        retry_handlers=_retry_handlers(),
    )


def webhook_client(webhook: SecretStr) -> "WebhookClient":
    from slack_sdk import WebhookClient

    return WebhookClient(
        webhook.get_secret_value(), timeout=TIMEOUT_S, logger=_mute(), retry_handlers=_retry_handlers()
    )


def explain(error: Exception) -> str:
    """What went wrong, and the next step."""
    if isinstance(error, SlackRefusedError):
        step = _NEXT_STEPS.get(error.code, _STATUS if error.code.startswith("HTTP 5") else "")
        return f"Slack says {error.code}; {step}" if step else f"Slack says {error.code}"
    return _network(error)


def code(error: "SlackApiError") -> str:
    """The error code of what the Web API answered; `response` is a mapping, or text where it was no JSON."""
    response: Any = error.response
    error_code = response.get("error") if hasattr(response, "get") else None
    return word(error_code, getattr(response, "status_code", None))


def word(error_code: object, status: int | None) -> str:
    """Slack's word for an error, such as invalid_auth; the HTTP status where a page or a proxy answered instead."""
    if status == 429:
        return "ratelimited"
    return (
        error_code
        if isinstance(error_code, str) and re.fullmatch(r"[a-z][a-z0-9_]{1,60}", error_code)
        else f"HTTP {status}"
    )


def shown(channel: str) -> str:
    """As people write it: #alerts; an id stays as it is."""
    is_id = channel[:1] in "CGD" and channel.isalnum() and channel.isupper()
    return channel if is_id or channel.startswith("#") else f"#{channel}"


def _network(error: Exception) -> str:
    """Slack could not be reached, or was not understood."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return f"Slack did not answer within {TIMEOUT_S} s; check the network or proxy of this host"
    if isinstance(error, OSError):
        return f"Slack cannot be reached ({reason}); check the network or proxy of this host"
    return f"{type(error).__name__}: {error}"


def _retry_handlers() -> "list[RetryHandler]":
    """Wait when Slack says how long, but not for longer than a run can wait."""
    from slack_sdk.http_retry.builtin_handlers import (
        ConnectionErrorRetryHandler,
        RateLimitErrorRetryHandler,
        ServerErrorRetryHandler,
    )

    class Patient(RateLimitErrorRetryHandler):
        def _can_retry(self, *, response: Any = None, **given: Any) -> bool:
            limited = super()._can_retry(response=response, **given)
            return limited and _wait_s(response.headers) <= MAX_WAIT_S

    return [ConnectionErrorRetryHandler(1), Patient(MAX_RETRIES), ServerErrorRetryHandler(MAX_RETRIES)]


def _wait_s(headers: Mapping[str, Any]) -> float:
    """Retry-After in seconds; one that is no number cannot be waited for."""
    given = next((value for name, value in headers.items() if name.lower() == "retry-after"), ["1"])
    text = str(given[0] if isinstance(given, list) else given)
    return float(text) if text.isdecimal() else float("inf")


def _mute() -> logging.Logger:
    """slack_sdk logs addresses and bodies, and a webhook's address is its secret: its records go nowhere."""
    logger = logging.Logger("seatrial.notify.slack_sdk", level=logging.CRITICAL + 1)
    logger.addHandler(logging.NullHandler())
    return logger
