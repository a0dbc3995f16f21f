"""What the Helm chart knows from seatrial; `python -m tests.unit.kubernetes.chart` writes its
facts.yaml anew.
"""

from pathlib import Path
from typing import Any, get_args

import yaml

from seatrial.config.cluster import Cluster
from seatrial.platforms.kubernetes import config, machines, pod
from seatrial.platforms.kubernetes import platform as kubernetes
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.text.redact import SECRET_NAME

CHART = Path(__file__).parents[3] / "deployments" / "helm" / "testbed"
FACTS = CHART / "facts.yaml"
MACHINES: tuple[str, ...] = get_args(KubernetesPlatform.model_fields["machine"].annotation)
_HEAD = (
    "# Written by `python -m tests.unit.kubernetes.chart` from seatrial/platforms/kubernetes; "
    "a test compares.\n"
)


def facts() -> str:
    """The machine families, and what no value may be."""
    known = {
        "secret_names": f"(?i){SECRET_NAME.pattern}",
        "own_names": list(kubernetes._OURS),
        "taken_paths": list(config._TAKEN),
        "machines": {name: _machine(name) for name in MACHINES},
    }
    written: str = yaml.dump(known, Dumper=kubernetes._Plain, sort_keys=False, width=120)
    return _HEAD + written


def _machine(name: str) -> dict[str, Any]:
    """What a pod gets on such machines, in the words of a pod's spec where it has some."""
    profile = machines.MACHINES[name]
    settings = {"kind": "kubernetes", "machine": name}
    cluster = Cluster.model_validate({"name": "chart", "nodes": 1, "platform": settings})
    assert isinstance(cluster.platform, KubernetesPlatform)
    source = {"SEATRIAL_SOURCE": profile.source} if profile.source else {}
    return {
        "gpus": profile.gpus,
        "annotations": profile.annotations,
        "network_annotations": profile.network_annotations,
        "node_selector": pod.node_selector(cluster, cluster.platform),
        "tolerations": pod.tolerations(cluster, cluster.platform),
        "defaults": _variables({**source, **profile.defaults}),
        "env": _variables(profile.env),
        "shared_memory": profile.shared_memory,
        "volumes": list(profile.volumes),
        "mounts": list(profile.mounts),
        "init_containers": list(profile.init_containers),
        "compute_domain": profile.compute_domain,
        "rdma_claims": profile.rdma_claims,
        "host_ipc": profile.host_ipc,
    }


def _variables(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


if __name__ == "__main__":
    FACTS.write_text(facts())
