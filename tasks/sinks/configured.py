"""The receivers that the environment, Prefect Secret blocks and the cluster file configure.

Beside Slack: any receiver of JSON over HTTP (docs/alerts.md has the fields), and e-mail and
everything else that apprise knows (Teams, PagerDuty, Mattermost, ntfy, ...), by one address each.
"""

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import SecretStr

from seatrial.alerts.alert import SCHEMA, Alert, digest, event, full_text, subject
from seatrial.alerts.settings import APPRISE, URLLIB3, AlertSettings, SlackSettings, muted, secret
from seatrial.config.cluster import Cluster
from seatrial.history.incident import Receipt
from seatrial.model.errors import described
from seatrial.model.result import RunResult
from seatrial.model.verdict import Verdict
from seatrial.tasks.sinks import Delivery, Files, Sink, full_receipt
from seatrial.tasks.sinks.slack import slack_sink
from seatrial.text.redact import Clean

TIMEOUT_S = 10
RETRIES = 2
MAX_WAIT_S = 10  # of what the receiver asks for: a run does not wait longer
_CAUSE = "Exception: "  # prefix of causes in apprise's debug log
log = logging.getLogger("seatrial.notify")


@dataclass(frozen=True)
class WebhookSink:
    """The receiver at SEATRIAL_ALERT_WEBHOOK; the address is a secret."""

    url: SecretStr
    scrub: Clean
    name: str = "webhook"

    def send(self, alert: Alert, receipt: Receipt, files: Files) -> Delivery:
        news = alert.incident.changes[receipt.reported :]
        if not news:
            return Delivery(receipt, "nothing new")
        problem = self._posted(event(alert, news))
        return (
            Delivery(receipt, problem, failed=True)
            if problem
            else Delivery(full_receipt(alert, {}), "sent")
        )

    def digest(self, result: RunResult) -> Delivery:
        problem = self._posted({"schema": SCHEMA, "event": "digest", "text": digest(result)})
        return Delivery(Receipt(), problem or "digest sent", failed=bool(problem))

    def _posted(self, body: dict[str, Any]) -> str | None:
        """Post `body`; return the problem, or None if it was accepted."""
        import requests
        from urllib3.exceptions import HTTPError

        try:
            with muted(URLLIB3), _session() as session:
                answer = session.post(
                    self.url.get_secret_value(), json=body, timeout=TIMEOUT_S, allow_redirects=False
                )
        except (requests.RequestException, HTTPError, ValueError) as error:
            # Requests does not wrap all of them, and those in layers that show the address
            inner = getattr(error.args[0], "reason", None) if error.args else None
            cause = type(inner or error).__name__
            return self.scrub(
                f"cannot be reached ({cause}); check SEATRIAL_ALERT_WEBHOOK and the network"
            )
        return (
            None
            if answer.ok and answer.status_code < 300
            else f"HTTP {answer.status_code} {answer.reason}"
        )


def _session() -> Any:
    """Return a session that retries while the receiver is busy, and honours its Retry-After."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import Retry
    from urllib3.exceptions import InvalidHeader

    class Patient(Retry):
        def get_retry_after(self, response: Any) -> float | None:
            try:
                after = super().get_retry_after(response)
            except InvalidHeader:  # such as a fraction of a second
                after = None
            return None if after is None else min(after, MAX_WAIT_S)

    retries = Patient(
        RETRIES,
        # A POST too: a receiver knows a repeated event by incident and changes
        allowed_methods=None,
        status_forcelist=(429, 500, 502, 503, 504),
        backoff_factor=0.2,
        raise_on_status=False,
    )
    session = requests.Session()
    session.mount("http://", HTTPAdapter(max_retries=retries))
    session.mount("https://", HTTPAdapter(max_retries=retries))
    return session


@dataclass(frozen=True)
class AppriseSink:
    """One address of SEATRIAL_ALERT_URLS; the address is a secret."""

    url: SecretStr
    scrub: Clean

    @property
    def name(self) -> str:
        """Service and host as apprise shows them, with logins masked, and a digest that
        distinguishes addresses.

        Without the path: in that of a receiver of JSON apprise masks nothing.
        """
        masked = str(self._service().url(privacy=True)).partition("?")[0]
        digest_of_all = hashlib.sha256(self.url.get_secret_value().encode()).hexdigest()
        return f"{'/'.join(masked.split('/')[:3])} ({digest_of_all[:4]})"

    def send(self, alert: Alert, receipt: Receipt, files: Files) -> Delivery:
        news = alert.incident.changes[receipt.reported :]
        if not news:
            return Delivery(receipt, "nothing new")
        notified = partial(
            self._notified, full_text(alert, news), subject(alert), _kind(alert), _thread(alert)
        )
        summary = "sent"
        with _attached(files) as attached:
            problem = notified(attached)
        if problem and attached:  # they may be what is refused: many mail servers take 10 MB
            summary = f"sent without the curve and the report: {problem}"
            problem = notified([])
        return (
            Delivery(receipt, problem, failed=True)
            if problem
            else Delivery(full_receipt(alert, {}), summary)
        )

    def digest(self, result: RunResult) -> Delivery:
        problem = self._notified(digest(result), "seatrial", "info", None, [])
        return Delivery(Receipt(), problem or "digest sent", failed=bool(problem))

    def _notified(
        self, body: str, title: str, kind: str, thread: str | None, attached: list[str]
    ) -> str | None:
        """Send a message; return the problem, or None if it was accepted."""
        import apprise
        from apprise.plugins.email import NotifyEmail

        service = self._service()
        sender = apprise.Apprise()
        sender.add(service)
        if thread and isinstance(service, NotifyEmail):
            service.headers |= {"References": thread, "In-Reply-To": thread}
        files = attached if service.attachment_support else None
        with muted(URLLIB3), _captured_log() as messages:
            try:
                # As text: what is HTML to the service is escaped on the way, and letters hold
                # nothing that is Markdown.
                text = apprise.NotifyFormat.TEXT
                as_kind = apprise.NotifyType(kind)
                if sender.notify(
                    body=body,
                    title=title,
                    notify_type=as_kind,
                    attach=files or None,
                    body_format=text,
                ):
                    return None
            except Exception as error:
                messages.append(described(error))
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
    """Return the message id that threads the mails of an incident; no mail has it."""
    incident = alert.incident
    about = f"{incident.cluster}/{incident.suite}/{incident.kind}/{incident.opened.isoformat()}"
    return f"<{hashlib.sha256(about.encode()).hexdigest()[:24]}@seatrial>"


@contextmanager
def _attached(files: Files) -> Iterator[list[str]]:
    """Yield the paths of the attachments as named temporary files, since apprise takes paths."""
    with TemporaryDirectory(prefix="seatrial-alert-") as folder:
        contents = {"busbw.png": files.picture, "report.html": files.report}
        paths = {Path(folder, name): content for name, content in contents.items() if content}
        for path, content in paths.items():
            path.write_bytes(content)
        yield [str(path) for path in paths]


@contextmanager
def _captured_log() -> Iterator[list[str]]:
    """Collect what apprise logs of a failure; it logs addresses too, so other handlers do not get
    it.
    """
    messages: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if record.levelno >= logging.WARNING or _CAUSE in message:
                messages.append(message.rpartition(_CAUSE)[2])

    logger = logging.getLogger("apprise")
    listener = Listener()
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


def sinks_of(settings: AlertSettings, cluster: Cluster) -> tuple[list[Sink], str | None]:
    """Return the sinks, and what is wrong with the settings of others, if anything."""
    scrub = settings.scrub
    legal, malformed = settings.legal()
    slack = legal.slack
    incomplete = slack.problem() if slack else None
    mentions = {str(verdict): who for verdict, who in cluster.notify.slack.mentions.items()}
    sinks: list[Sink] = [slack_sink(slack, mentions, scrub)] if slack and not incomplete else []
    sinks += [WebhookSink(legal.webhook, scrub)] if legal.webhook else []
    sinks += [AppriseSink(url, scrub) for url in legal.urls]
    return sinks, "; ".join(problem for problem in (malformed, incomplete) if problem) or None


def settings_of(cluster: Cluster) -> AlertSettings:
    """Read the settings from the environment, else from the Prefect Secret blocks of the same
    names.
    """
    own = AlertSettings.from_env(cluster.notify)
    slack = own.slack or _slack_of_blocks(cluster)
    urls = own.urls or tuple(
        SecretStr(url) for url in (_block("seatrial-alert-urls") or "").split()
    )
    return AlertSettings(slack, own.webhook or secret(_block("seatrial-alert-webhook")), urls)


def _slack_of_blocks(cluster: Cluster) -> SlackSettings | None:
    settings = SlackSettings(
        token=secret(_block("seatrial-slack-token")),
        channel=os.environ.get("SEATRIAL_SLACK_CHANNEL", "").strip()
        or cluster.notify.slack.channel,
        webhook=secret(_block("seatrial-slack-webhook")),
        api_url=os.environ.get("SEATRIAL_SLACK_API_URL", "").strip() or None,
    )
    return settings if settings.token or settings.webhook else None


def _block(name: str) -> str | None:
    """Return the value of a Secret block; None if it does not exist."""
    from prefect.blocks.system import Secret

    try:
        return str(Secret.load(name, _sync=True).get())  # type: ignore[call-arg, union-attr]
    except Exception as error:
        log.debug("no Secret block %s (%s)", name, type(error).__name__)
        return None
