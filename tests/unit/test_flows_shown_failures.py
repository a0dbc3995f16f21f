"""Whatever Prefect's server does while a run is decorated, the run goes on."""

from unittest.mock import MagicMock, Mock
from uuid import uuid4

import httpx
import pytest
from prefect.exceptions import ObjectNotFound

from flows.serving import ui

ERRORS = [httpx.ConnectError("away"), ObjectNotFound(ValueError("gone")), ValueError("no JSON"), TypeError("no list")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_of_the_server_costs_the_decoration_alone(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = MagicMock()
    server.__enter__.return_value.read_flow_run.side_effect = error
    monkeypatch.setattr(ui, "get_client", Mock(return_value=server))
    server.__exit__.return_value = False
    monkeypatch.setattr(ui, "current", Mock(id=str(uuid4())))
    caplog.set_level("DEBUG", logger="seatrial")
    ui.show_verdict(Mock())
    assert "Prefect does not show it" in caplog.text
