"""The sinks for sites without Slack, against a real SMTP server and a real receiver of JSON on this
machine.
"""

import json
import socket
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope
from pydantic import SecretStr

from seatrial.alerts.settings import AlertSettings
from seatrial.config.notify import Notify
from seatrial.history.store import Store
from seatrial.model.reason import uncoded
from seatrial.tasks.notify import notify, watch
from tests import nights
from tests.integration.alerts.conftest import CLUSTER, no_log_tells, no_proxy
from tests.integration.loopback import web_server

# On the loopback interface, for a test
pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH")
PASSWORD = "not-a-real-swordfish"


@dataclass
class Mailbox:
    """What a mail server took, and with whose login."""

    letters: list[Any] = field(default_factory=list)
    refuse: str = ""
    most_bytes: int = 1 << 20

    async def handle_DATA(self, _server: object, _session: object, envelope: Envelope) -> str:
        if self.refuse:
            return self.refuse
        assert isinstance(envelope.content, bytes)
        if len(envelope.content) > self.most_bytes:
            return "552 5.3.4 message is too large"
        self.letters.append(message_from_bytes(envelope.content, policy=default))
        return "250 OK"


def _authenticate(
    _server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any
) -> AuthResult:
    return AuthResult(success=data.password == PASSWORD.encode())


@pytest.fixture
def mail() -> Iterator[tuple[Mailbox, AlertSettings]]:
    box = Mailbox()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Controller(
        box,
        hostname="127.0.0.1",
        port=port,
        authenticator=_authenticate,
        auth_require_tls=False,
        auth_required=True,
    )
    server.start()
    address = f"mailto://ops:{PASSWORD}@127.0.0.1:{port}?from=seatrial@example.com&to=ops@example.com&mode=insecure"
    try:
        yield box, AlertSettings(urls=(SecretStr(address),))
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def _no_secret_in_any_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with no_log_tells(caplog, PASSWORD):
        yield


def body(letter: EmailMessage) -> str:
    part = letter.get_body(("plain", "html"))
    assert part
    return str(part.get_content())


def test_mails_of_one_incident_report_news_in_one_thread(
    mail: tuple[Mailbox, AlertSettings], store: Store, tmp_path: Path
) -> None:
    box, settings = mail
    (tmp_path / "report.html").write_text("<!doctype html>the report")
    for result in (nights.good(0), nights.bad(1), nights.bad(2), nights.good(3), nights.good(4)):
        store.save(result, tmp_path)
        notified = notify(result, CLUSTER, store, settings, tmp_path / "report.html")
        assert not notified.failed, notified.summary
    first, last = box.letters
    assert first["subject"].startswith("seatrial: h100-east fails: node-5 (97 % sure): every pair")
    assert first["to"] == "ops@example.com"
    assert "node-5 (10.20.0.16), 97 % sure" in body(first)
    assert "205 GB/s, expected 364 – 410 GB/s (catalog)" in body(first)
    attached = {
        part.get_filename(): part.get_payload(decode=True) for part in first.iter_attachments()
    }
    assert attached["busbw.png"].startswith(b"\x89PNG")
    assert b"the report" in attached["report.html"]
    assert last["subject"] == "seatrial: h100-east recovered: pass again after 2 runs, worst fail"
    assert first["references"] == last["references"] != ""


def test_log_text_adds_no_html_or_headers_to_a_mail(mail: tuple[Mailbox, AlertSettings]) -> None:
    box, settings = mail
    evil = (
        "<script>alert(1)</script> <a href='https://evil.example.com'>ok</a>\r\nBcc: "
        "all@example.com"
    )
    assert not notify(
        nights.bad(1, reason=uncoded(evil), cluster="east\r\nBcc: all@example.com"),
        CLUSTER,
        None,
        settings,
    ).failed
    (letter,) = box.letters
    assert letter["bcc"] is None
    assert "‹script›" in body(letter)
    texts = [part.get_content() for part in letter.walk() if part.get_content_maintype() == "text"]
    # Apprise before 2 writes HTML too
    assert not any("<script" in text or "<a " in text for text in texts)


def test_a_mail_server_that_refuses_is_quoted_and_tried_again(
    mail: tuple[Mailbox, AlertSettings], store: Store
) -> None:
    box, settings = mail
    box.refuse = "550 no such user"
    notified = notify(nights.bad(1), CLUSTER, store, settings)
    assert notified.failed
    assert "no such user" in notified.summary
    assert PASSWORD not in notified.summary
    box.refuse = ""
    assert not notify(nights.bad(2), CLUSTER, store, settings).failed
    assert box.letters[0]["subject"].startswith(
        "seatrial: h100-east fails (2 runs): node-5 (97 % sure)"
    )


def test_a_mail_that_is_too_large_is_sent_without_the_report(
    mail: tuple[Mailbox, AlertSettings], store: Store, tmp_path: Path
) -> None:
    box, settings = mail
    box.most_bytes = 10_000
    (tmp_path / "report.html").write_text("the report" * 1000)
    notified = notify(nights.bad(1), CLUSTER, store, settings, tmp_path / "report.html")
    assert not notified.failed, notified.summary
    assert "sent without the curve and the report: " in notified.summary
    assert "message is too large" in notified.summary
    (letter,) = box.letters
    assert "node-5 (10.20.0.16), 97 % sure" in body(letter)
    assert [*letter.iter_attachments()] == []


def test_an_unreachable_mail_server_is_reported(store: Store) -> None:
    nobody = (
        f"mailto://ops:{PASSWORD}@127.0.0.1:9?from=a@example.com&to=b@example.com&mode=insecure"
    )
    notified = notify(nights.bad(1), CLUSTER, store, AlertSettings(urls=(SecretStr(nobody),)))
    assert notified.failed
    assert "Connection refused" in notified.summary
    assert PASSWORD not in notified.summary


@dataclass
class Receiver:
    """What takes JSON; `statuses` are its answers before it answers well."""

    url: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    statuses: deque[int] = field(default_factory=deque)
    calls: int = 0
    retry_after: str = "0"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    no_proxy(monkeypatch)
    box = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            box.calls += 1
            status = box.statuses.popleft() if box.statuses else 202
            if status == 202:
                box.events.append(json.loads(content))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            if status == 429:
                self.send_header("Retry-After", box.retry_after)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with web_server(Handler) as port:
        box.url = f"http://127.0.0.1:{port}/hook/{PASSWORD}"
        yield box


@pytest.mark.parametrize("retry_after", ["0", "0.5"])
def test_a_busy_webhook_is_tried_again(receiver: Receiver, retry_after: str) -> None:
    receiver.retry_after = retry_after
    receiver.statuses.extend([429, 429])
    notified = notify(nights.bad(1), CLUSTER, None, AlertSettings(webhook=SecretStr(receiver.url)))
    assert (notified.summary, receiver.calls) == ("webhook: sent", 3)


def test_a_webhook_gets_events(receiver: Receiver, store: Store) -> None:
    settings = AlertSettings(webhook=SecretStr(receiver.url))
    for result in (
        nights.good(0),
        nights.bad(1),
        nights.bad(2),
        nights.bad(3, suspects=nights.suspected("n1")),
        nights.good(4),
    ):
        store.save(result, Path("/gone"))
        assert not notify(result, CLUSTER, store, settings).failed
    opened, changed, closed = receiver.events
    assert [e["event"] for e in receiver.events] == ["opened", "changed", "closed"]
    assert (opened["schema"], opened["incident"]["verdict"], opened["run_id"]) == (
        1,
        "fail",
        "run-1",
    )
    assert opened["suspects"][0]["name"] == "node-5"
    assert opened["judgements"][0]["metric"] == "busbw_plateau"
    assert len(opened["judgements"]) == 3
    assert changed["news"] == ["new suspect: n1"]
    assert closed["text"].startswith("h100-east recovered: pass again after 3 runs, worst fail")
    assert closed["incident"]["id"] == opened["incident"]["id"]
    assert (closed["run_id"], closed["suspects"]) == ("run-4", [])


def test_a_resolved_incident_names_the_run_that_ended_it(
    receiver: Receiver, store: Store, tmp_path: Path
) -> None:
    """Also where a later run tells it, as the receiver was not there."""
    site = CLUSTER.model_copy(
        update={"notify": Notify(report_url="https://reports.example.com/{run_id}")}
    )
    settings = AlertSettings(webhook=SecretStr(receiver.url))
    for result, statuses in ((nights.bad(1), []), (nights.good(2), [404]), (nights.good(3), [])):
        receiver.statuses.extend(statuses)
        store.save(result, tmp_path)
        notify(result, site, store, settings)
    opened, closed = receiver.events
    assert [e["run_id"] for e in (opened, closed)] == ["run-1", "run-2"]
    assert closed["links"]["report"] == "https://reports.example.com/run-2"


def test_alert_about_an_overdue_run_has_no_run_id(
    receiver: Receiver, store: Store, tmp_path: Path
) -> None:
    settings = AlertSettings(webhook=SecretStr(receiver.url))
    earlier = nights.bad(0)  # told nobody: it has nothing to do with the silence
    store.save(earlier, tmp_path)
    for _ in range(2):
        watch(CLUSTER, "nightly", timedelta(hours=26), store, settings)
    store.save(nights.good(1), tmp_path)
    notify(nights.good(1), CLUSTER, store, settings)
    opened, closed = receiver.events
    assert (opened["run_id"], opened["suspects"], opened["judgements"]) == (None, [], [])
    assert "the last run, run-0, ended " in opened["incident"]["reason"]
    assert (closed["run_id"], closed["text"]) == ("run-1", "h100-east: the check runs again")


def test_other_apprise_services_get_the_alert(receiver: Receiver, store: Store) -> None:
    settings = AlertSettings(urls=(SecretStr(receiver.url.replace("http://", "json://")),))
    for result in (nights.bad(1), nights.bad(2), nights.good(3)):
        notified = notify(result, CLUSTER, store, settings)
        assert not notified.failed, notified.summary
    opened, closed = receiver.events
    assert opened["title"].startswith("seatrial: h100-east fails: node-5 (97 % sure): every pair")
    assert opened["type"] == "failure"
    assert closed["type"] == "success"
    receiver.statuses.extend([500] * 9)
    notified = notify(nights.bad(4), CLUSTER, store, settings)
    assert "failed" in notified.summary.lower()
    assert PASSWORD not in notified.summary


def test_a_busy_receiver_is_tried_again(receiver: Receiver) -> None:
    receiver.statuses.extend([429, 500])
    assert not notify(
        nights.bad(1), CLUSTER, None, AlertSettings(webhook=SecretStr(receiver.url))
    ).failed
    assert (receiver.calls, len(receiver.events)) == (3, 1)


@pytest.mark.parametrize(("status", "calls"), [(404, 1), (503, 3), (302, 1)])
def test_a_refusing_receiver_is_reported(receiver: Receiver, status: int, calls: int) -> None:
    receiver.statuses.extend([status] * 9)
    notified = notify(nights.bad(1), CLUSTER, None, AlertSettings(webhook=SecretStr(receiver.url)))
    assert notified.failed
    assert notified.summary.startswith(f"webhook: FAILED HTTP {status} ")
    assert receiver.calls == calls


def test_an_unreachable_receiver_is_reported() -> None:
    notified = notify(
        nights.bad(1),
        CLUSTER,
        None,
        AlertSettings(webhook=SecretStr(f"http://127.0.0.1:9/{PASSWORD}")),
    )
    assert (
        "cannot be reached (NewConnectionError); check SEATRIAL_ALERT_WEBHOOK and the network"
        in notified.summary
    )
    assert PASSWORD not in notified.summary
