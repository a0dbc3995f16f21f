"""Pod settings for each family of machines, from `machines.yaml`, which has their sources. Pure."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.config.yamlfile import Strict, read_mapping
from seatrial.platforms.container import has_amd_gpus

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

Manifest = dict[str, Any]  # a manifest, or a part of one
Networks = tuple[tuple[str, str], ...]  # (interface, network) pairs


class Machine(Strict):
    """Pod settings of one family of machines.

    `networks` are (interface, network) pairs for GKE's multi-networking. `gpus` are per node; 0 if
    the cluster file sets them. `source` is a script in the pod that sets NCCL's environment: it
    overrides `defaults`, and the NCCL_* of `env` override it in every rank. `compute_domain`:
    NVLink spans nodes, by NVIDIA's ComputeDomain. `rdma_claims`: the number of RDMA interfaces that
    come by claims instead of annotations.
    """

    gpus: int = 0
    hardware: str | None = None
    arch: str = "amd64"
    accelerator: str | None = None
    networks: Networks = ()
    shared_memory: str = "64Gi"
    source: str | None = None
    defaults: dict[str, str] = {}
    env: dict[str, str] = {}
    annotations: dict[str, str] = {}
    volumes: tuple[Manifest, ...] = ()
    mounts: tuple[Manifest, ...] = ()
    init_containers: tuple[Manifest, ...] = ()
    compute_domain: bool = False
    rdma_claims: int = 0
    host_ipc: bool = False

    @property
    def node_selector(self) -> dict[str, str]:
        return {"cloud.google.com/gke-accelerator": self.accelerator} if self.accelerator else {}

    @property
    def network_annotations(self) -> dict[str, str]:
        """GKE's annotations that attach the pod's interfaces to networks."""
        if not self.networks:
            return {}
        interfaces = [
            {"interfaceName": name, "network": network} for name, network in self.networks
        ]
        return {
            "networking.gke.io/default-interface": "eth0",
            "networking.gke.io/interfaces": json.dumps(interfaces),
        }

    @property
    def nccl_env(self) -> dict[str, str]:
        """The NCCL variables of ranks, which override those of the script that nodes source."""
        return {name: value for name, value in self.env.items() if name.startswith("NCCL_")}


def gpu_resource(cluster: "Cluster") -> str:
    """Return the resource name of the node's GPUs."""
    return "amd.com/gpu" if has_amd_gpus(cluster) else "nvidia.com/gpu"


def _read() -> dict[str, Machine]:
    file = Path(__file__).with_name("machines.yaml")
    families = read_mapping(file.read_text(encoding="utf-8"), file)
    return {name: Machine.model_validate(fields) for name, fields in families.items()}


MACHINES = _read()  # by family
