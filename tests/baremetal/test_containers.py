"""Hosts that start a container each: by podman for real, and by a script in place of Apptainer."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.config.run import Run
from seatrial.model.errors import LaunchError
from seatrial.model.testbed import Testbed
from seatrial.platforms import platform_for
from seatrial.platforms import state as states
from seatrial.remote.mpi import mpirun
from seatrial.remote.node_setup import set_up_node
from tests.baremetal.conftest import kill_and_reap, run_on, up
from tests.baremetal.containers import ApptainerHosts, DockerHosts, PodmanHosts
from tests.baremetal.test_run import CHAIN
from tests.e2e.conftest import Console, until
from tests.images import lane
from tests.quick_run import launched
from tests.site import PATIENCE_S
from tests.slurm.containers import MARK

NAMES = ("gpu-0", "gpu-1")
ABSENT = "localhost:9/nobody/has-it:1"


@pytest.fixture
def hosts() -> Iterator[PodmanHosts]:
    if reason := lane.lacking():
        pytest.skip(reason)
    hosts = PodmanHosts(NAMES)
    with up(hosts):
        yield hosts


@pytest.fixture
def settings(settings: dict[str, Any], hosts: PodmanHosts) -> dict[str, Any]:
    return {**settings, "hosts": ["gpu-[0-1]"], **hosts.fields}


@pytest.fixture
def run(settings: dict[str, Any], hosts: PodmanHosts, tmp_path: Path) -> Run:
    return run_on(settings, tmp_path, nodes=2, image=hosts.image)


def test_containers_go_through_the_whole_chain(
    console: Console, hosts: PodmanHosts, settings: dict[str, Any]
) -> None:
    cluster = console.cluster(2, platform=settings, image=hosts.image, keep="always")
    finished = console.check(cluster, console.suite(**CHAIN))
    assert finished.status == 0, finished.output
    assert {check["name"]: check["verdict"] for check in finished.document["checks"]} == {
        "connectivity": "pass",
        "collectives": "pass",
        "training": "pass",
    }
    assert [node["name"] for node in finished.document["nodes"]] == list(NAMES)
    logged_in = console.run(
        "ssh", "out", "gpu-1", "--", "hostname; ls /usr/local/bin/seatrial-node"
    )
    assert logged_in.out.split() == ["gpu-1", "/usr/local/bin/seatrial-node"], logged_in.output
    assert console.run("reap", "--run", finished.document["run_id"]).status == 0
    assert hosts.left() == set()


def test_keys_appear_in_no_process_arguments_or_podman_inspect_output(
    run: Run, hosts: PodmanHosts
) -> None:
    with launched(run):
        inspected = hosts.on("gpu-0", "podman", "inspect", f"seatrial-{run.run_id}")
        arguments = hosts.on("gpu-0", "sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ")
    assert json.loads(inspected)[0]["HostConfig"]["NetworkMode"] == "host"
    for text in (inspected, arguments):
        assert "PRIVATE KEY" not in text
        assert "ssh-ed25519" not in text


def test_hosts_remove_their_container_at_the_deadline(
    settings: dict[str, Any], hosts: PodmanHosts, tmp_path: Path
) -> None:
    with launched(run_on({**settings, "deadline_s": 15}, tmp_path, nodes=2, image=hosts.image)):
        assert hosts.left()
        until(lambda: not hosts.left())


def test_a_killed_run_is_reaped(
    console: Console, hosts: PodmanHosts, settings: dict[str, Any]
) -> None:
    cluster = console.cluster(2, platform=settings, image=hosts.image)

    def both_up() -> bool:
        return len({left[:5] for left in hosts.left() if "conmon" in left}) == 2

    assert kill_and_reap(console, cluster, hosts, both_up) == set()


@pytest.mark.parametrize("victim", ["supervisor", "podman", "both"])
def test_nothing_is_left_when_a_process_of_the_run_is_killed(
    run: Run, hosts: PodmanHosts, victim: str
) -> None:
    with launched(run):
        record = json.loads(hosts.on("gpu-1", "cat", f"/tmp/seatrial-{run.run_id}/supervisor.json"))
        client = hosts.on(
            "gpu-1", "pgrep", "-f", f"^podman run --name=seatrial-{run.run_id}"
        ).split()
        pids = {"supervisor": [str(record["pid"])], "podman": client}
        hosts.on("gpu-1", "kill", "-KILL", *(pids.get(victim) or [*pids["supervisor"], *client]))
        # One ends what the other has left, but for the files of the supervisor
        if victim != "both":
            until(
                lambda: (
                    not any(
                        "sshd" in left or left == f"seatrial-{run.run_id}"
                        for left in hosts.left_on("gpu-1")
                    )
                )
            )
    assert hosts.left() == set()


def test_an_image_that_no_registry_gives_is_named(
    settings: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "seatrial.launch")
    run = run_on(settings, tmp_path, nodes=2, image=ABSENT)
    problems = platform_for(run.cluster).missing()
    assert [problem.code for problem in problems] == ["baremetal-image-missing"] * 2
    assert (
        problems[0].sentence
        == f"gpu-0: image {ABSENT} is not there: a run pulls it, or `podman pull` does now"
    )
    refuses = rf"gpu-0: image {ABSENT} is not there: .*connection refused"
    with pytest.raises(LaunchError, match=refuses), launched(run):
        pass
    assert f"2 hosts lack {ABSENT}, and pull it now: gpu-0, gpu-1" in caplog.messages


def test_a_runtime_that_hosts_lack_is_named(settings: dict[str, Any], tmp_path: Path) -> None:
    described = {**settings, "runtime": "singularity", "ulimits": {}}
    run = run_on(described, tmp_path, nodes=2, image="/images/acceptance.sif")
    lacking = [f"gpu-{n}: singularity missing or cannot be run" for n in (0, 1)]
    assert list(map(str, platform_for(run.cluster).missing())) == lacking
    with pytest.raises(LaunchError, match="; ".join(lacking)), launched(run):
        pass


def test_launch_error_quotes_podman_when_it_refuses_a_mount(
    settings: dict[str, Any], hosts: PodmanHosts, tmp_path: Path
) -> None:
    absent = {"source": "/no/such/folder", "target": "/data"}
    run = run_on({**settings, "mounts": [absent]}, tmp_path, nodes=2, image=hosts.image)
    with pytest.raises(LaunchError, match=r"gpu-0: .*/no/such/folder"), launched(run):
        pass


def test_doctor_finds_nothing_missing(run: Run) -> None:
    assert platform_for(run.cluster).missing() == []


def test_docker_client_starts_and_removes_containers_on_hosts(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    if not shutil.which("docker"):
        pytest.skip("missing: the client docker")
    docker = DockerHosts(NAMES)
    with up(docker):
        own = {"ssh_config": str(docker.folder / "ssh_config"), **docker.fields}
        run = run_on({**settings, **own}, tmp_path, nodes=2, image=docker.image)
        assert platform_for(run.cluster).missing() == []
        with launched(run) as testbed:
            for node in testbed.nodes:
                set_up_node(testbed, node, 60).transport.close()
            names = mpirun(testbed, ["hostname"], timeout_s=PATIENCE_S).lines
            # Warnings of Open MPI
            assert sorted(name for name in names if not name.startswith("[")) == list(NAMES)
        assert docker.left() == set()
        absent = run_on({**settings, **own}, tmp_path / "absent", nodes=2, image=ABSENT)
        problems = platform_for(absent.cluster).missing()
        assert [problem.code for problem in problems] == ["baremetal-image-missing"] * 2


def test_a_daemon_that_does_not_answer_leaves_nothing_to_clear(
    settings: dict[str, Any], hosts: PodmanHosts, tmp_path: Path
) -> None:
    if not shutil.which("docker"):
        pytest.skip("missing: the client docker")
    run = run_on({**settings, "runtime": "docker"}, tmp_path, nodes=2, image=hosts.image)
    with pytest.raises(LaunchError, match=r"gpu-0: docker: .*daemon"), launched(run):
        pass  # its teardown raises where a host may still hold something
    assert run.run_id not in states.run_ids()


# --- Apptainer, by a script with its options ---


def in_the_image(testbed: Testbed) -> list[str]:
    for node in testbed.nodes:
        set_up_node(testbed, node, 60).transport.close()
    return sorted(
        mpirun(
            testbed, ["sh", "-c", f"echo $(hostname) $(cat /{MARK})"], timeout_s=PATIENCE_S
        ).lines
    )


def test_apptainer_starts_the_image_on_every_host(settings: dict[str, Any], tmp_path: Path) -> None:
    apptainer = ApptainerHosts(NAMES)
    with up(apptainer):
        own = {
            "ssh_config": str(apptainer.folder / "ssh_config"),
            "ulimits": {},
            **apptainer.fields,
        }
        run = run_on({**settings, **own}, tmp_path, nodes=2, image=apptainer.image)
        assert platform_for(run.cluster).missing() == []
        with launched(run) as testbed:
            assert in_the_image(testbed) == [f"{name} trials.sif.root" for name in NAMES]
        assert apptainer.left() == set()
        absent = run_on({**settings, **own}, tmp_path / "absent", nodes=2, image="/no/such.sif")
        words = [
            f"{name}: image /no/such.sif is not there: there is no such file" for name in NAMES
        ]
        assert list(map(str, platform_for(absent.cluster).missing())) == words
