"""A run on hosts that are up, from its start to its end, by what ssh and the hosts answer."""

import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import InputError, LaunchError, MissingError, SeatrialError
from seatrial.platforms import state as states
from seatrial.platforms.baremetal import BaremetalPlatform
from seatrial.platforms.baremetal import hosts as baremetal_hosts
from seatrial.platforms.baremetal import platform as baremetal
from seatrial.platforms.baremetal.hosts import MARK
from seatrial.platforms.commands import Finished
from seatrial.text.redact import Secrets
from tests.cluster_files import refusal

RUN_ID = "20260102-0304-abcde"
SILENT = Finished(255, "", "ssh: connect to host h2 port 22: Connection timed out\n")
REFUSED = Finished(255, "", "root@h2: Permission denied (publickey).\n")
LOST = Finished(255, "", "Connection to 10.0.0.2 closed by remote host.\n")
_REQUEST = re.compile(r"module\.main\(json\.loads\((.*)\)\)\n\Z", re.DOTALL)


class Site:
    """Hosts h1 and h2 by host and verb; h2 is behind a jump host."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], dict[str, Any] | Finished] = {}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.limits: dict[str, float] = {}
        self.jump = Finished(0, "", "")

    def __call__(self, argv: Sequence[str], stdin: bytes, timeout_s: float, host: str) -> Finished:
        if "-G" in argv:
            hop = "proxyjump ops@gate:22,inner\n" if host == "h2" else "proxyjump none\n"
            return Finished(0, f"hostname 10.0.0.{host[1:]}\nhostname other\nuser alice\n{hop}", "")
        if argv[-1] == "true":
            assert argv[-2] == "ssh://ops@gate:22"
            return self.jump
        match = _REQUEST.search(stdin.decode())
        assert match
        request = json.loads(eval(match[1]))
        self.requests.append((host, request))
        self.limits[request["verb"]] = timeout_s
        own = (
            {"port": 222, "user": "root", "kernel": f"{host[1:]}a", "cores": 8}
            if request["verb"] == "start"
            else {}
        )
        answer = self.answers.get(
            (host, request["verb"]), {"log": f"of {host}\n"} if request["verb"] == "log" else own
        )
        return (
            answer
            if isinstance(answer, Finished)
            else Finished(0, f"motd\n{MARK}{json.dumps(answer)}\n", "")
        )

    def asked(self, verb: str) -> list[str]:
        return sorted(host for host, request in self.requests if request["verb"] == verb)


def platform_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Site, **fields: Any
) -> tuple[baremetal.Baremetal, Run]:
    monkeypatch.setattr(states, "root_folder", lambda kind: tmp_path / kind)
    monkeypatch.setattr(baremetal_hosts, "_run", site)
    monkeypatch.setattr(baremetal, "write_ports", lambda *_: None)
    platform = {"kind": "baremetal", "hosts": ["h1", "h2"], **fields.pop("platform", {})}
    cluster = Cluster.model_validate({"name": "test", "nodes": 2, "platform": platform, **fields})
    return baremetal.platform(cluster), Run(RUN_ID, cluster, load_suite("quick"), tmp_path / "out")


def test_run_is_launched_attached_collected_and_torn_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    site.answers["h2", "start"] = {
        "port": 223,
        "user": "bob",
        "address": "10.9.0.2",
        "kernel": "b",
        "cores": 8,
    }
    platform, run = platform_and_run(tmp_path, monkeypatch, site)
    testbed = platform.launch(run)
    assert [(n.name, n.address, n.port, testbed.user_of(n)) for n in testbed.nodes] == [
        ("h1", "10.0.0.1", 222, "root"),
        ("h2", "10.9.0.2", 223, "bob"),
    ]
    assert testbed.shared_cores is None
    assert testbed.workdir == f"/tmp/seatrial-{RUN_ID}/node/work"
    ((_, request), *_) = site.requests
    assert request["deadline_s"] >= platform._settings.deadline_s
    assert "PRIVATE KEY" in request["program"]
    dialled: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        baremetal, "dial_tcp", lambda node, limit_s: dialled.append((node.name, limit_s))
    )
    monkeypatch.setattr(baremetal_hosts, "tunnel", lambda _, *words: dialled.append(words))
    for node in testbed.nodes:
        testbed.dial(node, 5)
    assert dialled == [("h1", 5), ("h2", "127.0.0.1:223", 5)]

    assert platform.attach(RUN_ID).nodes == testbed.nodes
    assert platform.leftovers() == []
    assert platform.keep(RUN_ID, 600)
    site.answers["h2", "log"] = LOST
    platform.collect(RUN_ID, tmp_path / "logs", 30, Secrets(()))
    assert (tmp_path / "logs" / "nodes" / "h1.log").read_text() == "of h1\n"
    assert "closed by remote host" in (tmp_path / "logs" / "nodes" / "h2.log").read_text()
    platform.teardown(RUN_ID)
    assert site.asked("stop") == ["h1", "h2"]
    assert not states.run_folder(RUN_ID, "baremetal").exists()
    platform.teardown(RUN_ID)
    assert site.asked("stop") == ["h1", "h2"]
    assert not platform.keep(RUN_ID, 600)
    platform.collect(RUN_ID, tmp_path / "none", 30, Secrets(()))
    assert not (tmp_path / "none").exists()
    with pytest.raises(InputError, match="is over"):
        platform.attach(RUN_ID)


def test_hosts_on_one_machine_share_its_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    for host in ("h1", "h2"):
        site.answers[host, "start"] = {"port": 222, "user": "root", "kernel": "a", "cores": 8}
    platform, run = platform_and_run(tmp_path, monkeypatch, site)
    assert platform.launch(run).shared_cores == 8


@pytest.mark.parametrize("answer", [SILENT, LOST])
def test_silent_host_remains_a_node_so_that_connectivity_judges_it(
    answer: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    site.answers["h2", "start"] = answer
    platform, run = platform_and_run(tmp_path, monkeypatch, site)
    testbed = platform.launch(run)
    silent = testbed.nodes[1]
    assert (silent.name, silent.address, silent.port) == ("h2", "10.0.0.2", run.cluster.ssh_port)
    assert testbed.user_of(silent) == "alice"
    platform.teardown(RUN_ID)  # where no login succeeded, nothing is to end
    assert site.asked("stop") == (["h1"] if answer is SILENT else ["h1", "h2"])


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"h2": REFUSED}, "Permission denied|publickey"),
        ({"h1": SILENT, "h2": SILENT}, "timed out"),
        (
            {"h2": {"held": {"run": "other", "user": "eve", "since": 1000000000}}},
            "run other of eve since 2001-09-09",
        ),
        ({"h2": {"held": {}}}, "another run"),
        ({"h2": {"port": 222}}, "no port"),
        ({"h2": {"user": "root"}}, "no port"),
        ({"h2": {"problem": "no space left"}}, "no space left"),
        ({"h2": Finished(126, "", "")}, "python3 missing or cannot be run"),
        ({"h2": Finished(3, "", "line\nlast words")}, "line last words"),
        ({"h2": Finished(3, "", "")}, "status 3"),
    ],
)
def test_launch_fails_when_a_host_refuses_or_answers_wrongly(
    answers: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    site.answers = {(host, "start"): answer for host, answer in answers.items()}
    platform, run = platform_and_run(tmp_path, monkeypatch, site)
    with pytest.raises(LaunchError, match=words):
        platform.launch(run)


def test_teardown_of_a_host_that_fails_is_retried_until_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    platform, run = platform_and_run(tmp_path, monkeypatch, site)
    platform.launch(run)
    folder = states.run_folder(RUN_ID, "baremetal")
    ways = (
        (LOST, "closed by remote host"),
        (SILENT, "no login: .*timed out; they end the run by themselves at 20"),
        ({"remaining": [7, 8]}, "processes 7, 8 do not end"),
        ({"container_left": True}, "the container of the run cannot be removed"),
        ({"folder_left": True}, "the folder of the run is still there"),
    )
    for answer, words in ways:
        site.answers["h2", "stop"] = answer
        with pytest.raises(SeatrialError, match=rf"1 of 2 .*{words}"):
            platform.teardown(RUN_ID)
        assert folder.exists()
        assert not (folder / states.KEY_FILE).exists()
    (folder / "deadline.json").write_text(json.dumps(time.time() - 1))
    platform.teardown(RUN_ID)
    assert not folder.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "-1", "1e12", "null"])
def test_unreadable_deadline_counts_as_expired(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform, run = platform_and_run(tmp_path, monkeypatch, Site())
    platform.launch(run)
    folder = states.run_folder(RUN_ID, "baremetal")
    assert baremetal.deadline_of(folder) > time.time()
    (folder / "deadline.json").write_text(text)
    assert baremetal.deadline_of(folder) == 0


def test_silent_node_is_not_blamed_when_its_jump_host_failed_or_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    platform, run = platform_and_run(tmp_path, monkeypatch, site)
    testbed = platform.launch(run)
    near, far = testbed.nodes
    assert testbed.blameless_reason(far) is None
    site.jump = Finished(255, "", "ssh: connect to host gate port 22: Connection refused\n")
    assert "ops@gate:22" in str(testbed.blameless_reason(far))
    assert testbed.blameless_reason(near) is None
    site.jump = Finished(255, "", "Permission denied (publickey).\n")
    assert testbed.blameless_reason(far) is None
    folder = states.run_folder(RUN_ID, "baremetal")
    (folder / "deadline.json").write_text(
        json.dumps(time.time() + platform._settings.start_timeout_s - 1)
    )
    assert testbed.blameless_reason(near)


PODMAN: dict[str, Any] = {"platform": {"runtime": "podman"}, "image": "registry.example.com/a:1"}


def test_an_image_is_pulled_on_the_hosts_that_lack_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    site.answers["h2", "check"] = {"image_missing": True}
    platform, run = platform_and_run(tmp_path, monkeypatch, site, **PODMAN)
    platform.launch(run)
    assert (site.asked("check"), site.asked("pull")) == (["h1", "h2"], ["h2"])
    platform.teardown(RUN_ID)
    site.answers["h2", "pull"] = {"image_problem": "no space left"}
    with pytest.raises(LaunchError, match="no space left"):
        platform.launch(run)
    platform.teardown(RUN_ID)  # no host was touched
    assert len(site.asked("stop")) == 2
    site.answers["h1", "check"] = {"missing": ["podman"]}
    with pytest.raises(LaunchError, match=r"h1.*podman"):
        platform.launch(run)


def test_missing_image_file_fails_the_launch_without_a_pull(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    site.answers["h2", "check"] = {"image_missing": True}
    platform, run = platform_and_run(
        tmp_path, monkeypatch, site, platform={"runtime": "apptainer"}, image="/s/t.sif"
    )
    with pytest.raises(LaunchError, match=r"h2.*there is no such file"):
        platform.launch(run)
    assert site.asked("pull") == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"free_bytes": 100 * 1024**2}, None),
        ({"free_bytes": 99 * 1024**2}, "has 99 MiB free"),
        ({"free_bytes": 10**12, "writable": False}, "is not writable"),
        ({"free_bytes": 10**12, "executable": False}, "noexec"),
        ({"free_bytes": 10**12, "missing": ["sshd", "ssh"]}, "sshd, ssh"),
        ({"free_bytes": 10**12, "held": {"run": "r", "user": "eve"}}, "run r of eve"),
        ({"free_bytes": 10**12, "image_missing": True}, "podman pull"),
        (REFUSED, "publickey"),
    ],
)
def test_missing_names_what_keeps_a_run_from_starting_on_a_host(
    answer: dict[str, Any] | Finished,
    words: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    site.answers = {("h1", "check"): {"free_bytes": 10**12}, ("h2", "check"): answer}
    platform, _ = platform_and_run(tmp_path, monkeypatch, site, **PODMAN)
    problems = platform.missing()
    assert len(problems) == (words is not None)
    assert words is None or (words in problems[0].sentence and "h2" in problems[0].sentence)


def test_a_machine_without_ssh_is_one_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform, run = platform_and_run(tmp_path, monkeypatch, Site())

    def absent(*_: object) -> Finished:
        raise MissingError("no ssh")

    monkeypatch.setattr(baremetal_hosts.Hosts, "is_proxied", lambda *_: False)
    monkeypatch.setattr(baremetal_hosts, "_run", absent)
    assert list(map(str, platform.missing())) == ["no ssh"]
    with pytest.raises(MissingError):
        platform.launch(run)


def test_teardown_uses_the_settings_of_the_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    platform, run = platform_and_run(tmp_path, monkeypatch, site)
    platform.launch(run)
    platform._settings = BaremetalPlatform(kind="baremetal", hosts=("h9",))
    platform.teardown(RUN_ID)
    assert site.asked("stop") == ["h1", "h2"]


@pytest.mark.parametrize(
    ("called", "host"),
    [("box.example.com", "box"), ("b" * 64, "this-machine"), ("-x", "this-machine")],
)
def test_the_platform_this_machine_has_one_host_on_the_loopback_address(
    called: str, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site()
    monkeypatch.setattr("socket.gethostname", lambda: called)
    monkeypatch.setattr(states, "root_folder", lambda kind: tmp_path / kind)
    monkeypatch.setattr(baremetal_hosts, "_run", site)
    monkeypatch.setattr(baremetal, "write_ports", lambda *_: None)
    cluster = Cluster.model_validate(
        {"name": "test", "nodes": 1, "platform": {"kind": "this-machine"}}
    )
    platform = baremetal.platform(cluster)
    site.answers[host, "start"] = {"port": 222, "user": "root"}
    testbed = platform.launch(Run(RUN_ID, cluster, load_suite("quick"), tmp_path / "out"))
    assert (testbed.head.name, testbed.head.address, testbed.shared_cores) == (
        host,
        "127.0.0.1",
        None,
    )
    assert testbed.python == sys.executable


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"nodes": 2}, "nodes: must be 1 on platform this-machine, is 2"),
        ({"image": "a:1"}, "image: has no use"),
    ],
)
def test_cluster_file_fields_that_this_machine_cannot_use_are_refused(
    fields: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    assert problem in refusal(
        tmp_path, **{"nodes": 1, "platform": {"kind": "this-machine"}, **fields}
    )
