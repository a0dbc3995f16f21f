"""A whole incident on real nodes, against a Slack on this machine: night after night, with its
servers restarted.
"""

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import httpx
import pytest

from seatrial.flows.serving.server import TemporaryServer
from tests.e2e.conftest import BRIEF, Console, Finished
from tests.slack_server import TOKEN, Message, Slack, slack_server

PLANTED = {
    "SEATRIAL_SLACK_TOKEN": TOKEN,
    "HF_TOKEN": "hf_plantedPlantedPlantedPlanted",
    "AWS_SECRET_ACCESS_KEY": "planted/aws/secret/0123456789",
    "DOCKER_PASSWORD": "planted-registry-password",
    "SEATRIAL_ALERT_URLS": "json://planted:planted-json-password@127.0.0.1:9/",
    "HTTPS_PROXY": "http://planted:planted-proxy-password@127.0.0.1:9",
    "NO_PROXY": "*",
}
SECRETS = [*list(PLANTED.values())[:4], "planted-json-password", "planted-proxy-password"]
OF_THE_NODES = "planted-for-the-nodes"
TALKATIVE = """\
#!/bin/sh
echo what there is:
env
exec mpirun "$@"
"""
BROKEN = [{"node": "node-2", "sshd": "stopped"}]
BLAMED = "node-2 (100 % sure): "
_DIED = (
    "from seatrial.flows.watch import watch; watch('cluster.yaml', 'brief', crashed='its "
    "worker was killed')"
)


@pytest.fixture
def slack() -> Iterator[Slack]:
    with slack_server() as fake:
        yield fake


@pytest.fixture
def watched(console: Console, slack: Slack) -> Console:
    """A console whose runs tell Slack, with secrets in their environment."""
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY", "no_proxy"):
        console.environment.pop(name, None)
    console.environment |= {
        "SEATRIAL_SLACK_CHANNEL": "gpu-east",
        "SEATRIAL_SLACK_API_URL": f"{slack.url}/api",
        **PLANTED,
    }
    del console.environment["SEATRIAL_TEMPORARY_SERVER"]  # messages link to a server that lasts
    return console


@contextmanager
def prefect_server(console: Console) -> Iterator[str]:
    """Its API, until the block ends; the next one goes on with the same database."""
    with pytest.MonkeyPatch.context() as patch, (console.folder / "prefect.log").open("ab") as log:
        patch.setenv("PREFECT_HOME", console.environment["PREFECT_HOME"])
        server = TemporaryServer(log)
        console.environment |= {
            "PREFECT_API_URL": server.api_url,
            "PREFECT_API_AUTH_STRING": server.auth_string,
        }
        try:
            yield server.api_url
        finally:
            server.stop()


def test_incident_is_reported_from_its_first_night_to_its_recovery(
    watched: Console, slack: Slack
) -> None:
    with prefect_server(watched) as api:
        a_good_night_tells_nobody(watched, slack)
        message = the_first_bad_night_is_told(watched, slack, api)
    with prefect_server(watched) as api:
        the_second_bad_night_is_told_in_the_same_message(watched, slack, message)
        the_recovery_is_told(watched, slack, message)
        a_check_that_died_is_told(watched, slack)
        kept = kept_by_prefect(api, watched)
    no_secret_is_told(slack)
    no_secret_is_in_prefect(kept, watched)
    no_secret_is_in_a_file(watched)


def night(console: Console, name: str, faults: list[dict[str, str]]) -> Finished:
    """One whose mpirun prints all that it was given, and whose sizes no earlier night has swept, on
    a busy machine.
    """
    nights = len(list(console.folder.glob("*/run.json")))
    sweep = {
        **BRIEF["collectives"]["cpu"],
        "min_bytes": f"{5 + nights}M",
        "max_bytes": f"{20 + 4 * nights}M",
    }
    mpirun = console.folder / "mpirun"
    mpirun.write_text(TALKATIVE)
    mpirun.chmod(0o755)
    settings = {"env": {"MY_API_TOKEN": OF_THE_NODES}, "mpi": {"mpirun": str(mpirun)}}
    return console.check(
        console.cluster(3, faults=faults, **settings),
        console.suite(collectives={**BRIEF["collectives"], "cpu": sweep}),
        name,
    )


def a_good_night_tells_nobody(console: Console, slack: Slack) -> None:
    assert night(console, "good", []).status == 0
    assert not slack.requests


def the_first_bad_night_is_told(console: Console, slack: Slack, api: str) -> Message:
    first = night(console, "bad", BROKEN)
    assert first.status == 1, first.output
    # The receiver that is not there is told of, and changes nothing
    busy = "other programs took "  # of the machine's processors
    (note,) = [each for each in first.document["notes"] if not each.startswith(busy)]
    assert re.search(
        r"json://planted:\*{3}@127\.0\.0\.1:9 \(\w{4}\): FAILED A Connection error occurred", note
    ), note
    (message,) = slack.posted
    assert message.channel == "C0EAST123"
    assert "trial fails" in message.shown
    assert re.search(r"\*node-2 \([\d.]+\)\*, 100 % sure: ", message.shown), message.shown
    assert "next: " in message.shown
    assert f"{api.removesuffix('/api')}/runs/flow-run/" in message.shown
    assert slack.files(message)["busbw.png"].startswith(b"\x89PNG")
    assert b"node-2" in slack.files(message)["report.html"]
    return message


def the_second_bad_night_is_told_in_the_same_message(
    console: Console, slack: Slack, message: Message
) -> None:
    assert night(console, "again", BROKEN).status == 1
    assert (len(slack.posted), message.edits) == (1, 1)
    assert "trial fails (2 runs)" in message.shown


def the_recovery_is_told(console: Console, slack: Slack, message: Message) -> None:
    assert night(console, "well", []).status == 0
    assert (
        message.blocks[0]["text"]["text"] == "trial recovered: pass again after 2 runs, worst fail"
    )
    assert [reply.text for reply in slack.replies(message)][-1].endswith(
        "trial: pass again after 2 runs, worst fail"
    )


def a_check_that_died_is_told(console: Console, slack: Slack) -> None:
    died = subprocess.run(
        [sys.executable, "-c", _DIED],
        cwd=console.folder,
        env=console.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # Because of the receiver that is not there; who watches the watch sees it fail
    assert died.returncode != 0
    assert "slack #gpu-east: sent to #gpu-east" in died.stderr
    assert [message.blocks[0]["text"]["text"] for message in slack.posted[1:]] == [
        "trial: the check did not run"
    ]
    assert "the check died: its worker was killed" in slack.posted[1].shown


def no_secret_is_told(slack: Slack) -> None:
    """Not as it is, and not in the words of a form."""
    raw = {
        f"{method} {number}": body.decode("latin-1")
        for number, (method, _, body) in enumerate(slack.requests)
    }
    bodies = {name: f"{body}\n{unquote_plus(body)}" for name, body in raw.items()}
    assert {"chat.postMessage", "chat.update"} <= {
        name.split()[0] for name in holding(["trial fails"], bodies)
    }
    assert not holding([*SECRETS, OF_THE_NODES], bodies)


def no_secret_is_in_prefect(kept: Mapping[str, str], console: Console) -> None:
    """What its API gives; each kind is there, of the bad nights too."""
    assert "flow_runs" in holding([str(console.folder / "again")], kept)  # a parameter
    assert "artifacts" in holding([BLAMED], kept)
    assert "logs" in holding(["2 of 3 nodes answer on port 222"], kept)
    assert not holding([*SECRETS, OF_THE_NODES], kept)


def no_secret_is_in_a_file(console: Console) -> None:
    """Logs, results, reports, history, Prefect's own database: the same search finds what is there
    on purpose.
    """
    files = texts_in(console.folder)
    database = "prefect/prefect.db as text"
    assert database in holding([str(console.folder / "again")], files)  # a parameter of a flow run
    assert database in holding([BLAMED], files)  # an artifact
    assert "state/seatrial/history.sqlite as text" in holding([BLAMED], files)
    assert {"again/run.json", "again/report.html", "again/logs/run.log"} <= set(
        holding(["node-2"], files)
    )
    assert not holding(SECRETS, files)
    assert "good/logs/mpirun-hostname.log" in holding(["MY_API_TOKEN=***"], files)
    assert holding([OF_THE_NODES], files) == ["cluster.yaml"]  # where a person wrote it


def kept_by_prefect(api: str, console: Console) -> dict[str, str]:
    """All that Prefect has of the runs, by kind."""
    return {
        kind: json.dumps(list(pages(f"{api}/{kind}/filter", console.auth)))
        for kind in ("flow_runs", "task_runs", "artifacts", "logs", "flows")
    }


def pages(url: str, auth: httpx.BasicAuth) -> Iterator[dict[str, Any]]:
    """Every entry; the server gives 200 at once."""
    offset = 0
    while (
        page := httpx.post(url, json={"limit": 200, "offset": offset}, auth=auth, timeout=60)
        .raise_for_status()
        .json()
    ):
        yield from page
        offset += len(page)


def texts_in(folder: Path) -> dict[str, str]:
    """What the files below the folder hold, by their path in it; databases as they are and as
    text.
    """
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    raw = {name: path.read_bytes().decode("latin-1") for name, path in files.items()}
    databases = [name for name, content in raw.items() if content.startswith("SQLite format 3\0")]
    return raw | {f"{name} as text": dumped(files[name]) for name in databases}


def dumped(database: Path) -> str:
    """Its rows as text: in the file a long value lies in pieces, one per page."""
    with closing(sqlite3.connect(database)) as connection:
        return "\n".join(connection.iterdump())


def holding(words: Iterable[str], texts: Mapping[str, str]) -> list[str]:
    """The names of those texts that hold one of the words."""
    return [name for name, text in texts.items() if any(word in text for word in words)]
