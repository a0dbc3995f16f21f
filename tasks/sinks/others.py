"""E-mail, and everything else that apprise knows (Teams, PagerDuty, Mattermost, ntfy, ...), by one address each."""

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import SecretStr

from seatrial.alerts.alert import Alert, digest, full_text, subject
from seatrial.alerts.settings import APPRISE, URLLIB3, muted
from seatrial.history.incident import Receipt
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from tasks.sinks import Delivery, Files, full_receipt

_CAUSE = "Exception: "  # how apprise begins what it was told, at the level of debugging


@dataclass(frozen=True)
class AppriseSink:
    """One address of SEATRIAL_ALERT_URLS; the address is a secret."""

    url: SecretStr
    scrub: Callable[[str], str]

    @property
    def name(self) -> str:
        """Service and host as apprise shows them, with logins masked, and a digest that distinguishes addresses.

        Without the path: in that of a receiver of JSON apprise masks nothing.
        """
        masked = str(self._service().url(privacy=True)).partition("?")[0]
        digest_of_all = hashlib.sha256(self.url.get_secret_value().encode()).hexdigest()
        return f"{'/'.join(masked.split('/')[:3])} ({digest_of_all[:4]})"

    def tell(self, alert: Alert, receipt: Receipt, files: Files) -> Delivery:
        news = alert.incident.changes[receipt.reported :]
        if not news:
            return Delivery(receipt, "nothing new")
        with _attached(files) as attached:
            problem = self._notified(full_text(alert, news), subject(alert), _kind(alert), attached, _thread(alert))
        return Delivery(receipt, problem, failed=True) if problem else Delivery(full_receipt(alert, {}), "sent")

    def digest(self, result: RunResult) -> Delivery:
        problem = self._notified(digest(result), "seatrial", "info", [], None)
        return Delivery(Receipt(), problem or "digest sent", failed=bool(problem))

    def _notified(self, body: str, title: str, kind: str, attached: list[str], thread: str | None) -> str | None:
        """Returns what went wrong, if anything."""
        import apprise
        from apprise.plugins.email import NotifyEmail

        service, sender = self._service(), apprise.Apprise()
        sender.add(service)
        if thread and isinstance(service, NotifyEmail):
            service.headers |= {"References": thread, "In-Reply-To": thread}
        files = attached if service.attachment_support else None
        with muted(URLLIB3), _listened() as messages:
            try:
                # As text: what is HTML to the service is escaped on the way, and letters hold nothing that is Markdown.
                text, as_kind = apprise.NotifyFormat.TEXT, apprise.NotifyType(kind)
                if sender.notify(body=body, title=title, notify_type=as_kind, attach=files or None, body_format=text):
                    return None
            except Exception as error:
                messages.append(f"{type(error).__name__}: {error}")
        return self.scrub(" ".join(dict.fromkeys(messages)) or "apprise did not say why")

    def _service(self) -> Any:
        import apprise

        with muted(APPRISE):
            return apprise.Apprise.instantiate(self.url.get_secret_value())


def _kind(alert: Alert) -> str:
    if alert.over:
        return "success"
    return "failure" if alert.incident.verdict in (Verdict.FAIL, Verdict.CORRUPT) else "warning"


def _thread(alert: Alert) -> str:
    """What mail programs put an incident's letters together by: the id of a letter that was never sent."""
    incident = alert.incident
    about = f"{incident.cluster}/{incident.suite}/{incident.kind}/{incident.opened.isoformat()}"
    return f"<{hashlib.sha256(about.encode()).hexdigest()[:24]}@seatrial>"


@contextmanager
def _attached(files: Files) -> Iterator[list[str]]:
    """As files with names that tell: apprise takes paths."""
    with TemporaryDirectory(prefix="seatrial-alert-") as folder:
        contents = {"busbw.png": files.picture, "report.html": files.report}
        paths = {Path(folder, name): content for name, content in contents.items() if content}
        for path, content in paths.items():
            path.write_bytes(content)
        yield [str(path) for path in paths]


@contextmanager
def _listened() -> Iterator[list[str]]:
    """Collect what apprise logs of a failure; it logs addresses too, so other handlers do not get it."""
    messages: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if record.levelno >= logging.WARNING or _CAUSE in message:
                messages.append(message.rpartition(_CAUSE)[2])

    logger, listener = logging.getLogger("apprise"), Listener()
    before = logger.level, logger.propagate
    logger.addHandler(listener)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield messages
    finally:
        logger.removeHandler(listener)
        logger.setLevel(before[0])
        logger.propagate = before[1]
