"""Containers from their creation to their end, on a daemon of a few lines."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound, NotFound

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import InputError, LaunchError, SeatrialError
from seatrial.platforms import state as states
from seatrial.platforms.docker import platform as docker
from seatrial.platforms.docker.daemon import Daemon, _index
from seatrial.platforms.docker.plan import EXPIRES, MADE, NODE, OWNER, RUN_ID
from seatrial.text.redact import Secrets

IMAGE = "registry.example.com/a:1"
RUN = "20260102-0304-abcde"


class Container:
    """One of the daemon's containers; the nth has the nth address."""

    def __init__(self, host: "Host", name: str, body: dict[str, Any]) -> None:
        self.host, self.name, self.body, self.labels = host, name, body, body["Labels"]
        self.status, self.removed = "created", False
        nth = len(host.made)
        ports = {"222/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(40000 + nth)}]}
        networks = {f"seatrial-{RUN}": {"IPAddress": f"172.18.0.{nth + 2}"}}
        self.attrs: dict[str, Any] = {"NetworkSettings": {"Networks": networks, "Ports": ports}}
        self.output = b"sshd\n"

    def start(self) -> None:
        self.status = "running"

    def wait(self, timeout: float) -> None:
        assert timeout > 0

    def logs(self, **options: Any) -> Any:
        return iter([self.output] * 3) if options.get("stream") else self.output

    def remove(self, *, v: bool, force: bool) -> None:
        assert v
        assert force
        if self.removed:
            raise NotFound("gone")
        self.removed = True
        self.host.left.remove(self)


class Host:
    """The client of docker's SDK, as far as it is used."""

    def __init__(self, *, has_image: bool = True) -> None:
        self.made: list[Container] = []
        self.left: list[Container] = []
        self.networked: list[Any] = []
        self.archives: list[tuple[str, str]] = []
        self.pulled: list[Any] = [{"status": "pulling"}]
        self.has_image = has_image
        self.described: dict[str, Any] = {"NCPU": 12, "Runtimes": {"runc": {}}}
        self.api = SimpleNamespace(
            pull=lambda image, stream, decode: iter(self.pulled),
            create_container_from_config=self.create,
            put_archive=lambda container, path, data: self.archives.append((container, path)),
            start=lambda container: next(c for c in self.made if c.name == container).start(),
        )
        self.images = SimpleNamespace(get=self.image)
        self.containers = SimpleNamespace(list=self.list, get=lambda name: self.made[-1])
        self.networks = SimpleNamespace(list=lambda filters: self.networked, create=self.network)

    def info(self) -> dict[str, Any]:
        return self.described

    def image(self, name: str) -> None:
        if not self.has_image:
            raise ImageNotFound("no such image")

    def create(self, body: dict[str, Any], name: str) -> dict[str, str]:
        self.made.append(Container(self, name, body))
        self.left.append(self.made[-1])
        return {"Id": name}

    def list(self, *, all: bool, filters: dict[str, str], ignore_removed: bool) -> list[Container]:
        assert all
        assert ignore_removed
        name, _, value = filters["label"].partition("=")
        return [
            c for c in reversed(self.left) if name in c.labels and value in ("", c.labels[name])
        ]

    def network(self, name: str, **options: Any) -> None:
        config = [{"Subnet": None}, {"Subnet": "fd00::/64"}, {"Subnet": "172.18.0.1/16"}]
        network = SimpleNamespace(
            name=name, attrs={"Labels": options["labels"], "IPAM": {"Config": config}}
        )
        network.remove = lambda: self.networked.remove(network)
        self.networked.append(network)


def platform_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: Host, **fields: Any
) -> tuple[docker.Docker, Run]:
    monkeypatch.setattr(states, "root_folder", lambda kind: tmp_path / kind)
    monkeypatch.setattr(Daemon, "client", host)
    monkeypatch.setattr(docker, "wait_for_sshd", lambda *_: True)
    monkeypatch.setattr(docker, "AT_ONCE", 1)
    described = {
        "name": "test",
        "nodes": 2,
        "image": IMAGE,
        "platform": {"kind": "docker"},
        **fields,
    }
    cluster = Cluster.model_validate(described)
    return docker.platform(cluster), Run(RUN, cluster, load_suite("quick"), tmp_path / "out")


def test_a_run_that_is_up_is_attached_kept_and_its_logs_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host()
    platform, run = platform_and_run(tmp_path, monkeypatch, host)
    began = time.time()
    testbed = platform.launch(run)
    assert [(node.name, node.address) for node in testbed.nodes] == [
        ("node-0", "172.18.0.2"),
        ("node-1", "172.18.0.3"),
    ]
    assert (testbed.network, testbed.shared_cores) == ("172.18.0.0/16", 12)
    assert host.archives == [(container.name, "/etc") for container in host.made]
    labels = host.made[0].labels
    assert began - 1 <= int(labels[MADE]) <= time.time()
    assert int(labels[EXPIRES]) - int(labels[MADE]) >= 4 * 3600

    with socket.create_server(("127.0.0.1", 0)) as server:
        reachable = host.made[1].attrs["NetworkSettings"]["Ports"]["222/tcp"][0]
        state = docker.DockerState.load(states.run_folder(RUN, "docker"))
        assert (state.nodes[1].host, state.nodes[1].host_port) == (
            "127.0.0.1",
            int(reachable["HostPort"]),
        )
        here = state.nodes[1].model_copy(update={"host_port": server.getsockname()[1]})
        moved = state.model_copy(update={"nodes": (state.nodes[0], here)})
        platform._testbed(RUN, moved).dial(testbed.nodes[1], 5).close()

    assert platform.attach(RUN).nodes == testbed.nodes
    assert platform.leftovers() == []
    assert platform.keep(RUN, 600)
    host.made[1].output = b" \n"
    platform.collect(RUN, tmp_path / "logs", 30, Secrets(()))
    assert {f.name: f.read_text() for f in (tmp_path / "logs" / "nodes").iterdir()} == {
        "node-0.log": "sshd\n" * 3
    }


def test_exited_containers_say_why_and_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host()
    platform, run = platform_and_run(tmp_path, monkeypatch, host)
    testbed = platform.launch(run)
    assert testbed.blameless_reason(testbed.nodes[1]) is None
    host.made[1].status = "exited"
    host.made[1].attrs["State"] = {"ExitCode": 9, "Error": "killed by the kernel"}
    assert "status 9: killed by the kernel" in str(testbed.blameless_reason(testbed.nodes[1]))
    assert platform.attach(RUN)
    host.made[0].status = "exited"
    assert not platform.keep(RUN, 600)
    with pytest.raises(InputError, match="is over"):
        platform.attach(RUN)
    host.left.remove(host.made[0])
    assert "is gone" in str(testbed.blameless_reason(testbed.nodes[0]))
    platform.teardown(RUN)
    assert (host.left, host.networked) == ([], [])
    assert not states.run_folder(RUN, "docker").exists()
    platform.collect(RUN, tmp_path / "none", 30, Secrets(()))
    assert not (tmp_path / "none").exists()


def test_single_container_on_the_host_network_shares_no_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host()
    platform, run = platform_and_run(
        tmp_path, monkeypatch, host, nodes=1, platform={"kind": "docker", "network": "host"}
    )
    testbed = platform.launch(run)
    assert (testbed.network, testbed.shared_cores, host.networked) == (None, None, [])
    assert (testbed.head.address, testbed.head.port) == ("127.0.0.1", run.cluster.ssh_port)


def test_an_image_is_pulled_where_it_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(has_image=False)
    platform, run = platform_and_run(tmp_path, monkeypatch, host)
    host.pulled.append({"error": "manifest unknown"})
    with pytest.raises(LaunchError, match="manifest unknown"):
        platform.launch(run)
    host.has_image = True
    docker.ensure_image(platform._daemon, IMAGE)


def test_expired_containers_of_other_runs_are_leftovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host()
    platform, run = platform_and_run(tmp_path, monkeypatch, host)
    platform.launch(run)
    before, after = str(int(time.time()) - 100), str(int(time.time()) + 100)
    for run_id, expires in (("old", before), ("young", after), ("../x", before)):
        labels = {RUN_ID: run_id, NODE: "node-0", OWNER: "other/1", MADE: before, EXPIRES: expires}
        host.create({"Labels": labels}, run_id)
    (left,) = platform.leftovers()
    assert left.run_id == "old"
    assert 99 <= left.age_s <= 3600
    states.keep(states.run_folder(RUN, "docker"), -1)
    assert {leftover.run_id for leftover in platform.leftovers()} == {"old", RUN}
    host.left, host.networked = [], []
    (keys,) = platform.leftovers()  # by the folder alone
    assert (keys.run_id, keys.what) == (RUN, "its keys on this machine")
    elsewhere = Cluster.model_validate(
        {
            "name": "x",
            "nodes": 1,
            "image": IMAGE,
            "platform": {"kind": "docker", "host": "ssh://other"},
        }
    )
    assert docker.platform(elsewhere).leftovers() == []


GPUS: dict[str, Any] = {"hardware": "H100-SXM", "gpus_per_node": 2}
NVIDIA: dict[str, Any] = {"Runtimes": {"nvidia": {}}}


@pytest.mark.parametrize(
    ("fields", "described", "counted", "words"),
    [
        ({}, {}, b"", None),
        (GPUS, {}, b"4", "nvidia runtime"),
        (GPUS, NVIDIA, b"4", None),
        (GPUS, NVIDIA, b"3", "3"),
        (GPUS, NVIDIA, b"no", "0"),
        (
            {**GPUS, "platform": {"kind": "docker", "cdi": True}},
            {"CDISpecDirs": []},
            b"4",
            "CDI devices",
        ),
        (
            {**GPUS, "platform": {"kind": "docker", "cdi": True}},
            {"DiscoveredDevices": [1]},
            b"4",
            None,
        ),
        (
            {
                **GPUS,
                "gpus_per_node": 1,
                "platform": {"kind": "docker", "gpus": [["MIG-a"], ["MIG-b"]]},
            },
            NVIDIA,
            b"1",  # both are parts of one
            None,
        ),
    ],
)
def test_missing_names_what_keeps_a_run_from_starting(
    fields: dict[str, Any],
    described: dict[str, Any],
    counted: bytes,
    words: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host()
    host.described |= described
    monkeypatch.setattr(Container, "logs", lambda self, tail: b"first\n" + counted + b"\n")
    platform, _ = platform_and_run(tmp_path, monkeypatch, host, **fields)
    problems = platform.missing()
    assert len(problems) == (words is not None)
    assert words is None or words in problems[0].sentence
    assert host.left == []


def test_launch_fails_when_sshd_is_silent_or_a_container_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host()
    platform, run = platform_and_run(tmp_path, monkeypatch, host)
    monkeypatch.setattr(docker, "wait_for_sshd", lambda *_: False)
    with pytest.raises(LaunchError, match=r"node-0, node-1 .*120 s .*at this machine"):
        platform.launch(run)

    def wait(testbed: object, limit_s: float, none_yet: Any, pause_s: float) -> bool:
        none_yet()
        for container in host.left:
            container.status = "exited"
        none_yet()
        return True

    platform.teardown(RUN)
    monkeypatch.setattr(docker, "wait_for_sshd", wait)
    with pytest.raises(LaunchError, match="node-0 ended with status"):
        platform.launch(run)


def test_logs_are_bounded_and_nodes_are_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker, "_LOG_BYTES", 10)
    read: list[int] = []

    def endless(**_: Any) -> Iterator[bytes]:
        while True:
            read.append(1)
            yield b"12345"

    container: Any = SimpleNamespace(name="c", logs=endless)
    assert docker._log_of(container) == "12345" * 3
    assert len(read) == 3
    assert [
        _index(name) for name in ("node-7", "node-12", "node-", "x", "node-1234567", "node-99999")
    ] == [*(7, 12, 0, 0, 0, 99999)]


def test_a_daemon_that_refuses_to_remove_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host()
    platform, run = platform_and_run(tmp_path, monkeypatch, host)
    platform.launch(run)

    def refuse(self: Container, **_: Any) -> None:
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(Container, "remove", refuse)
    with pytest.raises(SeatrialError, match="Permission denied"):
        platform.teardown(RUN)
    assert states.run_folder(RUN, "docker").exists()
