"""A night as the flow tells it."""

from pathlib import Path

import pytest

from seatrial.alerts.settings import AlertSettings
from seatrial.history.store import Store
from seatrial.model.result import RunResult
from seatrial.tasks.notify import Notified, notify
from tests.integration.alerts.conftest import CLUSTER

WAYS = pytest.mark.parametrize("way", ["by_token", "by_webhook"])


def night(
    result: RunResult, store: Store | None, settings: AlertSettings, out: Path | None = None
) -> Notified:
    """As the flow does it: recorded, then told."""
    if store:
        store.save(result, out or Path("/gone"))
    return notify(result, CLUSTER, store, settings, out / "report.html" if out else None)
