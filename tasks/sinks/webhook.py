"""Any receiver of JSON over HTTP: one POST per thing that is new (docs/alerts.md has the fields)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from seatrial.alerts.alert import SCHEMA, Alert, digest, event
from seatrial.alerts.settings import URLLIB3, muted
from seatrial.history.incident import Receipt
from seatrial.model.result import RunResult
from tasks.sinks import Delivery, Files, full_receipt

TIMEOUT_S = 10
RETRIES = 2
MAX_WAIT_S = 10  # of what the receiver asks for: a run does not wait longer


@dataclass(frozen=True)
class WebhookSink:
    """What SEATRIAL_ALERT_WEBHOOK names; the address is a secret."""

    url: SecretStr
    scrub: Callable[[str], str]
    name: str = "webhook"

    def tell(self, alert: Alert, receipt: Receipt, files: Files) -> Delivery:
        news = alert.incident.changes[receipt.reported :]
        if not news:
            return Delivery(receipt, "nothing new")
        problem = self._posted(event(alert, news))
        return Delivery(receipt, problem, failed=True) if problem else Delivery(full_receipt(alert, {}), "sent")

    def digest(self, result: RunResult) -> Delivery:
        problem = self._posted({"schema": SCHEMA, "event": "digest", "text": digest(result)})
        return Delivery(Receipt(), problem or "digest sent", failed=bool(problem))

    def _posted(self, body: dict[str, Any]) -> str | None:
        """Returns what went wrong, if anything."""
        import requests
        from urllib3.exceptions import HTTPError

        try:
            with muted(URLLIB3), _session() as session:
                answer = session.post(self.url.get_secret_value(), json=body, timeout=TIMEOUT_S, allow_redirects=False)
        except (requests.RequestException, HTTPError, ValueError) as error:  # requests does not wrap all of them
            return self.scrub(f"cannot be reached ({_cause(error)}); check SEATRIAL_ALERT_WEBHOOK and the network")
        return None if answer.ok and answer.status_code < 300 else f"HTTP {answer.status_code} {answer.reason}"


def _session() -> Any:
    """Tries again where the receiver is busy or broken, and waits as it says."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import Retry

    class Patient(Retry):
        def get_retry_after(self, response: Any) -> float | None:
            after = super().get_retry_after(response)
            return None if after is None else min(after, MAX_WAIT_S)

    again = Patient(
        RETRIES,
        allowed_methods=None,  # a POST too: a receiver tells the same event by incident and changes
        status_forcelist=(429, 500, 502, 503, 504),
        backoff_factor=0.2,
        raise_on_status=False,
    )
    session = requests.Session()
    session.mount("http://", HTTPAdapter(max_retries=again))
    session.mount("https://", HTTPAdapter(max_retries=again))
    return session


def _cause(error: Exception) -> str:
    """The innermost reason: requests and urllib3 wrap it, with the address in every layer."""
    inner = getattr(error.args[0], "reason", None) if error.args else None
    return type(inner or error).__name__
