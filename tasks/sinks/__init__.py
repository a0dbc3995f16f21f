"""Receivers of alerts.

A sink has its own format and errors; which alerts it gets, and when, is decided elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from seatrial.alerts.alert import Alert
from seatrial.history.incident import Receipt
from seatrial.model.result import RunResult

TOO_LARGE = "its answer is too large"  # a sink has a limit of memory: see bounded.py


@dataclass(frozen=True, slots=True)
class Files:
    """The attachments of an alert: the curve as PNG with its description, and the report, each if
    it exists.
    """

    picture: bytes | None = None
    described: str = ""
    report: bytes | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outcome of a delivery on one line, and the receipt of what was sent, even if a later part
    `failed`.
    """

    receipt: Receipt
    summary: str
    failed: bool = False


class Sink(Protocol):
    """One way to reach people."""

    @property
    def name(self) -> str:
        """Key of the receipts: the same for every run, and no secret."""
        ...

    def send(self, alert: Alert, receipt: Receipt, files: Files) -> Delivery:
        """Send what is new since the receipt, and update earlier messages. Raises nothing."""
        ...

    def digest(self, result: RunResult) -> Delivery:
        """Send one line for a run with nothing new. Raises nothing."""
        ...


def full_receipt(alert: Alert, place: Mapping[str, str]) -> Receipt:
    """Return the receipt of a sink that has received all changes."""
    return Receipt(len(alert.incident.changes), place)
