"""Slack by a bot token: one message per incident, kept up to date; what changes is a reply that the channel sees too.

The picture, the report and the details go into the message's thread. Scopes: chat:write, and files:write for the files.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from seatrial.alerts.alert import Alert, mentions_for
from seatrial.alerts.settings import SlackSettings
from seatrial.alerts.slack import Block, blocks, change, details, digest
from seatrial.history.incident import Receipt
from seatrial.model.result import RunResult
from tasks.sinks import Delivery, Files, full_receipt
from tasks.sinks.slack_client import SlackRefusedError, code, explain, shown, web_client, webhook_client, word

_QUIET = {"unfurl_links": False, "unfurl_media": False}
_GONE = ("message_not_found", "channel_not_found")  # somebody deleted it
_FIXED = ("cant_update_message", "edit_window_closed")  # it is there: the workspace's rules, or it is another app's


def slack_sink(
    settings: SlackSettings, mentions: Mapping[str, Sequence[str]], scrub: Callable[[str], str]
) -> "SlackSink | SlackWebhookSink":
    """By token where both ways are set, as only that can update, thread and attach."""
    if settings.token is not None and settings.channel is not None:
        return SlackSink(settings.token, settings.channel, settings.api_url, mentions, scrub)
    assert settings.webhook is not None  # SlackSettings.problem has said so
    return SlackWebhookSink(settings.webhook, mentions, scrub)


@dataclass(frozen=True)
class SlackSink:
    """A channel."""

    token: SecretStr
    channel: str
    api_url: str | None
    mentions: Mapping[str, Sequence[str]]
    scrub: Callable[[str], str]

    @property
    def name(self) -> str:
        return f"slack {shown(self.channel)}"

    def tell(self, alert: Alert, receipt: Receipt, files: Files) -> Delivery:
        delivered = receipt
        try:
            updated = self._updated(alert, receipt.place) if "ts" in receipt.place else None
            if updated is None:
                delivered = full_receipt(alert, self._post(alert))
                return Delivery(
                    delivered, self._joined(f"sent to {shown(self.channel)}", self._thread(alert, delivered, files))
                )
            if not (news := alert.incident.changes[receipt.reported :]):
                return Delivery(receipt, f"message in {shown(self.channel)} {updated}")
            self._reply(alert, receipt.place, news)
            delivered = full_receipt(alert, receipt.place)
            return Delivery(
                delivered, self._joined(f"told {shown(self.channel)} the change", self._thread(alert, delivered, files))
            )
        except Exception as error:
            return Delivery(delivered, self.scrub(explain(error)), failed=True)

    def digest(self, result: RunResult) -> Delivery:
        try:
            self._call("chat_postMessage", channel=self.channel, text=digest(result), **_QUIET)
        except Exception as error:
            return Delivery(Receipt(), self.scrub(explain(error)), failed=True)
        return Delivery(Receipt(), f"digest sent to {shown(self.channel)}")

    def _post(self, alert: Alert) -> dict[str, str]:
        text, message = blocks(alert, mentions_for(alert.incident, self.mentions))
        sent = self._call("chat_postMessage", channel=self.channel, text=text, blocks=message, **_QUIET)
        return {"channel": str(sent["channel"]), "ts": str(sent["ts"])}

    def _updated(self, alert: Alert, place: Mapping[str, str]) -> str | None:
        """Update the message and return what was done; None if the message no longer exists."""
        text, message = blocks(alert)
        try:
            self._call("chat_update", channel=place["channel"], ts=place["ts"], text=text, blocks=message)
        except SlackRefusedError as refusal:
            if refusal.code in _GONE:
                return None
            if refusal.code in _FIXED:
                return f"cannot be updated ({refusal.code})"
            raise
        return "updated"

    def _reply(self, alert: Alert, place: Mapping[str, str], news: Sequence[str]) -> None:
        text = change(alert, news, mentions_for(alert.incident, self.mentions))
        where = {"channel": place["channel"], "thread_ts": place["ts"], "reply_broadcast": True}
        self._call("chat_postMessage", text=text, **where, **_QUIET)

    def _thread(self, alert: Alert, receipt: Receipt, files: Files) -> str | None:
        """Details and files below the message; returns what could not be put there. The message itself is there."""
        if alert.result is None or alert.over:
            return None
        text, message = details(alert.result)
        missed = [
            self._tried("details", lambda: self._details(receipt.place, text, message)),
            self._tried("files", lambda: self._upload(receipt.place, files)),
        ]
        return "; ".join(problem for problem in missed if problem) or None

    def _details(self, place: Mapping[str, str], text: str, message: list[Block]) -> None:
        where = {"channel": place["channel"], "thread_ts": place["ts"]}
        self._call("chat_postMessage", text=text, blocks=message, **where, **_QUIET)

    def _upload(self, place: Mapping[str, str], files: Files) -> None:
        uploads: list[dict[str, Any]] = []
        if files.picture:
            uploads.append({"filename": "busbw.png", "content": files.picture, "title": "busbw over message size"})
            uploads[0]["alt_txt"] = files.described
        if files.report:
            uploads.append({"filename": "report.html", "content": files.report, "title": "Report"})
        if uploads:
            where = {"channel": place["channel"], "thread_ts": place["ts"]}
            self._call("files_upload_v2", file_uploads=uploads, **where)

    def _tried(self, what: str, put: Callable[[], None]) -> str | None:
        try:
            put()
        except SlackRefusedError as refusal:
            scope = "; give the app the scope files:write" if refusal.code == "missing_scope" else ""
            return f"{what} not attached: {refusal.code}{scope}"
        except Exception as error:
            return self.scrub(f"{what} not attached: {explain(error)}")
        return None

    def _call(self, method: str, **given: Any) -> Any:
        from slack_sdk.errors import SlackApiError

        try:
            return getattr(web_client(self.token, self.api_url), method)(**given)
        except SlackApiError as error:
            raise SlackRefusedError(code(error)) from None

    @staticmethod
    def _joined(summary: str, missed: str | None) -> str:
        return f"{summary}; {missed}" if missed else summary


@dataclass(frozen=True)
class SlackWebhookSink:
    """An incoming webhook, which can only post: what is new, and nothing where nothing is."""

    webhook: SecretStr
    mentions: Mapping[str, Sequence[str]]
    scrub: Callable[[str], str]
    name: str = "slack webhook"

    def tell(self, alert: Alert, receipt: Receipt, files: Files) -> Delivery:
        news = alert.incident.changes[receipt.reported :]
        if not news:
            return Delivery(receipt, "nothing new")
        mentions = mentions_for(alert.incident, self.mentions)
        text, message = blocks(alert, mentions) if not receipt.reported else (change(alert, news, mentions), None)
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
            raise SlackRefusedError(word(answer.body, answer.status_code))
