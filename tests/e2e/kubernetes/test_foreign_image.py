"""Nodes of an image that is not ours on real kubelets: Debian with sshd, Open MPI and nccl-tests,
without Python.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Console
from tests.e2e.kubernetes.cluster import Cluster, Unavailable
from tests.e2e.kubernetes.images import build_foreign, load
from tests.e2e.kubernetes.kinds import left
from tests.unit.collectives.fake_mpirun import GPU_SIZES

FOREIGN = "localhost/foreign/debian:test"


def test_nodes_of_an_image_with_sshd_open_mpi_and_nccl_tests_are_swept(
    console: Console,
    trial: Callable[..., Path],
    least_rights: None,
    own_cluster: Cluster,
    namespace: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    try:
        load(
            own_cluster.own,
            own_cluster.nodes,
            build_foreign(tmp_path_factory.mktemp("foreign")),
            FOREIGN,
        )
    except Unavailable as reason:
        pytest.skip(str(reason))
    # As the runtime of GPUs does, the pod brings nvidia-smi, here one that prints a GPU.
    driver = {"name": "driver", "configMap": {"name": "driver", "defaultMode": 0o755}}
    mount = {"name": "driver", "mountPath": "/usr/bin/nvidia-smi", "subPath": "nvidia-smi"}
    own_cluster.kubectl(
        "create",
        "configmap",
        "driver",
        "--from-literal=nvidia-smi=#!/bin/sh\necho test",
        "-n",
        namespace,
    )
    file = trial(image=FOREIGN, pod_spec={"volumes": [driver]}, container={"volumeMounts": [mount]})
    more = {"slots_per_node": 1, "gpus_per_node": 1, "hardware": {"name": "test"}}
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **more}))
    sizes = {"min_bytes": GPU_SIZES[0], "max_bytes": GPU_SIZES[-1], "step_factor": 4}
    sweep = {"operations": ["all_reduce"], "gpu": sizes, "cpu": sizes}
    finished = console.check(file, console.suite(collectives=sweep, training=None))
    assert finished.status == 0, finished.output
    assert finished.check("connectivity")["verdict"] == "pass"
    assert (
        "all_reduce over 2 ranks: every result is right" in finished.check("collectives")["reason"]
    )
    assert {node["name"] for node in finished.document["nodes"]} == set(own_cluster.nodes)
    assert "the nodes have no Python, so their hardware" in " ".join(finished.document["notes"])
    assert left(own_cluster, namespace) == ""
