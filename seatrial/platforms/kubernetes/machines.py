"""Pod settings for each family of machines, with sources. Pure.

Sources: AI-Hypercomputer/gpu-recipes (src/helm-charts/{a3mega,a3ultra,a4}/jobset, training/a4x),
GoogleCloudPlatform/ cluster-toolkit
(examples/gke-{a3-ultragpu,a4,a4x,a4x-max-bm}/nccl-jobset-example.yaml) and
GoogleCloudPlatform/container-engine-accelerators (gpudirect-rdma, gpudirect-tcpxo).
"""

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from seatrial.platforms.container import has_amd_gpus

if TYPE_CHECKING:
    from seatrial.config.cluster import Cluster

Manifest = dict[str, Any]  # a manifest, or a part of one
Networks = tuple[tuple[str, str], ...]  # (interface, network) pairs
GIB = "/usr/local/gib"
GIB_INSTALLER = "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib-diagnostic:v1.0.6"
GIB_INSTALLER_ARM64 = (
    "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib-diagnostic-arm64:v1.0.6"
)
TCPXO_DAEMON = "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpxo/tcpgpudmarxd-dev:v1.0.19"
# Settings of the A4 recipe for gIB; NCCL_NET=gIB comes with the plugin. Google advises to source
# the script instead of copying values, so these are only defaults.
_A4_RECIPE = {
    "NCCL_CROSS_NIC": "0",
    "NCCL_NET_GDR_LEVEL": "PIX",
    "NCCL_P2P_NET_CHUNKSIZE": "131072",
    "NCCL_NVLS_CHUNKSIZE": "524288",
    "NCCL_IB_ADAPTIVE_ROUTING": "1",
    "NCCL_IB_QPS_PER_CONNECTION": "4",
    "NCCL_IB_TC": "52",
    "NCCL_IB_FIFO_TC": "84",
    "NCCL_MIN_NCHANNELS": "32",
}
_TCPXO_DEVICES = [
    *(f"/dev/nvidia{i}" for i in range(8)),
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/dmabuf_import_helper",
]
_TCPXO_SIDECAR = {  # a native sidecar: it lives as long as the pod, and holds no Job open
    "name": "tcpxo-daemon",
    "image": TCPXO_DAEMON,
    "restartPolicy": "Always",
    "command": ["/bin/sh", "-c"],
    "args": [
        "set -e; chmod 755 /fts/entrypoint_rxdm_container.sh;"
        " /fts/entrypoint_rxdm_container.sh --num_hops=2 --num_nics=8 --uid= --alsologtostderr"
    ],
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"add": ["NET_ADMIN", "NET_BIND_SERVICE"]},
    },
    "env": [{"name": "LD_LIBRARY_PATH", "value": "/usr/local/nvidia/lib64"}],
    "volumeMounts": [
        {"name": "nvidia", "mountPath": "/usr/local/nvidia"},
        {"name": "sys", "mountPath": "/hostsysfs"},
        {"name": "proc-sys", "mountPath": "/hostprocsysfs"},
    ],
}


@dataclass(frozen=True, slots=True)
class Machine:
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
    defaults: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
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


def _rdma(count: int) -> Networks:
    return tuple((f"eth{2 + i}", f"rdma-{i}") for i in range(count))


def _gib(tuner: str, image: str = GIB_INSTALLER) -> Manifest:
    """Return the settings of Google's gIB plugin, copied from its image to a folder shared with the
    container.
    """
    script = f"/scripts/container_entry.sh install --install-nccl && cp -R /var/lib/gib/. {GIB}/"
    mount = {"name": "gib", "mountPath": GIB}
    installer = {
        "name": "nccl-plugin-installer",
        "image": image,
        "command": ["sh", "-c", script],
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [mount],
    }
    return {
        "source": f"{GIB}/scripts/set_nccl_env.sh",
        "env": {
            "NCCL_NET": "gIB",
            "NCCL_SOCKET_IFNAME": "eth0,eth1",
            "NCCL_TUNER_CONFIG_PATH": f"{GIB}/configs/{tuner}",
            "LD_LIBRARY_PATH": f"{GIB}/lib64:/usr/local/nvidia/lib64",
        },
        "volumes": ({"name": "gib", "emptyDir": {}},),
        "mounts": (mount,),
        "init_containers": (installer,),
    }


_GOOGLE_RDMA = (("eth0", "default"), ("eth1", "gvnic-1"), *_rdma(8))


MACHINES = {  # by family; `generic` is any node with nvidia.com/gpu
    "generic": Machine(),
    "a3-mega": Machine(
        gpus=8,
        hardware="H100-SXM",
        accelerator="nvidia-h100-mega-80gb",
        networks=(("eth0", "default"), *((f"eth{i}", f"vpc{i}") for i in range(1, 9))),
        shared_memory="250Gi",
        source="/usr/local/nvidia/lib64/nccl-env-profile.sh",
        env={
            "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
            "NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY": "/dev/aperture_devices",
        },
        annotations={
            "devices.gke.io/container.tcpxo-daemon": "".join(
                f"- path: {path}\n" for path in _TCPXO_DEVICES
            )
        },
        volumes=(
            {"name": "nvidia", "hostPath": {"path": "/home/kubernetes/bin/nvidia"}},
            {"name": "sys", "hostPath": {"path": "/sys"}},
            {"name": "proc-sys", "hostPath": {"path": "/proc/sys"}},
            {"name": "aperture-devices", "hostPath": {"path": "/dev/aperture_devices"}},
        ),
        mounts=(
            {"name": "nvidia", "mountPath": "/usr/local/nvidia"},
            {"name": "aperture-devices", "mountPath": "/dev/aperture_devices"},
        ),
        init_containers=(_TCPXO_SIDECAR,),
    ),
    "a3-ultra": Machine(
        gpus=8,
        hardware="H200-SXM",
        accelerator="nvidia-h200-141gb",
        networks=_GOOGLE_RDMA,
        shared_memory="500Gi",
        **_gib("tuner_config_a3u.txtpb"),
    ),
    "a4": Machine(
        gpus=8,
        hardware="B200-SXM",
        accelerator="nvidia-b200",
        networks=_GOOGLE_RDMA,
        shared_memory="250Gi",
        defaults=_A4_RECIPE,
        **_gib("tuner_config_a4.txtpb"),
    ),
    "a4x": Machine(
        gpus=4,
        hardware="GB200-NVL72",
        arch="arm64",
        accelerator="nvidia-gb200",
        networks=(("eth0", "default"), ("eth1", "gvnic-1"), *_rdma(4)),
        shared_memory="250Gi",
        compute_domain=True,
        **_gib("tuner_config_a3u.txtpb", GIB_INSTALLER_ARM64),
    ),
    "a4x-max": Machine(
        gpus=4,
        hardware="GB300-NVL72",
        arch="arm64",
        accelerator="nvidia-gb300",
        shared_memory="250Gi",
        compute_domain=True,
        rdma_claims=8,
        host_ipc=True,
        # The image contains gIB (nccl-gib-a4x-max-arm64), so it is not installed here.
        source=f"{GIB}/scripts/set_nccl_env.sh",
        env={"NCCL_NET": "gIB", "NCCL_SOCKET_IFNAME": "eth0,eth1"},
    ),
}
