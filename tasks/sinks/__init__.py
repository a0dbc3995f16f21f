"""Receivers of alerts. A sink has its own format and errors; which alerts it gets, and when, is decided elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from seatrial.alerts.alert import Alert
from seatrial.history.incident import Receipt
from seatrial.model.result import RunResult


@dataclass(frozen=True, slots=True)
class Files:
    """What goes with an alert where a sink takes files: the curve (PNG) and the report, each if there is one."""

    picture: bytes | None = None
    described: str = ""
    report: bytes | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """How it went: `summary` is one line; the receipt is as far as the sink came, also where it `failed`."""

    receipt: Receipt
    summary: str
    failed: bool = False


class Sink(Protocol):
    """One way to reach people."""

    @property
    def name(self) -> str:
        """What receipts are kept under: the same every night, and no secret."""
        ...

    def tell(self, alert: Alert, receipt: Receipt, files: Files) -> Delivery:
        """Send what is new since the receipt, and update earlier messages. Raises nothing."""
        ...

    def digest(self, result: RunResult) -> Delivery:
        """One line of a run with nothing new. Raises nothing."""
        ...


def full_receipt(alert: Alert, place: Mapping[str, str]) -> Receipt:
    """The receipt of a sink that has heard everything."""
    return Receipt(len(alert.incident.changes), place)
