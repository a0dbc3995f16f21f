"""A Slack on this machine, and what a cluster and its history need for alerts."""

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from seatrial.alerts.settings import AlertSettings, SlackSettings
from seatrial.config.cluster import Cluster
from seatrial.history import open_store
from seatrial.history.store import Store
from seatrial.platforms.local import LocalPlatform
from tests.slack_server import PATH, TOKEN, Slack, slack_server

CLUSTER = Cluster(name="h100-east", nodes=8, platform=LocalPlatform(kind="local"))


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slack]:
    no_proxy(monkeypatch)
    with slack_server() as fake:
        yield fake


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what a test replaces in place; test_bounded.py has the processes."""
    monkeypatch.setattr("seatrial.tasks.notify.BoundedSink", lambda sink: sink)


def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: its migrations take longer than most tests."""
    path = tmp_path_factory.mktemp("store") / "history.sqlite"
    open_store(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def store(tmp_path: Path, empty_store: Path) -> Iterator[Store]:
    copy = shutil.copy(empty_store, tmp_path / "history.sqlite")
    with open_store(f"sqlite:///{copy}") as history:
        yield history


@pytest.fixture
def by_token(slack: Slack) -> AlertSettings:
    return AlertSettings(SlackSettings(SecretStr(TOKEN), "alerts", api_url=f"{slack.url}/api"))


@pytest.fixture
def by_webhook(slack: Slack) -> AlertSettings:
    return AlertSettings(SlackSettings(webhook=SecretStr(f"{slack.url}{PATH}")))


@contextmanager
def no_log_tells(caplog: pytest.LogCaptureFixture, *secrets: str) -> Iterator[None]:
    """Around a test: whatever is logged in it, none of these."""
    caplog.set_level(logging.DEBUG)
    yield
    log = "\n".join(record.getMessage() for record in caplog.get_records("call"))
    assert not [secret[:6] for secret in secrets if secret in log]
