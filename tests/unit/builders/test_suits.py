"""Does an image suit the nodes and the suite?"""

from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.collectives.check import COLLECTIVES
from seatrial.checks.contract import CheckContext, lacking, try_check
from seatrial.checks.suites import load_suite
from seatrial.checks.table import CHECKS
from seatrial.checks.training.check import TRAINING
from seatrial.config.architecture import foreign_nodes, node_architecture, wrong_architecture
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import MissingError
from seatrial.model.testbed import Node, Testbed, dial_tcp

QUICK = load_suite("quick")


def cluster(hardware: str, **platform: Any) -> Cluster:
    gpus = 0 if hardware == "cpu" else 4
    where = (
        {"platform": platform}
        if platform
        else {"platform": {"kind": "docker"}, "image": "registry.example.com/x:1"}
    )
    return Cluster.model_validate(
        {"name": "c", "nodes": 2, "hardware": hardware, "gpus_per_node": gpus, **where}
    )


def fact(**fields: Any) -> dict[str, Any]:
    there = {
        "architecture": "x86_64",
        "mpirun": "/m",
        "sshd": "/s",
        "nccl_tests": "/n",
        "versions": {"torch": "2.6"},
    }
    return there | fields


@pytest.mark.parametrize(
    ("config", "architecture"),
    [
        (cluster("GB200-NVL72"), "arm64"),
        (cluster("H100-SXM"), "amd64"),
        (cluster("B200-SXM", kind="kubernetes", machine="a4x"), "arm64"),
        (cluster("cpu", kind="local"), "arm64"),
        (cluster("cpu", kind="kubernetes"), None),
    ],
)
def test_the_architecture_follows_platform_and_hardware(
    config: Cluster, architecture: str | None
) -> None:
    assert node_architecture(config, "aarch64") == architecture


def test_an_image_of_another_architecture_is_named() -> None:
    wrong = wrong_architecture("r/x:1", ("amd64",), cluster("GB200-NVL72"), "x86_64")
    assert (
        str(wrong)
        == "image r/x:1 is for amd64, the nodes (GB200-NVL72) are arm64: build it for linux/arm64"
    )
    assert wrong_architecture("r/x:1", ("amd64", "arm64"), cluster("GB200-NVL72"), "x86_64") is None
    assert wrong_architecture("r/x:1", (), cluster("GB200-NVL72"), "x86_64") is None


def test_nodes_of_another_architecture_are_named() -> None:
    facts = {"node-0": fact(architecture="aarch64"), "node-1": fact()}
    reason = foreign_nodes(facts, cluster("GB200-NVL72"), "x86_64")
    assert reason is not None
    assert reason.sentence.startswith("node-1 run as amd64, and GB200-NVL72 is arm64")
    assert foreign_nodes({"node-0": fact()}, cluster("H100-SXM"), "aarch64") is None


def context(
    facts: dict[str, dict[str, Any]],
    *,
    gpus: int,
    image: str | None = "r/x:1",
    hardware: str | None = None,
) -> CheckContext:
    """Two nodes, `node-0` and `node-1`, of which `facts` are known."""
    nodes = tuple(Node(f"node-{i}", "10.0.0.1", 222, 4, "key", gpus=gpus) for i in range(2))
    testbed = Testbed("r", nodes, "root", Path("key"), dial_tcp, "/tmp/probes")
    config = cluster(hardware) if hardware else cluster("cpu", kind="kubernetes")
    return CheckContext(Run("r", config, QUICK, Path("out"), image), testbed, facts)


def lacks(of: CheckContext) -> dict[str, str]:
    return {kind.name: reason.sentence for kind in CHECKS if (reason := lacking(kind, of))}


@pytest.mark.parametrize("gpus", [0, 4])
def test_checks_lack_no_program_on_complete_nodes(gpus: int) -> None:
    assert lacks(context({"node-0": fact(), "node-1": fact()}, gpus=gpus)) == {}


def test_checks_lack_no_program_before_facts_are_known() -> None:
    assert lacks(context({}, gpus=4)) == {}


@pytest.mark.parametrize(
    ("fields", "gpus", "lacking"),
    [
        ({"nccl_tests": ""}, 4, {"collectives": "nccl-tests is missing in image r/x:1: put all_"}),
        ({"nccl_tests": ""}, 0, {}),
        (
            {"versions": {"torch": ""}},
            4,
            {"devices": "torch is missing", "training": "torch is missing in image r/x:1"},
        ),
        (
            {"versions": {"torch": ""}},
            0,
            dict.fromkeys(("devices", "collectives", "training"), "torch is missing"),
        ),
        ({"versions": {"torch": None}}, 0, {}),
    ],
)
def test_a_missing_program_is_named_by_check(
    fields: Any, gpus: int, lacking: dict[str, str]
) -> None:
    reasons = lacks(context({"node-0": fact(**fields), "node-1": fact(**fields)}, gpus=gpus))
    assert reasons.keys() == lacking.keys()
    assert all(reasons[check].startswith(reason) for check, reason in lacking.items())


def test_reason_names_the_nodes_when_only_some_lack_a_program() -> None:
    facts = {"node-0": fact(), "node-1": fact(nccl_tests="")}
    reasons = lacks(context(facts, gpus=4, image=None))
    assert reasons["collectives"].startswith("nccl-tests is missing on node-1: ")


def test_a_check_that_lacks_something_is_not_run() -> None:
    # Taken out
    facts = {f"node-{i}": fact(nccl_tests="") for i in range(2)} | {
        "node-2": fact(versions={"torch": ""})
    }
    of = context(facts, gpus=4, image="r/x:1@sha256:00", hardware="H100-SXM")
    assert lacks(of).keys() == {"collectives"}
    with pytest.raises(
        MissingError,
        match=r"nccl-tests is missing in image r/x:1@sha256:00: put all_reduce_perf on PATH",
    ):
        try_check(COLLECTIVES, of)


def test_on_nodes_of_another_architecture_no_check_is_run() -> None:
    facts = {f"node-{i}": fact(architecture="aarch64") for i in range(2)}
    with pytest.raises(MissingError, match=r"node-0, node-1 run as arm64, and H100-SXM is amd64"):
        try_check(TRAINING, context(facts, gpus=4, hardware="H100-SXM"))
