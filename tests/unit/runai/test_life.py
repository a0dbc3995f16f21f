"""A workload from its submission to its end, by what the command `runai` prints."""

import json
import logging
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import load_cluster
from seatrial.config.run import Run
from seatrial.model.errors import InputError, LaunchError, MissingError
from seatrial.platforms import state as states
from seatrial.platforms.commands import Finished
from seatrial.platforms.runai import platform as runai
from seatrial.text.redact import Secrets
from tests.unit.runai.test_workload import EXAMPLE

RUN_ID = "20260102-0304-ABCDE"
NAME = "seatrial-20260102-0304-abcde"
RUNNING, ABSENT = '{"phase": "Running"}', Finished(1, "", "workload does not exist")


def pending(why: str) -> str:
    return json.dumps({"phase": "Pending", "message": why})


class Command:
    """`runai`: each verb prints the next of its answers, the last one again and again; `exec` one
    for each pod.
    """

    def __init__(self, **answers: str | Finished | Exception | Sequence[str | Finished]) -> None:
        self.answers = {"submit": "", "list": "[]", "delete": "", "describe": RUNNING, **answers}
        self.pods: dict[str, str | Finished] = {}
        self.calls: list[list[str]] = []
        self.inputs: dict[str, bytes] = {}
        self.limits: dict[str, float] = {}

    def __call__(
        self, argv: Sequence[str], env: Mapping[str, str], timeout_s: float, *, stdin: bytes
    ) -> Finished:
        verb = argv[3] if argv[2] != "list" else "list"
        self.calls.append(list(argv))
        self.limits[verb] = timeout_s
        if verb == "exec":
            pod = argv[6].removeprefix("--pod=")
            self.inputs[pod] = stdin
            nth = len(self.inputs)
            ready = f"seatrial-node: ready {222 + nth}\naddress: 10.0.0.{nth} fe80::1\nuser: root\n"
            answer: object = self.pods.get(pod, ready)
        else:
            answer = self.answers[verb]
            if isinstance(answer, list):
                answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Finished) else Finished(0, str(answer), "")

    def verbs(self) -> list[str]:
        return [call[3] if call[2] != "list" else "list" for call in self.calls]


def platform_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> tuple[runai.Runai, Run]:
    monkeypatch.setattr(states, "root_folder", lambda kind: tmp_path / kind)
    monkeypatch.setattr(runai, "run_bounded", command)
    monkeypatch.setattr(runai, "write_ports", lambda *_: None)
    monkeypatch.setattr(runai, "_PAUSE_S", (0.001, 0.002))
    monkeypatch.setattr(runai, "_GONE_PAUSE_S", 0.001)
    monkeypatch.setattr(runai, "AT_ONCE", 1)
    cluster = load_cluster(EXAMPLE).model_copy(update={"nodes": 2})
    return runai.platform(cluster), Run(RUN_ID, cluster, load_suite("quick"), tmp_path / "out")


def test_workload_is_submitted_attached_collected_and_torn_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    command = Command(
        describe=[pending("no quota"), pending("no quota"), pending("pulls"), RUNNING]
    )
    platform, run = platform_and_run(tmp_path, monkeypatch, command)
    caplog.set_level(logging.INFO, "seatrial.launch")
    testbed = platform.launch(run)
    master, worker = f"{NAME}-master-0", f"{NAME}-worker-0"
    assert [(node.name, node.address, node.port) for node in testbed.nodes] == [
        (master, "10.0.0.1", 223),
        (worker, "10.0.0.2", 224),
    ]
    assert testbed.workdir == f"/tmp/seatrial-{RUN_ID}/work"
    assert command.verbs() == ["submit", *["describe"] * 4, "exec", "exec"]
    assert all(b"PRIVATE KEY" in command.inputs[pod] for pod in (master, worker))
    waited = [message for message in caplog.messages if "Pending" in message]
    assert waited == [f"{NAME}: Pending; no quota", f"{NAME}: Pending; pulls"]

    again = platform.attach(RUN_ID)
    assert (again.nodes, again.user) == (testbed.nodes, "root")
    assert testbed.blameless_reason(testbed.head) is None
    assert platform.keep(RUN_ID, 600)
    command.pods = {master: "words\n", worker: Finished(1, "", "no such pod")}
    platform.collect(RUN_ID, tmp_path / "logs", 30, Secrets(()))
    assert (tmp_path / "logs" / "nodes" / f"{master}.log").read_text() == "words\n"
    assert "no such pod" in (tmp_path / "logs" / "nodes" / f"{worker}.log").read_text()

    command.answers["describe"] = '{"phase": "Failed", "message": "evicted"}'
    assert not platform.keep(RUN_ID, 600)
    assert "ended: Failed; evicted" in str(testbed.blameless_reason(testbed.head))
    with pytest.raises(InputError, match="is over"):
        platform.attach(RUN_ID)
    command.answers["describe"] = [RUNNING, ABSENT]
    platform.teardown(RUN_ID)
    assert command.verbs()[-3:] == ["delete", "describe", "describe"]
    assert not states.run_folder(RUN_ID, "runai").exists()
    platform.collect(RUN_ID, tmp_path / "none", 30, Secrets(()))
    assert not (tmp_path / "none").exists()


def test_teardown_without_local_keys_deletes_only_an_existing_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = Command(describe=[RUNNING, ABSENT], delete=ABSENT)
    platform, _ = platform_and_run(tmp_path, monkeypatch, command)
    platform.teardown(RUN_ID)
    assert command.verbs() == ["describe", "delete", "describe"]
    platform.teardown(RUN_ID)
    assert command.verbs()[3:] == ["describe"]
    with pytest.raises(InputError, match="is over"):
        platform.attach(RUN_ID)
    monkeypatch.setattr(runai, "_GONE_S", -1.0)
    command.answers["describe"] = RUNNING
    with pytest.raises(LaunchError, match="is still there"):
        platform.teardown(RUN_ID)
    command.answers["delete"] = Finished(1, "", "forbidden")
    with pytest.raises(LaunchError, match="forbidden"):
        platform.teardown(RUN_ID)


@pytest.mark.parametrize(
    ("describe", "queue_s", "words"),
    [
        ('{"phase": "Stopped"}', 60, "ended: Stopped"),
        (ABSENT, 60, "was deleted"),
        (pending("no quota"), -1, "Pending; no quota"),
        (Finished(2, "", "not logged in"), 60, "not logged in"),
    ],
)
def test_a_workload_that_does_not_come_up_is_explained(
    describe: str | Finished,
    queue_s: float,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    platform, run = platform_and_run(tmp_path, monkeypatch, Command(describe=describe))
    platform._settings = platform._settings.model_copy(update={"queue_timeout_s": queue_s})
    with pytest.raises(LaunchError, match=words):
        platform.launch(run)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("seatrial-node: ready 0\naddress: 10.0.0.1\nuser: root\n", "ready 0"),
        ("seatrial-node: ready 65536\naddress: 10.0.0.1\nuser: root\n", "ready 65536"),
        ("seatrial-node: failed: no sshd\n", "no sshd"),
        ("", "no answer"),
        (Finished(1, "said on output", ""), "said on output"),
        (Finished(1, "on output", "said on errors"), "said on errors"),
    ],
)
def test_a_pod_that_does_not_answer_is_named(
    answer: str | Finished, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = Command()
    command.pods[f"{NAME}-worker-0"] = answer
    platform, run = platform_and_run(tmp_path, monkeypatch, command)
    with pytest.raises(LaunchError, match=f"(?s)worker-0.*{words}") as error:
        platform.launch(run)
    assert "master-0" not in error.value.reason.sentence
    assert command.limits["exec"] == platform._settings.start_timeout_s


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (FileNotFoundError(), "runai"),
        (PermissionError(13, "Permission denied"), "Permission denied"),
        (subprocess.TimeoutExpired("runai", 60), "60"),
        (Finished(1, "", "Error: \x1b[2Jnot logged in"), "not logged in"),
    ],
)
def test_missing_names_a_runai_command_that_fails(
    answer: Exception | Finished, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = Command()
    platform, _ = platform_and_run(tmp_path, monkeypatch, command)
    assert platform.missing() == []
    assert command.calls == [["runai", "training", "list", "--project=infra", "--json"]]
    command.answers["list"] = answer
    (line,) = platform.missing()
    assert words in line.sentence
    assert line.sentence.isprintable()
    command.answers["describe"] = answer
    assert platform._why_gone(RUN_ID) is None  # not known
    if isinstance(answer, FileNotFoundError):
        with pytest.raises(MissingError):
            platform._client.describe(RUN_ID)
