"""Cluster files, what somebody with such a file says to the Helm chart, and the objects that must
come of it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.platforms import platform_for
from seatrial.platforms.container import ENTRY_FILES, ENTRY_POINT, KEY_FILES
from seatrial.platforms.kubernetes.config import KubernetesPlatform, Topology
from seatrial.platforms.kubernetes.machines import gpu_resource
from seatrial.platforms.kubernetes.pod import node_selector, tolerations
from tests.unit.kubernetes.chart import FACTS
from tests.unit.kubernetes.golden import CLUSTERS

Values = dict[str, Any]
Object = dict[str, Any]
ROOT = Path(__file__).parents[3]
RUN, RELEASE = "20260101-0000-abcde", "bed"
KEYS = dict.fromkeys(KEY_FILES, "<made for each run>")  # as `seatrial render` shows them
LABELS = {
    ("app.kubernetes.io/managed-by", "seatrial"): ("app.kubernetes.io/managed-by", "Helm"),
    ("seatrial/run-id", RUN): ("app.kubernetes.io/instance", RELEASE),
    ("seatrial/cluster", "golden"): ("app.kubernetes.io/name", "testbed"),
}


def changed(name: str, platform: Values | None = None, **more: Any) -> Values:
    return {
        **CLUSTERS[name],
        **more,
        "platform": {**CLUSTERS[name]["platform"], **(platform or {})},
    }


def shipped(name: str) -> Values:
    """A cluster file of deployments/clusters, with an image that need not be built."""
    file = yaml.safe_load((ROOT / "deployments" / "clusters" / name).read_text())
    return {**file, "name": "golden", "image": "registry.example.com/testbed:1"}


QUEUED = {"launcher": "jobset", "queue": "a4-high"}
BLOCK = "cloud.google.com/gce-topology-block"
# Of the chart
_NO_VALUES = {"pod_spec", "container", "labels", "compute_domain", "plugin_image", "networks"}
HELD_AGAINST = {
    **{
        name: file
        for name, file in CLUSTERS.items()
        if file["platform"].get("launcher", "job") in ("job", "jobset")
        and not _NO_VALUES & set(file["platform"])
    },
    "deployments/clusters/a4-gke.yaml": shipped("a4-gke.yaml"),
    "queued job": changed("job", {"queue": "night"}),
    "preferred topology": changed("a4", {**QUEUED, "topology": {"preferred": BLOCK}}),
    "unconstrained topology": changed("a4", {**QUEUED, "topology": {"unconstrained": True}}),
    "part of one node": changed("a4", nodes=1, gpus_per_node=2),
    "many nodes": changed("a4x-max", {"launcher": "jobset"}, nodes=18),
    "without GPUs": changed("job", gpus_per_node=0, hardware="cpu", nodes=3),
    "AMD": changed("job", hardware="MI300X"),
    "settings over the machine's": changed(
        "a4", env={"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_TC": "52"}
    ),
    "bucket on the host's network": changed(
        "job",
        {"host_network": True, "volumes": [{"kind": "gcs", "mount": "/gcs", "bucket": "tokens"}]},
    ),
    "A4 on the host's network": changed(
        "a4", {"host_network": True, "container": {"securityContext": {"privileged": True}}}
    ),
    "only avoided nodes": changed("a3-ultra", {"avoid_nodes": ["node-7"]}),
    "another port and less time": changed("jobset", {"deadline_s": 600}, ssh_port=2222),
}


def _workload(image: str, cluster: Cluster, settings: KubernetesPlatform) -> Values:
    secret = [
        {
            "name": each.name,
            "valueFrom": {"secretKeyRef": {"name": each.secret, "key": each.key}},
        }
        for each in settings.secret_env
    ]
    return {
        "image": image,
        "imagePullPolicy": settings.image_pull_policy or "",
        "imagePullSecrets": list(settings.image_pull_secrets),
        "gpus": cluster.nodes * cluster.gpus,
        "nodes": cluster.nodes if settings.machine == "generic" else None,
        "gpuResource": gpu_resource(cluster),
        "resources": settings.resources,
        "sharedMemory": settings.shared_memory or "",
        "envs": [{"name": name, "value": value} for name, value in cluster.env.items()] + secret,
    }


def values_for(file: Values) -> Values:
    """What somebody with that cluster file says to the chart."""
    cluster = Cluster.model_validate(file)
    settings = cluster.platform
    assert isinstance(settings, KubernetesPlatform)
    of_machine = yaml.safe_load(FACTS.read_text())["machines"][settings.machine]["tolerations"]
    arch = node_selector(cluster, settings).get("kubernetes.io/arch")
    # Others say it
    architecture = {"kubernetes.io/arch": arch} if arch and settings.machine == "generic" else {}
    return {
        "launcher": settings.launcher,
        "machine": settings.machine,
        "deadlineSeconds": int(settings.deadline_s),
        "queue": settings.queue,
        "queuePriority": settings.queue_priority or "",
        "tasSettings": {"topologyRequest": _topology(settings.topology)},
        "targetNodes": list(settings.target_nodes),
        "avoidNodes": list(settings.avoid_nodes),
        "nodeSelector": {**architecture, **settings.node_selector},
        "tolerations": [
            toleration
            for toleration in tolerations(cluster, settings)
            if toleration not in of_machine
        ],
        "annotations": settings.annotations,
        "priorityClassName": settings.priority_class or "",
        "serviceAccountName": settings.service_account or "",
        "workload": _workload(str(file["image"]), cluster, settings),
        "network": {
            "sshPort": cluster.ssh_port,
            "hostNetwork": settings.host_network,
            "privileged": settings.container.get("securityContext", {}).get("privileged", False),
        },
        "volumes": _volumes(settings),
        "keys": KEYS,
    }


def _topology(asked: Topology | None) -> dict[str, str]:
    if asked is None:
        return {}
    [(kind, level)] = asked.model_dump(exclude_defaults=True).items()
    return {f"kueue.x-k8s.io/podset-{kind}-topology": level if isinstance(level, str) else "true"}


def _volumes(settings: KubernetesPlatform) -> Values:
    """By kind, as the recipes have them; every cluster file here has them in the chart's order."""
    volumes = [volume.model_dump(exclude_defaults=True) for volume in settings.volumes]
    kinds = {
        kind: [
            {_WORDS.get(key, key): each[key] for key in each if key != "kind"}
            for each in volumes
            if each["kind"] == kind
        ]
        for kind in ("gcs", "nfs", "pvc", "local-ssd")
    }
    ssd = kinds.pop("local-ssd")
    mount = {"ssdMountPath": ssd[0]["mountPath"]} if ssd else {}
    return {**{f"{kind}Mounts": mounts for kind, mounts in kinds.items()}, **mount}


_WORDS = {
    "mount": "mountPath",
    "read_only": "readOnly",
    "bucket": "bucketName",
    "mount_options": "mountOptions",
    "claim": "claimName",
}


def submitted(file: Values) -> list[Object]:
    """What `seatrial render` shows, with the names and labels of a release in place of a run's."""
    cluster = Cluster.model_validate(file)
    run = Run(RUN, cluster, load_suite("quick"), Path("out"))
    objects = [yaml.safe_load(text) for text in platform_for(cluster).render(run).files.values()]
    for each in objects:  # who tends a run, and until when: a release is Helm's
        assert set(each["metadata"].pop("annotations")) == {"seatrial/owner", "seatrial/expires"}
        as_in_the_image(each)
    return in_order(as_released(objects))


def as_in_the_image(part: Any) -> None:
    """The chart is for images of ours: their own entry point starts, and does not travel with the
    keys.
    """
    if isinstance(part, list):
        for each in part:
            as_in_the_image(each)
    if not isinstance(part, dict):
        return
    if part.get("command") == ENTRY_POINT:
        del part["command"]
        part["startupProbe"]["exec"]["command"] = ["seatrial-ready"]
    if part.get("kind") == "Secret":
        part["data"] = {
            name: text for name, text in part["data"].items() if name not in ENTRY_FILES
        }
    for each in part.values():
        as_in_the_image(each)


def as_released(part: Any) -> Any:
    """With the names and labels of the release in place of the run's, wherever they stand."""
    if isinstance(part, dict):
        return dict(_entry_as_released(key, value) for key, value in part.items())
    if isinstance(part, list):
        return [as_released(each) for each in part]
    return part.replace(f"seatrial-{RUN}", RELEASE) if isinstance(part, str) else part


def _entry_as_released(key: str, value: Any) -> tuple[str, Any]:
    known = LABELS.get((key, value)) if isinstance(value, str) else None
    return known or (key, as_released(value))


def in_order(objects: Iterable[Object]) -> list[Object]:
    return sorted(objects, key=lambda each: (each["kind"], each["metadata"]["name"]))
