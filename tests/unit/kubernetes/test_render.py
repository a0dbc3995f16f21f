"""What is submitted to Kubernetes, by launcher and machine family: golden files, and the rules that hold for all."""

from typing import Any

import pytest
import yaml

from seatrial.cluster import Cluster
from seatrial.errors import InputError
from seatrial.platforms import platform_for
from tests.unit.kubernetes.golden import CLUSTERS, GOLDEN, rendered


@pytest.mark.parametrize("name", CLUSTERS)
def test_golden(name: str) -> None:
    assert rendered(name) == (GOLDEN / f"{name}.yaml").read_text(), (
        "if this is meant: python -m tests.unit.kubernetes.golden"
    )


def objects(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(rendered(name)))


def pod_specs(thing: Any) -> list[dict[str, Any]]:
    """Every pod spec in an object, wherever it is."""
    if isinstance(thing, list):
        return [spec for part in thing for spec in pod_specs(part)]
    if not isinstance(thing, dict):
        return []
    if "containers" in thing:
        return [thing]
    return [spec for part in thing.values() for spec in pod_specs(part)]


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_object_carries_the_run(name: str) -> None:
    for thing in objects(name):
        assert thing["metadata"]["labels"]["seatrial/run-id"] == "20260101-0000-abcde", thing["kind"]
        assert thing["metadata"]["namespace"] == CLUSTERS[name]["platform"].get("namespace", "default")
        assert len(thing["metadata"]["name"]) <= 63


@pytest.mark.parametrize("name", CLUSTERS)
def test_one_port_feeds_pod_service_and_entry_point(name: str) -> None:
    port = CLUSTERS[name].get("ssh_port", 222)
    service = next(thing for thing in objects(name) if thing["kind"] == "Service")
    assert [entry["port"] for entry in service["spec"]["ports"]] == [port]
    nodes = [spec for spec in pod_specs(objects(name)) if spec["containers"][0].get("ports")]
    assert nodes
    for spec in nodes:
        container = spec["containers"][0]
        assert [entry["containerPort"] for entry in container["ports"]] == [port]
        assert {"name": "SEATRIAL_SSH_PORT", "value": str(port)} in container["env"]
        assert not spec.get("automountServiceAccountToken", False)


def test_no_key_is_shown() -> None:
    assert "PRIVATE" not in "".join(rendered(name) for name in CLUSTERS)


@pytest.mark.parametrize(
    ("machine", "gpus", "nodes", "legal"),
    [("a4", 4, 2, "has 8 a node"), ("a4x", 8, 2, "has 4 a node"), ("a4", 12, 1, "has 8, is 12")],
)
def test_gpus_that_a_machine_has_not_are_refused(machine: str, gpus: int, nodes: int, legal: str) -> None:
    asked = {**CLUSTERS["a4"], "gpus_per_node": gpus, "nodes": nodes}
    asked["platform"] = {**asked["platform"], "machine": machine}
    with pytest.raises(InputError, match=f"gpus_per_node: machine {machine} {legal}"):
        platform_for(Cluster.model_validate(asked))


def test_part_of_one_node_is_legal() -> None:
    asked = {**CLUSTERS["a4"], "gpus_per_node": 4, "nodes": 1}
    assert platform_for(Cluster.model_validate(asked))
