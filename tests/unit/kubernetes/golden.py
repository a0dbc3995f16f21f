"""The cluster files behind tests/golden/kubernetes; `python -m tests.unit.kubernetes.golden` writes
those anew.
"""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.platforms import platform_for

GOLDEN = Path(__file__).parents[2] / "golden" / "kubernetes"
_EXAMPLES = Path(__file__).parents[3] / "deployments" / "clusters"
_PLATFORMS = ("eks-p5", "eks-p5en", "nebius-h100", "oke-h100", "aks-h100", "gb200-compute-domain")
_IMAGE = "registry.example.com/testbed:1"


def _cluster(
    launcher: str = "job", machine: str = "generic", gpus: int = 8, **more: Any
) -> dict[str, Any]:
    settings = more.pop("platform", {})
    return {
        "name": "golden",
        "nodes": 2,
        "gpus_per_node": gpus,
        "hardware": {"name": "test"},
        "image": _IMAGE,
        "platform": {"kind": "kubernetes", "launcher": launcher, "machine": machine, **settings},
        **more,
    }


CLUSTERS: dict[str, dict[str, Any]] = {
    **{
        launcher: _cluster(launcher)
        for launcher in ("job", "jobset", "pytorchjob", "trainjob", "mpijob")
    },
    **{machine: _cluster(machine=machine) for machine in ("a3-mega", "a3-ultra", "a4")},
    **{machine: _cluster(machine=machine, gpus=4) for machine in ("a4x", "a4x-max")},
    "everything": _cluster(
        "jobset",
        env={"NCCL_DEBUG": "INFO"},
        ssh_port=2222,
        platform={
            "namespace": "trials",
            "queue": "night",
            "queue_priority": "trials",
            "topology": {"required": "cloud.google.com/gce-topology-block"},
            "priority_class": "low",
            "node_selector": {"pool": "gpu"},
            "tolerations": [
                {"key": "team", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}
            ],
            "target_nodes": ["a", "b", "c"],
            "avoid_nodes": ["d"],
            "image_pull_secrets": ["pull"],
            "image_pull_policy": "Always",
            "service_account": "trial",
            "host_network": True,
            "shared_memory": "16Gi",
            "secret_env": [{"name": "HF_TOKEN", "secret": "hugging-face", "key": "token"}],
        },
    ),
    "devices": _cluster(
        "jobset",
        hardware="GH200",
        gpus=4,
        platform={
            "resources": {
                "rdma/rdma_shared_device_a": 8,
                "hugepages-2Mi": "5120Mi",
                "memory": "64Gi",
            },
            "annotations": {"k8s.v1.cni.cncf.io/networks": "ib-a,ib-b"},
        },
    ),
    "volumes": _cluster(
        "jobset",
        platform={
            "service_account": "trial",
            "volumes": [
                {
                    "kind": "gcs",
                    "mount": "/data",
                    "bucket": "tokens",
                    "mount_options": "implicit-dirs",
                    "read_only": True,
                },
                {"kind": "nfs", "mount": "/share", "server": "10.0.0.2", "path": "/vol1"},
                {"kind": "pvc", "mount": "/scratch", "claim": "scratch"},
                {"kind": "local-ssd", "mount": "/ssd"},
            ],
        },
    ),
    # A scheduler of the site's, another runtime, a claim by name, a container that sets limits
    # before the node starts.
    "fragments": _cluster(
        "jobset",
        "a4",
        platform={
            "labels": {"kai.scheduler/queue": "trials"},
            "host_network": True,
            "plugin_image": "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib-diagnostic:v1.1.0",
            "pod_spec": {
                "schedulerName": "kai-scheduler",
                "runtimeClassName": "nvidia",
                "hostIPC": True,
                "resourceClaims": [{"name": "nics", "resourceClaimTemplateName": "site-nics"}],
                "initContainers": [
                    {
                        "name": "ulimits",
                        "image": "busybox:1.37",
                        "command": ["sh", "-c", "ulimit -Hl unlimited && ulimit -Sl unlimited"],
                        "securityContext": {"privileged": True},
                    }
                ],
            },
            "container": {
                "securityContext": {"privileged": True, "capabilities": {"add": ["SYS_NICE"]}},
                "resources": {"requests": {"cpu": 32}, "claims": [{"name": "nics"}]},
            },
        },
    ),
    **{
        name: {"name": "golden", **yaml.safe_load((_EXAMPLES / f"{name}.yaml").read_text())}
        for name in _PLATFORMS
    },
}


@cache
def rendered(name: str) -> str:
    """Everything that would be submitted, as one YAML document after the other."""
    return rendered_of(Cluster.model_validate(CLUSTERS[name]))


def rendered_of(cluster: Cluster) -> str:
    run = Run("20260101-0000-abcde", cluster, load_suite("quick"), Path("out"))
    return "---\n".join(platform_for(cluster).render(run).files.values())


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for each in CLUSTERS:
        (GOLDEN / f"{each}.yaml").write_text(rendered(each))
