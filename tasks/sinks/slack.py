"""Slack by a bot token: one message per incident, kept up to date; what changes is a reply that the
channel sees too.

The picture, the report and the details go into the message's thread. Scopes: chat:write, and
files:write for the files.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from seatrial.alerts.alert import Alert, Mentions, mentions_for
from seatrial.alerts.settings import SlackSettings
from seatrial.alerts.slack import Block, blocks, change, details, digest
from seatrial.history.incident import Receipt
from seatrial.model.errors import described
from seatrial.model.result import RunResult
from seatrial.tasks.sinks import TOO_LARGE, Delivery, Files, full_receipt
from seatrial.text.redact import Clean

if TYPE_CHECKING:
    from slack_sdk import WebClient, WebhookClient
    from slack_sdk.http_retry.handler import RetryHandler


TIMEOUT_S = 10
MAX_WAIT_S = 30  # the longest Retry-After that is waited for
MAX_RETRIES = 2

# What to do about Slack's error codes:
# https://docs.slack.dev/reference/methods/chat.postMessage#errors
_TOKEN = "check SEATRIAL_SLACK_TOKEN"
_STATUS = "see https://slack-status.com and run again"
_NETWORK = "check the network or proxy of this host"
_NEXT_STEPS = {
    **dict.fromkeys(
        ("invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive"), _TOKEN
    ),
    "channel_not_found": "check SEATRIAL_SLACK_CHANNEL; a private channel needs the app invited",
    "not_in_channel": "invite the app to the channel with /invite",
    "is_archived": "choose another SEATRIAL_SLACK_CHANNEL",
    "missing_scope": "give the app the scope chat:write",
    "ratelimited": "Slack is rate limiting this app; the next run will try again",
    **dict.fromkeys(
        ("no_service", "no_service_id", "no_team", "invalid_token"),
        "make a new SEATRIAL_SLACK_WEBHOOK",
    ),
    "channel_is_archived": "make a new SEATRIAL_SLACK_WEBHOOK for another channel",
}
_QUIET = {"unfurl_links": False, "unfurl_media": False}
_GONE = ("message_not_found", "channel_not_found")  # somebody deleted it
# The message exists: the workspace's rules forbid a change, or it belongs to another app
_FIXED = ("cant_update_message", "edit_window_closed")


class SlackRefusedError(Exception):
    """Slack refused a call, with its error `code`."""

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
        webhook.get_secret_value(),
        timeout=TIMEOUT_S,
        logger=_mute(),
        retry_handlers=_retry_handlers(),
    )


def explain(error: Exception) -> str:
    """Describe the error, with the next step."""
    if isinstance(error, SlackRefusedError):
        step = _NEXT_STEPS.get(error.code, "")
        if error.code.startswith("HTTP"):  # a proxy or another server may have answered
            step = _STATUS if error.code.startswith("HTTP 5") else _NETWORK
        return f"Slack says {error.code}; {step}" if step else f"Slack says {error.code}"
    if isinstance(error, MemoryError):
        return f"Slack: {TOO_LARGE}"
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return f"Slack did not answer within {TIMEOUT_S} s; {_NETWORK}"
    if isinstance(error, OSError):
        return f"Slack cannot be reached ({reason}); {_NETWORK}"
    return described(error)


def error_code(answered: object, status: int | None) -> str:
    """Return Slack's error code, such as invalid_auth; the HTTP status if a page or a proxy
    answered instead.
    """
    if status == 429:
        return "ratelimited"
    return (
        answered
        if isinstance(answered, str) and re.fullmatch(r"[a-z][a-z0-9_]{1,60}", answered)
        else f"HTTP {status}"
    )


def shown(channel: str) -> str:
    """Format a channel: #alerts; an id stays as it is."""
    is_id = channel[:1] in "CGD" and channel.isalnum() and channel.isupper()
    return channel if is_id or channel.startswith("#") else f"#{channel}"


def _retry_handlers() -> "list[RetryHandler]":
    """Return handlers that honour Slack's Retry-After up to MAX_WAIT_S."""
    from slack_sdk.http_retry.builtin_handlers import (
        ConnectionErrorRetryHandler,
        RateLimitErrorRetryHandler,
        ServerErrorRetryHandler,
    )

    class Patient(RateLimitErrorRetryHandler):
        def _can_retry(self, *, response: Any = None, **context: Any) -> bool:
            limited = super()._can_retry(response=response, **context)
            return limited and _wait_s(response.headers) <= MAX_WAIT_S

    return [
        ConnectionErrorRetryHandler(1),
        Patient(MAX_RETRIES),
        ServerErrorRetryHandler(MAX_RETRIES),
    ]


def _wait_s(headers: Mapping[str, Any]) -> float:
    """Return Retry-After in seconds; one that is not a number cannot be waited for."""
    retry_after = next(
        (value for name, value in headers.items() if name.lower() == "retry-after"), ["1"]
    )
    text = str(retry_after[0] if isinstance(retry_after, list) else retry_after)
    return float(text) if text.isdecimal() else float("inf")


def _mute() -> logging.Logger:
    """Return a logger without output: slack_sdk logs addresses and bodies, and a webhook's address
    is its secret.
    """
    logger = logging.Logger("seatrial.notify.slack_sdk", level=logging.CRITICAL + 1)
    logger.addHandler(logging.NullHandler())
    return logger


def slack_sink(
    settings: SlackSettings, mentions: Mentions, scrub: Clean
) -> "SlackSink | SlackWebhookSink":
    """Return the sink for a token if both are set, as only that can update, thread and attach."""
    if settings.token is not None and settings.channel is not None:
        return SlackSink(settings.token, settings.channel, settings.api_url, mentions, scrub)
    assert settings.webhook is not None  # checked by SlackSettings.problem
    return SlackWebhookSink(settings.webhook, mentions, scrub)


@dataclass(frozen=True)
class SlackSink:
    """A Slack channel, by bot token."""

    token: SecretStr
    channel: str
    api_url: str | None
    mentions: Mentions
    scrub: Clean

    @property
    def name(self) -> str:
        return f"slack {shown(self.channel)}"

    def send(self, alert: Alert, receipt: Receipt, files: Files) -> Delivery:
        delivered = receipt
        channel = shown(self.channel)
        try:
            updated = self._updated(alert, receipt.place) if "ts" in receipt.place else None
            news = alert.incident.changes[receipt.reported :]
            if updated and not news:
                return Delivery(receipt, f"message in {channel} {updated}")
            mentions = mentions_for(alert.incident, self.mentions)
            if updated:
                place = receipt.place
                summary = f"sent the change to {channel}"
                text = change(alert, news, mentions)
                self._call(
                    "chat_postMessage",
                    text=text,
                    reply_broadcast=True,
                    **_in_thread(place),
                    **_QUIET,
                )
            else:
                text, message = blocks(alert, mentions)
                sent = self._call(
                    "chat_postMessage", channel=self.channel, text=text, blocks=message, **_QUIET
                )
                place = {key: str(sent[key]) for key in ("channel", "ts")}
                summary = f"sent to {channel}"
            delivered = full_receipt(alert, place)
            missed = self._thread(alert, delivered, files)
            return Delivery(delivered, "; ".join([summary, *missed]))
        except Exception as error:
            return Delivery(delivered, self.scrub(explain(error)), failed=True)

    def digest(self, result: RunResult) -> Delivery:
        try:
            self._call("chat_postMessage", channel=self.channel, text=digest(result), **_QUIET)
        except Exception as error:
            return Delivery(Receipt(), self.scrub(explain(error)), failed=True)
        return Delivery(Receipt(), f"digest sent to {shown(self.channel)}")

    def _updated(self, alert: Alert, place: Mapping[str, str]) -> str | None:
        """Update the message and return what was done; None if the message no longer exists."""
        text, message = blocks(alert)
        try:
            self._call(
                "chat_update", channel=place["channel"], ts=place["ts"], text=text, blocks=message
            )
        except SlackRefusedError as refusal:
            if refusal.code in _GONE:
                return None
            if refusal.code in _FIXED:
                return f"cannot be updated ({refusal.code})"
            raise
        return "updated"

    def _thread(self, alert: Alert, receipt: Receipt, files: Files) -> list[str]:
        """Post details and files below the message; return the problems.

        The message itself is there.
        """
        if alert.result is None or alert.over:
            return []
        text, message = details(alert.result)
        where = _in_thread(receipt.place)
        picture = {
            "filename": "busbw.png",
            "content": files.picture,
            "title": "busbw over message size",
        }
        report = {"filename": "report.html", "content": files.report, "title": "Report"}
        uploads = [
            upload
            for upload in ({**picture, "alt_txt": files.described}, report)
            if upload["content"]
        ]
        problems = [
            self._tried("details", "chat_postMessage", text=text, blocks=message, **where, **_QUIET)
        ]
        if uploads:
            problems.append(self._tried("files", "files_upload_v2", file_uploads=uploads, **where))
        return [problem for problem in problems if problem]

    def _tried(self, part: str, method: str, **arguments: Any) -> str | None:
        try:
            self._call(method, **arguments)
        except SlackRefusedError as refusal:
            scope = (
                "; give the app the scope files:write" if refusal.code == "missing_scope" else ""
            )
            return f"{part} not attached: {refusal.code}{scope}"
        except Exception as error:
            return self.scrub(f"{part} not attached: {explain(error)}")
        return None

    def _call(self, method: str, **arguments: Any) -> Any:
        from slack_sdk.errors import SlackApiError

        try:
            return getattr(web_client(self.token, self.api_url), method)(**arguments)
        except SlackApiError as error:
            response: Any = error.response  # a mapping, or text if the answer was no JSON
            answered = response.get("error") if hasattr(response, "get") else None
            raise SlackRefusedError(
                error_code(answered, getattr(response, "status_code", None))
            ) from None


def _in_thread(place: Mapping[str, str]) -> dict[str, str]:
    return {"channel": place["channel"], "thread_ts": place["ts"]}


@dataclass(frozen=True)
class SlackWebhookSink:
    """An incoming webhook of Slack, which can only post."""

    webhook: SecretStr
    mentions: Mentions
    scrub: Clean
    name: str = "slack webhook"

    def send(self, alert: Alert, receipt: Receipt, files: Files) -> Delivery:
        news = alert.incident.changes[receipt.reported :]
        if not news:
            return Delivery(receipt, "nothing new")
        mentions = mentions_for(alert.incident, self.mentions)
        text, message = (
            blocks(alert, mentions)
            if not receipt.reported
            else (change(alert, news, mentions), None)
        )
        try:
            self._send(text, message)
        except Exception as error:
            return Delivery(receipt, self.scrub(explain(error)), failed=True)
        return Delivery(full_receipt(alert, {}), "sent to the webhook's channel")

    def digest(self, result: RunResult) -> Delivery:
        try:
            self._send(digest(result), None)
        except Exception as error:
            return Delivery(Receipt(), self.scrub(explain(error)), failed=True)
        return Delivery(Receipt(), "digest sent to the webhook's channel")

    def _send(self, text: str, message: list[Block] | None) -> None:
        answer = webhook_client(self.webhook).send(text=text, blocks=message, unfurl_links=False)
        if answer.status_code != 200:
            raise SlackRefusedError(error_code(answer.body, answer.status_code))
