"""What the daemon says of containers: where nodes are, why they ended, and which of them are left
over.
"""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.run import Run
from seatrial.model.errors import LaunchError
from seatrial.platforms.docker import DockerPlatform
from seatrial.platforms.docker.daemon import error_text
from seatrial.platforms.docker.plan import EXPIRES, KIND, MADE, OWNER, DockerPlan
from seatrial.platforms.docker.platform import is_abandoned, node_addresses, why_ended
from seatrial.platforms.state import this_owner
from tests.unit.docker.golden import clusters

NETWORK = "seatrial-r1"
GOOD: dict[str, Any] = {
    "Networks": {NETWORK: {"IPAddress": "172.18.0.2"}},
    "Ports": {"222/tcp": [{"HostIp": "127.0.0.1", "HostPort": "40001"}]},
}


def daemon(attrs: dict[str, Any], status: str = "running", host: str | None = None) -> Any:
    """One that has one container of the run."""
    labels = {"seatrial.node": "node-0"}
    container = SimpleNamespace(
        labels=labels, name="c", status=status, attrs=attrs, logs=lambda tail: b"one\n\x1b[1mtwo"
    )
    return SimpleNamespace(remote_host=host, containers=lambda run_id: [container])


def plan() -> DockerPlan:
    cluster = clusters()["cpu"]
    return DockerPlan(
        Run("r1", cluster, load_suite("quick"), Path("out")),
        cast("DockerPlatform", cluster.platform),
    )


def test_peers_use_the_container_network_and_this_machine_the_published_port() -> None:
    place = node_addresses(daemon({"NetworkSettings": GOOD}), plan())[0]
    assert (place.address, place.port, place.host, place.host_port) == (
        "172.18.0.2",
        222,
        "127.0.0.1",
        40001,
    )


def test_containers_of_a_remote_daemon_are_reached_on_its_host() -> None:
    assert (
        node_addresses(daemon({"NetworkSettings": GOOD}, host="gpu-box"), plan())[0].host
        == "gpu-box"
    )


@pytest.mark.parametrize(
    "broken",
    [None, {}, {**GOOD, "Ports": None}, {**GOOD, "Ports": {"222/tcp": []}}, {**GOOD, "Networks": {}},
     {**GOOD, "Ports": {"222/tcp": [{"HostPort": "70000"}]}}, {**GOOD, "Networks": {NETWORK: {"IPAddress": ""}}}],
)  # fmt: skip
def test_a_container_without_an_address_is_named(broken: Any) -> None:
    with pytest.raises(LaunchError, match="the container of node-0 runs without an address"):
        node_addresses(daemon({"NetworkSettings": broken}), plan())


def test_a_container_that_ended_is_named_with_its_last_words() -> None:
    with pytest.raises(
        LaunchError, match=r"the container of node-0 ended with status 2: .*two"
    ) as failed:
        node_addresses(daemon({"State": {"ExitCode": 2}}, status="exited"), plan())
    assert str(failed.value).isprintable()


def test_a_container_that_ran_out_of_memory_is_named_with_that_cause() -> None:
    container = daemon({"State": {"ExitCode": 137, "OOMKilled": True}}, status="exited").containers(
        "r1"
    )[0]
    assert "it ran out of memory" in why_ended(container).sentence


def test_error_text_is_one_bounded_printable_line() -> None:
    text = error_text(RuntimeError("no such\n device \x1b[31mred\x1b[0m " + "x" * 10_000))
    assert text.isprintable()
    assert text.startswith("no such device")
    assert len(text) <= 500


def test_error_without_a_message_is_named_by_its_type() -> None:
    assert error_text(TimeoutError()) == "TimeoutError"


LONG_AGO, LATER = "1000000000", "99999999999"


@pytest.fixture
def _no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    # The state of a plain user is in the test's own folder
    monkeypatch.setattr("os.geteuid", lambda: 1)


def own(made: str) -> dict[str, str]:
    return {OWNER: this_owner(KIND), MADE: made, EXPIRES: LATER}


@pytest.mark.usefixtures("_no_root")
def test_own_containers_without_a_run_are_abandoned_after_a_minute() -> None:
    assert is_abandoned("r1", own(LONG_AGO))
    assert not is_abandoned("r1", own(str(int(time.time()))))


def test_containers_of_another_user_are_abandoned_after_their_expiry() -> None:
    assert is_abandoned("r1", {OWNER: "other/1", MADE: LONG_AGO, EXPIRES: LONG_AGO})
    assert not is_abandoned("r1", {OWNER: "other/1", MADE: LONG_AGO, EXPIRES: LATER})


@pytest.mark.parametrize("value", ["", "never", "-1", "1e3", "٣", "9" * 40])
def test_an_invalid_time_label_makes_no_leftover(value: str) -> None:
    assert not is_abandoned("r1", {OWNER: "other/1", EXPIRES: value})
