"""Does an image suit the nodes and the suite?"""

from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.requirements import lacking
from seatrial.config.architecture import foreign_nodes, node_architecture, wrong_architecture
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.config.suite import load_suite
from seatrial.model.errors import MissingError
from seatrial.model.testbed import Node, Testbed, dial_tcp
from tasks.image import demand, what_nodes_lack

QUICK = load_suite("quick")


def cluster(hardware: str, **platform: Any) -> Cluster:
    gpus = 0 if hardware == "cpu" else 4
    where = platform or {"kind": "docker"}
    return Cluster.model_validate(
        {"name": "c", "nodes": 2, "hardware": hardware, "gpus_per_node": gpus, "platform": where}
    )


def fact(**told: Any) -> dict[str, Any]:
    there = {"architecture": "x86_64", "mpirun": "/m", "sshd": "/s", "nccl_tests": "/n", "versions": {"torch": "2.6"}}
    return there | told


@pytest.mark.parametrize(
    ("wanted", "architecture"),
    [
        (cluster("GB200-NVL72"), "arm64"),
        (cluster("H100-SXM"), "amd64"),
        (cluster("B200-SXM", kind="kubernetes", machine="a4x"), "arm64"),
        (cluster("cpu", kind="local"), "arm64"),
        (cluster("cpu", kind="kubernetes"), None),
    ],
)
def test_what_the_nodes_are(wanted: Cluster, architecture: str | None) -> None:
    assert node_architecture(wanted, "aarch64") == architecture


def test_an_image_of_another_architecture_is_named() -> None:
    wrong = wrong_architecture("r/x:1", ("amd64",), cluster("GB200-NVL72"), "x86_64")
    assert wrong == "image r/x:1 is for amd64, the nodes (GB200-NVL72) are arm64: build it for linux/arm64"
    assert wrong_architecture("r/x:1", ("amd64", "arm64"), cluster("GB200-NVL72"), "x86_64") is None
    assert wrong_architecture("r/x:1", (), cluster("GB200-NVL72"), "x86_64") is None


def test_nodes_of_another_architecture_are_named() -> None:
    facts = {"node-0": fact(architecture="aarch64"), "node-1": fact()}
    said = foreign_nodes(facts, cluster("GB200-NVL72"), "x86_64")
    assert said is not None
    assert said.startswith("node-1 run as amd64, and GB200-NVL72 is arm64")
    assert foreign_nodes({"node-0": fact()}, cluster("H100-SXM"), "aarch64") is None


def test_nothing_is_lacking() -> None:
    assert lacking({"node-0": fact()}, QUICK, gpus=True, image="r/x:1") == {}


@pytest.mark.parametrize(
    ("told", "gpus", "lacks"),
    [
        ({"nccl_tests": ""}, True, {"collectives": "nccl-tests is missing in image r/x:1: put all_"}),
        ({"nccl_tests": ""}, False, {}),
        ({"versions": {"torch": ""}}, True, {"training": "torch is missing in image r/x:1"}),
        ({"versions": {"torch": ""}}, False, {"collectives": "torch is missing", "training": "torch is missing"}),
        ({"versions": {"torch": None}}, False, {}),
        ({"sshd": ""}, False, {"connectivity": "sshd is missing in image r/x:1: install openssh-server"}),
        ({"sshd": None}, False, {}),
        ({"mpirun": ""}, False, {"connectivity": "mpirun is missing in image r/x:1"}),
    ],
)  # fmt: skip
def test_what_is_lacking_is_named_for_the_step_that_needs_it(told: Any, gpus: bool, lacks: dict[str, str]) -> None:
    found = lacking({"node-0": fact(**told), "node-1": fact(**told)}, QUICK, gpus=gpus, image="r/x:1")
    assert found.keys() == lacks.keys()
    assert all(found[step].startswith(reason) for step, reason in lacks.items())


def test_where_only_some_nodes_lack_it_they_are_named() -> None:
    facts = {"node-0": fact(), "node-1": fact(nccl_tests="")}
    assert lacking(facts, QUICK, gpus=True, image=None)["collectives"].startswith("nccl-tests is missing on node-1: ")


def test_a_step_that_lacks_something_is_not_run(tmp_path: Path) -> None:
    wanted = cluster("H100-SXM")
    nodes = tuple(Node(f"node-{i}", "10.0.0.1", 222, 4, "key", gpus=4) for i in range(2))
    testbed = Testbed("r", nodes, "root", Path("key"), dial_tcp, "/tmp/probes")
    run = Run("r", wanted, QUICK, tmp_path, image="r/x:1@sha256:00")
    facts = {node.name: fact(nccl_tests="") for node in nodes} | {"node-2": fact(versions={"torch": ""})}  # taken out
    lacks = what_nodes_lack(run, testbed, facts)
    demand("training", lacks)
    with pytest.raises(
        MissingError, match=r"nccl-tests is missing in image r/x:1@sha256:00: put all_reduce_perf on PATH"
    ):
        demand("collectives", lacks)
    emulated = what_nodes_lack(run, testbed, {node.name: fact(architecture="aarch64") for node in nodes})
    with pytest.raises(MissingError, match=r"node-0, node-1 run as arm64, and H100-SXM is amd64"):
        demand("training", emulated)
