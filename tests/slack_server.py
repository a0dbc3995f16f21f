"""A small Slack: its Web API, its upload addresses and its incoming webhooks, as strict as the real
one.

It keeps messages as a channel shows them, and refuses what Slack refuses: tokens and scopes it does
not know, channels that are not there, blocks beyond the limits. `plan` makes it answer otherwise:
429, 500, another error, or nothing. Errors and limits: https://docs.slack.dev/reference/methods and
https://docs.slack.dev/reference/block-kit/blocks.
"""

import json
import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs

from tests.integration.loopback import web_server

TOKEN = "xoxb-not-a-real-token"
PATH = "/services/T0/B0/not-a-real-hook"
CHANNELS = {"alerts": "C024BE91L", "gpu-east": "C0EAST123"}
_SCOPES = {
    "chat.postMessage": "chat:write",
    "chat.update": "chat:write",
    "files.getUploadURLExternal": "files:write",
    "files.completeUploadExternal": "files:write",
}
_LIMITS = {"header": 150, "section": 3000, "context": 3000}
_TOTAL_CHARS = 13_000


@dataclass
class Answer:
    """What the server says to one request."""

    body: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False


def refusal(error: str, status: int = 200) -> Answer:
    return Answer(json.dumps({"ok": False, "error": error}), status)


def limited(retry_after: str = "0") -> Answer:
    return Answer('{"ok": false, "error": "ratelimited"}', 429, {"Retry-After": retry_after})


@dataclass
class Message:
    """A message as the channel shows it; `thread` is the one it replies to."""

    channel: str
    ts: str
    text: str
    blocks: list[dict[str, Any]]
    thread: str | None = None
    broadcast: bool = False
    edits: int = 0

    @property
    def shown(self) -> str:
        return json.dumps(self.blocks, ensure_ascii=False) if self.blocks else self.text


@dataclass
class Slack:
    """What it was sent and what it shows; `scopes` are the app's.

    `arrived`: it has read a request.
    """

    url: str = ""
    scopes: set[str] = field(default_factory=lambda: {"chat:write", "files:write"})
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    planned: dict[str, deque[Answer]] = field(default_factory=dict)
    messages: dict[str, Message] = field(default_factory=dict)
    hooked: list[dict[str, Any]] = field(default_factory=list)
    uploads: dict[str, dict[str, Any]] = field(default_factory=dict)
    arrived: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def plan(self, method: str, *answers: Answer) -> None:
        self.planned[method] = deque(answers)

    def sent(self, method: str) -> list[dict[str, Any]]:
        return [decoded(headers, body) for name, headers, body in self.requests if name == method]

    @property
    def posted(self) -> list[Message]:
        """The messages of the channels, without what is in their threads."""
        return [message for message in self.messages.values() if message.thread is None]

    def replies(self, message: Message) -> list[Message]:
        return [reply for reply in self.messages.values() if reply.thread == message.ts]

    def files(self, message: Message) -> dict[str, bytes]:
        """What was shared in the message's thread, by name."""
        return {
            f["filename"]: f["data"] for f in self.uploads.values() if f.get("thread") == message.ts
        }

    def answer(self, method: str, headers: dict[str, str], body: bytes) -> Answer:
        if planned := self.planned.get(method):
            return planned.popleft()
        if method.startswith("/upload/"):
            return self._take_file(method.removeprefix("/upload/"), body)
        if method == PATH:
            return self._take_hook(decoded(headers, body))
        return self._call(method, headers, decoded(headers, body))

    def _call(self, method: str, headers: dict[str, str], request: dict[str, Any]) -> Answer:
        if headers.get("authorization") != f"Bearer {TOKEN}":
            return refusal("invalid_auth" if "authorization" in headers else "not_authed")
        if method not in _SCOPES:
            return refusal("unknown_method")
        if _SCOPES[method] not in self.scopes:
            return refusal("missing_scope")
        done = getattr(self, f"_{method.replace('.', '_')}")(request)
        return refusal(done) if isinstance(done, str) else Answer(json.dumps({"ok": True, **done}))

    def _chat_postMessage(self, request: dict[str, Any]) -> dict[str, Any] | str:
        channel = _channel(request.get("channel", ""))
        blocks = _loaded(request.get("blocks"))
        thread = request.get("thread_ts")
        if channel is None:
            return "channel_not_found"
        if problem := block_problem(blocks) or _text_problem(request.get("text", ""), blocks):
            return problem
        if thread and thread not in self.messages:
            return "thread_not_found"
        ts = f"1700000000.{len(self.messages) + 1:06}"
        broadcast = str(request.get("reply_broadcast", "")).lower() in ("true", "1")
        self.messages[ts] = Message(channel, ts, request.get("text", ""), blocks, thread, broadcast)
        return {"channel": channel, "ts": ts}

    def _chat_update(self, request: dict[str, Any]) -> dict[str, Any] | str:
        message = self.messages.get(request.get("ts", ""))
        blocks = _loaded(request.get("blocks"))
        if request.get("channel") not in CHANNELS.values():
            return "channel_not_found"  # unlike posting, updating takes ids alone
        if message is None or message.channel != request["channel"]:
            return "message_not_found"
        if problem := block_problem(blocks) or _text_problem(request.get("text", ""), blocks):
            return problem
        message.text, message.blocks, message.edits = (
            request.get("text", ""),
            blocks,
            message.edits + 1,
        )
        return {"channel": message.channel, "ts": message.ts, "text": message.text}

    def _files_getUploadURLExternal(self, request: dict[str, Any]) -> dict[str, Any] | str:
        if not request.get("filename") or not int(request.get("length") or 0):
            return "invalid_arguments"
        if len(request.get("alt_txt") or "") > 1000:
            return "alt_txt_too_large"
        key = f"F{len(self.uploads) + 1}"
        self.uploads[key] = {"filename": request["filename"], "length": int(request["length"])}
        return {"upload_url": f"{self.url}/upload/{key}", "file_id": key}

    def _take_file(self, key: str, body: bytes) -> Answer:
        file = self.uploads.get(key)
        if file is None or len(body) != file["length"]:
            return Answer("bad upload", 400)
        file["data"] = body
        return Answer(f"OK - {len(body)}")

    def _files_completeUploadExternal(self, request: dict[str, Any]) -> dict[str, Any] | str:
        uploads = [self.uploads.get(entry["id"], {}) for entry in _loaded(request.get("files"))]
        if not uploads or any("data" not in file for file in uploads):
            return "file_not_found"
        if request.get("channel_id") not in CHANNELS.values():
            return "invalid_channel"
        for file in uploads:
            file["thread"] = request.get("thread_ts")
        return {"files": [{"id": entry["id"]} for entry in _loaded(request["files"])]}

    def _take_hook(self, request: dict[str, Any]) -> Answer:
        if block_problem(request.get("blocks") or []):
            return Answer("invalid_blocks", 400)
        if not request.get("text"):
            return Answer("no_text", 400)
        self.hooked.append(request)
        return Answer("ok")


def block_problem(blocks: list[dict[str, Any]]) -> str | None:
    """Slack's word for blocks it does not take, if it does not."""
    if len(blocks) > 50:
        return "invalid_blocks"
    if not all(_legal(block) for block in blocks):
        return "invalid_blocks"
    return (
        "msg_blocks_too_long"
        if sum(len(text) for block in blocks for text in texts(block)) > _TOTAL_CHARS
        else None
    )


def texts(block: dict[str, Any]) -> list[str]:
    """Every text of a block."""
    return [
        part["text"]
        for part in (*block.get("elements", ()), *((block["text"],) if "text" in block else ()))
    ]


def _legal(block: dict[str, Any]) -> bool:
    kind = block.get("type", "")
    if (
        kind not in _LIMITS
        or set(block) - {"type", "text", "elements"}
        or ("elements" in block) != (kind == "context")
    ):
        return False
    parts = block["elements"] if kind == "context" else [block.get("text", {})]
    return 0 < len(parts) <= 10 and all(
        _legal_text(part, _LIMITS[kind], kind == "header") for part in parts
    )


def _legal_text(part: dict[str, Any], limit: int, plain: bool) -> bool:
    legal = (
        {"type", "text", "emoji"}
        if part.get("type") == "plain_text"
        else {"type", "text", "verbatim"}
    )
    right = (
        part.get("type") == "plain_text" if plain else part.get("type") in ("plain_text", "mrkdwn")
    )
    return right and not set(part) - legal and 0 < len(part.get("text", "")) <= limit


def _text_problem(text: str, blocks: list[dict[str, Any]]) -> str | None:
    if not text and not blocks:
        return "no_text"
    return "msg_too_long" if len(text) > 40_000 else None


def _channel(named: str) -> str | None:
    return named if named in CHANNELS.values() else CHANNELS.get(named.removeprefix("#"))


def _loaded(value: Any) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(value) if isinstance(value, str) else value or []
    return entries


def decoded(headers: dict[str, str], body: bytes) -> dict[str, Any]:
    if headers.get("content-type", "").startswith("application/json"):
        document: dict[str, Any] = json.loads(body)
        return document
    return {key: values[0] for key, values in parse_qs(body.decode(errors="replace")).items()}


def calls_somebody(text: str) -> bool:
    """Whether mrkdwn text holds a mention or a link."""
    return bool(re.search(r"<[!@#]|<https?:", text))


@contextmanager
def slack_server() -> Iterator[Slack]:
    """A server on a free port of this machine, until the end."""
    fake = Slack()
    with web_server(_handler(fake)) as port:
        fake.url = f"http://127.0.0.1:{port}"
        try:
            yield fake
        finally:
            fake.released.set()


def _handler(fake: Slack) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            method = self.path.removeprefix("/api/").split("?")[0]
            headers = {key.lower(): value for key, value in self.headers.items()}
            fake.requests.append((method, headers, body))
            fake.arrived.set()
            answer = fake.answer(method, headers, body)
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
