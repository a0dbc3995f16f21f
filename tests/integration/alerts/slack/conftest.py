"""Whatever Slack is told, no log tells how it is reached."""

from collections.abc import Iterator

import pytest

from tests.integration.alerts.conftest import no_log_tells
from tests.slack_server import PATH, TOKEN


@pytest.fixture(autouse=True)
def _no_secret_in_any_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with no_log_tells(caplog, TOKEN, PATH):
        yield
