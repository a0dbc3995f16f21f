"""Step `notify`: tell Slack what the run came to. Nothing that goes wrong here ever changes a run's verdict."""

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from pydantic import SecretStr

from seatrial.report.slack import Block, blocks, recovered
from seatrial.report.slack_settings import HOW_TO, SlackSettings, secret
from seatrial.report.words import label
from seatrial.result import RunResult
from seatrial.verdict import Verdict

if TYPE_CHECKING:
    from slack_sdk import WebClient
    from slack_sdk.errors import SlackApiError
    from slack_sdk.http_retry.handler import RetryHandler

log = logging.getLogger("seatrial.notify")

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


@dataclass(frozen=True, slots=True)
class _Message:
    text: str
    blocks: list[Block]
    report: Path | None


class _Refused(Exception):
    """Slack answered, and said no; `code` is its word for why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def notify(
    result: RunResult, previous: Verdict | None, settings: SlackSettings | None, report_path: Path | str | None
) -> str:
    """Tell Slack when the run is not a pass, and when it is one again. Returns what happened, on one line.

    `previous` is the verdict of the cluster's run before, None when there is none. A `report_path` that is a file is
    attached to the message's thread where the token allows it.
    """
    if settings is None:
        return f"not configured: {HOW_TO}"
    if problem := settings.problem():
        return f"not configured: {problem}"
    if result.verdict is Verdict.PASS and not recovered(result, previous):
        return f"not needed: pass after {label(previous)}" if previous else "not needed: pass, and no run before"
    report = str(report_path) if report_path else None
    text, found = blocks(result, previous, report)
    try:
        return _send(settings, _Message(text, found, _file(report)))
    except Exception as error:
        return settings.scrub(f"failed: {_explain(error)}")


def _send(settings: SlackSettings, message: _Message) -> str:
    """By token where both ways are set, as only that can attach the report."""
    if settings.token is not None and settings.channel is not None:
        return _post(settings.token, settings.channel, settings.api_url, message)
    assert settings.webhook is not None  # settings.problem() has said so
    return _post_to_webhook(settings.webhook, message)


def _post(token: SecretStr, channel: str, api_url: str | None, message: _Message) -> str:
    from slack_sdk import WebClient
    from slack_sdk.errors import SlackApiError

    client = WebClient(
        token=token.get_secret_value(),
        base_url=_base_url(api_url),
        timeout=TIMEOUT_S,
        logger=_mute(),
        retry_handlers=_retry_handlers(),
    )
    try:
        sent = client.chat_postMessage(
            channel=channel, text=message.text, blocks=message.blocks, unfurl_links=False, unfurl_media=False
        )
    except SlackApiError as error:
        raise _Refused(_code(error)) from None
    said = f"sent to {_channel(channel)}"
    if message.report is None:
        return said
    attached = _attach(client, message.report, str(sent["channel"]), str(sent["ts"]))
    return said if attached is None else f"{said}; report not attached: {attached}"


def _attach(client: "WebClient", report: Path, channel_id: str, thread: str) -> str | None:
    """Put the report into the message's thread; returns why it could not be. The message itself is already there."""
    from slack_sdk.errors import SlackApiError

    try:
        client.files_upload_v2(file=str(report), filename=report.name, channel=channel_id, thread_ts=thread)
    except SlackApiError as error:
        code = _code(error)
        return "missing_scope; give the app the scope files:write" if code == "missing_scope" else code
    except Exception as error:
        return _network(error)
    return None


def _post_to_webhook(webhook: SecretStr, message: _Message) -> str:
    from slack_sdk import WebhookClient

    client = WebhookClient(
        webhook.get_secret_value(), timeout=TIMEOUT_S, logger=_mute(), retry_handlers=_retry_handlers()
    )
    answer = client.send(text=message.text, blocks=message.blocks, unfurl_links=False)
    if answer.status_code != 200:
        raise _Refused(_word(answer.body, answer.status_code))
    return "sent to the webhook's channel"


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


def _code(error: "SlackApiError") -> str:
    """The error code of what the Web API answered; `response` is a mapping, or text where it was no JSON."""
    response: Any = error.response
    said = response.get("error") if hasattr(response, "get") else None
    return _word(said, getattr(response, "status_code", None))


def _word(said: object, status: int | None) -> str:
    """Slack's word for an error, such as invalid_auth; the HTTP status where a page or a proxy answered instead."""
    if status == 429:
        return "ratelimited"
    return said if isinstance(said, str) and re.fullmatch(r"[a-z][a-z0-9_]{1,60}", said) else f"HTTP {status}"


def _explain(error: Exception) -> str:
    if isinstance(error, _Refused):
        step = _NEXT_STEPS.get(error.code, _STATUS if error.code.startswith("HTTP 5") else "")
        return f"Slack says {error.code}; {step}" if step else f"Slack says {error.code}"
    return _network(error)


def _network(error: Exception) -> str:
    """Slack could not be reached, or was not understood."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return f"Slack did not answer within {TIMEOUT_S} s; check the network or proxy of this host"
    if isinstance(error, OSError):
        return f"Slack cannot be reached ({reason}); check the network or proxy of this host"
    return f"{type(error).__name__}: {error}"


def _channel(channel: str) -> str:
    """As people write it: #alerts; an id stays as it is."""
    is_id = channel[:1] in "CGD" and channel.isalnum() and channel.isupper()
    return channel if is_id or channel.startswith("#") else f"#{channel}"


def _base_url(api_url: str | None) -> str:
    return f"{(api_url or 'https://slack.com/api').rstrip('/')}/"


def _file(path: str | None) -> Path | None:
    return Path(path) if path and Path(path).is_file() else None


def _with_blocks(settings: SlackSettings | None) -> SlackSettings | None:
    """What the environment leaves open, from the Prefect blocks of that name; the environment wins."""
    own = settings or SlackSettings(
        channel=os.environ.get("SEATRIAL_SLACK_CHANNEL", "").strip() or None,
        api_url=os.environ.get("SEATRIAL_SLACK_API_URL", "").strip() or None,
    )
    if own.token or own.webhook:
        return own
    found = replace(own, token=_block("seatrial-slack-token"), webhook=_block("seatrial-slack-webhook"))
    return found if found.token or found.webhook else None


def _block(name: str) -> SecretStr | None:
    """The value of a Secret block, or None where there is no such block."""
    from prefect.blocks.system import Secret

    try:
        value = Secret.load(name, _sync=True).get()  # type: ignore[call-arg, union-attr]
    except Exception as error:
        log.debug("no Secret block %s (%s)", name, type(error).__name__)
        return None
    return secret(str(value))


@task(name="notify", cache_policy=NO_CACHE)
def notify_task(result: RunResult, previous: Verdict | None, report_path: Path | str | None) -> str:
    said = notify(result, previous, _with_blocks(SlackSettings.from_env()), report_path)
    log.log(logging.WARNING if said.startswith("failed") else logging.INFO, "Slack: %s", said)
    return said
