"""A whole incident on real nodes, against a Slack on this machine: night after night, with its servers restarted."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.server import start_server
from tests.e2e.conftest import Console, Finished
from tests.slack_server import TOKEN, Slack, slack_server

PLANTED = {
    "SEATRIAL_SLACK_TOKEN": TOKEN,
    "HF_TOKEN": "hf_plantedPlantedPlantedPlanted",
    "AWS_SECRET_ACCESS_KEY": "planted/aws/secret/0123456789",
    "SEATRIAL_ALERT_URLS": "json://planted:planted-json-password@127.0.0.1:9/",
}
_DIED = "from flows.watch import watch; watch('cluster.yaml', 'brief', crashed='its worker was killed')"
SECRETS = [*list(PLANTED.values())[:3], "planted-json-password"]


@pytest.fixture
def slack() -> Iterator[Slack]:
    with slack_server() as fake:
        yield fake


def test_an_incident_from_its_first_night_to_its_recovery(
    console: Console, slack: Slack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_HOME", console.environment["PREFECT_HOME"])
    console.environment |= {
        "SEATRIAL_SLACK_CHANNEL": "gpu-east",
        "SEATRIAL_SLACK_API_URL": f"{slack.url}/api",
        **PLANTED,
    }
    del console.environment["SEATRIAL_TEMPORARY_SERVER"]  # messages link to a server that lasts
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        console.environment.pop(name, None)
    suite, broken = console.suite(), [{"node": "node-2", "sshd": "stopped"}]
    with (console.folder / "prefect.log").open("wb") as log:
        server = start_server(log)  # of its own, because it is restarted
        try:
            console.environment["PREFECT_API_URL"] = server.api_url
            assert night(console, suite, "good", []).status == 0
            assert not slack.requests

            first = night(console, suite, "bad", broken)
            assert first.status == 1, first.said
            (note,) = first.document["notes"]  # the receiver that is not there is told of, and changes nothing
            assert "json://planted:****@127.0.0.1:9/: FAILED A Connection error occurred" in note
            (message,) = slack.posted
            assert message.channel == "C0EAST123"
            assert "trial fails" in message.shown
            assert "*node node-2* (100%)" in message.shown
            assert f"{server.api_url.removesuffix('/api')}/runs/flow-run/" in message.shown
            assert slack.files(message)["busbw.png"].startswith(b"\x89PNG")
            assert b"node-2" in slack.files(message)["report.html"]
        finally:
            server.stop()
        server = start_server(log)
        try:
            console.environment["PREFECT_API_URL"] = server.api_url
            assert night(console, suite, "again", broken).status == 1
            assert (len(slack.posted), message.edits) == (1, 1)
            assert "trial fails (2 runs)" in message.shown
            assert night(console, suite, "well", []).status == 0
            died = subprocess.run(
                [sys.executable, "-c", _DIED],
                cwd=console.folder,
                env=console.environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        finally:
            server.stop()
    assert message.blocks[0]["text"]["text"] == "trial recovered: pass again after 2 runs of fail"
    assert [reply.text for reply in slack.replies(message)][-1].endswith("trial: pass again after 2 runs of fail")
    assert died.returncode != 0  # because of the receiver that is not there; who watches the watch sees it fail
    assert "slack #gpu-east: sent to #gpu-east" in died.stderr
    assert [m.blocks[0]["text"]["text"] for m in slack.posted[1:]] == ["trial: the check did not run"]
    assert "the check died: its worker was killed" in slack.posted[1].shown
    assert not planted_in(console.folder)
    assert not any(secret.encode() in body for secret in SECRETS for _, _, body in slack.requests)


def night(console: Console, suite: Path, name: str, faults: list[dict[str, str]]) -> Finished:
    return console.check(console.cluster(3, faults=faults), suite, name)


def planted_in(folder: Path) -> list[str]:
    """The files below `folder` that hold one of the planted secrets: logs, results, reports, history, Prefect's own."""
    for database in folder.rglob("*.db"):
        copy = sqlite3.connect(database)
        copy.execute("PRAGMA wal_checkpoint")
        copy.close()
    found = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        found += [f"{path}: {secret[:6]}..." for secret in SECRETS if secret.encode() in content]
    return found
