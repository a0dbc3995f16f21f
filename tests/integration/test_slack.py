"""notify against a real HTTP server on this machine that speaks Slack's Web API and incoming webhooks."""

import json
import logging
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from pydantic import SecretStr

from seatrial.report.slack_settings import SlackSettings
from seatrial.verdict import Verdict
from tasks import notify as module
from tasks.notify import notify
from tests import samples

TOKEN = "xoxb-not-a-real-token"
PATH = "/services/T0/B0/not-a-real-hook"


@dataclass
class Answer:
    """What the server says to one request."""

    body: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False


@dataclass
class Slack:
    """A small Slack: keeps what it was sent, and answers as told before it answers well."""

    url: str = ""
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    planned: dict[str, deque[Answer]] = field(default_factory=dict)
    released: threading.Event = field(default_factory=threading.Event)

    def plan(self, method: str, *answers: Answer) -> None:
        self.planned[method] = deque(answers)

    def sent(self, method: str) -> list[dict[str, Any]]:
        return [_decoded(headers, body) for name, headers, body in self.requests if name == method]

    def answer(self, method: str) -> Answer:
        planned = self.planned.get(method)
        return planned.popleft() if planned else Answer(self._good(method))

    def _good(self, method: str) -> str:
        good: dict[str, Any] = {
            "chat.postMessage": {"ok": True, "channel": "C024BE91L", "ts": "1700000000.000100"},
            "files.getUploadURLExternal": {"ok": True, "upload_url": f"{self.url}/upload/F1", "file_id": "F1"},
            "files.completeUploadExternal": {"ok": True, "files": [{"id": "F1"}]},
        }
        return json.dumps(good[method]) if method in good else "ok"


def _decoded(headers: dict[str, str], body: bytes) -> dict[str, Any]:
    if headers.get("content-type", "").startswith("application/json"):
        found: dict[str, Any] = json.loads(body)
        return found
    return {key: values[0] for key, values in parse_qs(body.decode()).items()}


def _refusal(error: str, status: int = 200) -> Answer:
    return Answer(json.dumps({"ok": False, "error": error}), status)


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slack]:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    fake = Slack()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield fake
    fake.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def _handler(fake: Slack) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            method = self.path.removeprefix("/api/").split("?")[0]
            fake.requests.append((method, {key.lower(): value for key, value in self.headers.items()}, body))
            answer = fake.answer(method)
            if answer.hang:
                fake.released.wait(20)
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body.encode())

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@pytest.fixture
def by_token(slack: Slack) -> SlackSettings:
    return SlackSettings(SecretStr(TOKEN), "alerts", api_url=f"{slack.url}/api")


@pytest.fixture
def by_webhook(slack: Slack) -> SlackSettings:
    return SlackSettings(webhook=SecretStr(f"{slack.url}{PATH}"))


@pytest.fixture(autouse=True)
def _no_secret_in_any_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    assert TOKEN not in caplog.text
    assert PATH not in caplog.text


def test_a_failure_is_posted_to_the_channel(slack: Slack, by_token: SlackSettings) -> None:
    assert notify(samples.faulty_h100(), Verdict.PASS, by_token, "/gone/report.html") == "sent to #alerts"
    (message,) = slack.sent("chat.postMessage")
    blocks = json.loads(message["blocks"]) if isinstance(message["blocks"], str) else message["blocks"]
    assert message["channel"] == "alerts"
    assert message["text"].startswith("h100-east fails (was pass)")
    assert blocks[0]["text"]["text"] == "h100-east fails (was pass)"
    assert slack.requests[0][1]["authorization"] == f"Bearer {TOKEN}"


def test_the_report_goes_into_the_thread(slack: Slack, by_token: SlackSettings, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text("<!doctype html>the report")
    assert notify(samples.faulty_h100(), None, by_token, report) == "sent to #alerts"
    (complete,) = slack.sent("files.completeUploadExternal")
    assert (complete["channel_id"], complete["thread_ts"]) == ("C024BE91L", "1700000000.000100")
    assert b"the report" in next(body for method, _, body in slack.requests if method == "/upload/F1")


def test_a_missing_scope_costs_only_the_attachment(slack: Slack, by_token: SlackSettings, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text("x")
    slack.plan("files.getUploadURLExternal", _refusal("missing_scope"))
    said = notify(samples.faulty_h100(), None, by_token, report)
    assert said == "sent to #alerts; report not attached: missing_scope; give the app the scope files:write"
    slack.plan("/upload/F1", Answer("no room", 507))
    assert notify(samples.faulty_h100(), None, by_token, report).startswith("sent to #alerts; report not attached: ")


def test_a_recovery_goes_through_the_webhook(slack: Slack, by_webhook: SlackSettings) -> None:
    assert notify(samples.healthy_local(), Verdict.FAIL, by_webhook, None) == "sent to the webhook's channel"
    (message,) = slack.sent(PATH)
    assert message["text"].startswith("local recovered: pass again after fail")


@pytest.mark.parametrize("way", ["by_token", "by_webhook"])
def test_rate_limited_then_well(slack: Slack, way: str, request: pytest.FixtureRequest) -> None:
    for method in ("chat.postMessage", PATH):
        slack.plan(method, Answer('{"ok": false, "error": "ratelimited"}', 429, {"Retry-After": "0"}))
    assert notify(samples.faulty_h100(), None, request.getfixturevalue(way), None).startswith("sent to ")
    assert len(slack.requests) == 2


@pytest.mark.parametrize("way", ["by_token", "by_webhook"])
@pytest.mark.parametrize("retry_after", ["3600", "soon"])
def test_a_long_rate_limit_is_not_waited_for(
    slack: Slack, way: str, retry_after: str, request: pytest.FixtureRequest
) -> None:
    for method in ("chat.postMessage", PATH):
        slack.plan(method, Answer('{"ok": false, "error": "ratelimited"}', 429, {"Retry-After": retry_after}))
    said = notify(samples.faulty_h100(), None, request.getfixturevalue(way), None)
    assert said == "failed: Slack says ratelimited; Slack is rate limiting this app; the next run will try again"
    assert len(slack.requests) == 1


@pytest.mark.parametrize("way", ["by_token", "by_webhook"])
def test_a_broken_slack_is_tried_again_a_few_times(
    slack: Slack, way: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slack_sdk.http_retry.handler.time.sleep", lambda _: None)
    for method in ("chat.postMessage", PATH):
        slack.plan(method, *[Answer("<html>oops</html>", 500)] * 9)
    said = notify(samples.faulty_h100(), None, request.getfixturevalue(way), None)
    assert said == "failed: Slack says HTTP 500; see https://slack-status.com and run again"
    assert len(slack.requests) == 1 + module.MAX_RETRIES


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("invalid_auth", "failed: Slack says invalid_auth; check SEATRIAL_SLACK_TOKEN"),
        (
            "channel_not_found",
            "failed: Slack says channel_not_found; "
            "check SEATRIAL_SLACK_CHANNEL; a private channel needs the app invited",
        ),
        ("brand_new_error", "failed: Slack says brand_new_error"),
    ],
)
def test_slacks_refusals_come_with_a_next_step(slack: Slack, by_token: SlackSettings, error: str, said: str) -> None:
    slack.plan("chat.postMessage", _refusal(error))
    assert notify(samples.faulty_h100(), None, by_token, None) == said


def test_a_dead_webhook_is_named(slack: Slack, by_webhook: SlackSettings) -> None:
    slack.plan(PATH, Answer("no_service", 404))
    said = notify(samples.faulty_h100(), None, by_webhook, None)
    assert said == "failed: Slack says no_service; make a new SEATRIAL_SLACK_WEBHOOK"


@pytest.mark.parametrize("way", ["by_token", "by_webhook"])
def test_a_slack_that_hangs_is_not_waited_for(
    slack: Slack, way: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.3)
    for method in ("chat.postMessage", PATH):
        slack.plan(method, *[Answer(hang=True)] * 9)
    said = notify(samples.faulty_h100(), None, request.getfixturevalue(way), None)
    assert said == "failed: Slack did not answer within 0.3 s; check the network or proxy of this host"
    assert len(slack.requests) == 1


def test_a_slack_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slack_sdk.http_retry.handler.time.sleep", lambda _: None)
    nobody = SlackSettings(SecretStr(TOKEN), "alerts", api_url="http://127.0.0.1:9/api")
    said = notify(samples.faulty_h100(), None, nobody, None)
    assert said.startswith("failed: Slack cannot be reached (")
    assert "check the network or proxy" in said
