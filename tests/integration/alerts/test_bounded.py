"""Receivers that answer slowly or without end: the process of a sink ends, and the run goes on."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from pydantic import SecretStr

from seatrial.alerts.alert import Alert
from seatrial.alerts.settings import AlertSettings
from seatrial.history.incident import Receipt, advance, outcome_of
from seatrial.tasks.sinks import TOO_LARGE, Delivery, Files
from seatrial.tasks.sinks.bounded import BoundedSink
from seatrial.tasks.sinks.configured import AppriseSink, WebhookSink
from seatrial.tasks.sinks.slack import SlackSink, SlackWebhookSink
from tests import nights
from tests.integration.alerts.conftest import no_proxy
from tests.integration.loopback import web_server
from tests.slack_server import TOKEN, limited, slack_server

SCRUB = AlertSettings().scrub
SINKS: dict[str, Callable[[str], Any]] = {
    "webhook": lambda url: WebhookSink(SecretStr(url), SCRUB),
    "slack": lambda url: SlackWebhookSink(SecretStr(url), {}, SCRUB),
    "apprise": lambda url: AppriseSink(SecretStr(url.replace("http://", "json://")), SCRUB),
}
# In apprise's own words
SUMMARIES = {
    "webhook": TOO_LARGE,
    "slack": f"Slack: {TOO_LARGE}",
    "apprise": "raised an exception",
}


@contextmanager
def answering(body: Iterator[bytes]) -> Iterator[str]:
    """Yield the address of a receiver that answers every request with these bytes."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            try:
                for part in body:
                    self.wfile.write(part)
                    self.wfile.flush()
            except OSError:
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    with web_server(Handler) as port:
        yield f"http://127.0.0.1:{port}/hook"


def digest(sink: BoundedSink) -> Delivery:
    return sink.digest(nights.good(1))


@pytest.mark.parametrize("kind", SINKS)
def test_a_receiver_that_never_finishes_is_reported(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_proxy(monkeypatch)

    def flood() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        while True:
            yield bytes(1 << 20)

    with answering(flood()) as url:
        delivery = digest(BoundedSink(SINKS[kind](url)))
    assert delivery.failed
    assert SUMMARIES[kind] in delivery.summary


def test_a_receiver_that_answers_byte_by_byte_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte comes within the time limit of a read, and the head of the answer never ends."""
    no_proxy(monkeypatch)
    over = threading.Event()

    def drip() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n"
        while not over.wait(0.1):
            yield b"X"

    with answering(drip()) as url:
        delivery = digest(BoundedSink(SINKS["webhook"](url), limit_s=3))
        over.set()
    assert delivery == Delivery(Receipt(), "not delivered within 3 s", failed=True)


def test_message_that_slack_has_is_not_sent_again_when_its_files_take_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_proxy(monkeypatch)
    run = nights.bad(1)
    (incident,) = advance([], run.cluster, run.suite, outcome_of(run), ["slack #alerts"])
    with slack_server() as slack:
        slack.plan("files.getUploadURLExternal", limited("30"))
        sink = SlackSink(SecretStr(TOKEN), "alerts", f"{slack.url}/api", {}, SCRUB)
        delivery = BoundedSink(sink, limit_s=4).send(
            Alert(incident, run), Receipt(), Files(report=b"the report")
        )
        (message,) = slack.posted
    place = {"channel": message.channel, "ts": message.ts}
    assert delivery == Delivery(
        Receipt(1, place), "sent to #alerts; files not attached: not delivered within 4 s"
    )


def test_delivered_digest_returns_its_receipt(monkeypatch: pytest.MonkeyPatch) -> None:
    no_proxy(monkeypatch)
    with answering(iter([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])) as url:
        assert digest(BoundedSink(SINKS["webhook"](url))) == Delivery(Receipt(), "digest sent")
