"""What is submitted to Kubernetes, by launcher and machine family: golden files, and the rules that
hold for all.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.errors import InputError
from seatrial.platforms import platform_for
from seatrial.platforms.kubernetes.config import KubernetesPlatform
from seatrial.platforms.kubernetes.machines import MACHINES
from seatrial.platforms.kubernetes.plan import plan
from seatrial.platforms.kubernetes.pod import node_selector, tolerations
from tests.cluster_files import refusal
from tests.unit.kubernetes.golden import CLUSTERS, GOLDEN, rendered, rendered_of

RECIPE = {  # of A4, as its README has it
    "NCCL_NET": "gIB",
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


@pytest.mark.parametrize("name", CLUSTERS)
def test_manifests_match_the_golden_files(name: str) -> None:
    assert rendered(name) == (GOLDEN / f"{name}.yaml").read_text(), (
        "if this is meant: python -m tests.unit.kubernetes.golden"
    )


def objects(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(rendered(name)))


def pod_specs(part_of_manifest: Any) -> list[dict[str, Any]]:
    """Every pod spec in an object, wherever it is."""
    if isinstance(part_of_manifest, list):
        return [spec for part in part_of_manifest for spec in pod_specs(part)]
    if not isinstance(part_of_manifest, dict):
        return []
    if "containers" in part_of_manifest:
        return [part_of_manifest]
    return [spec for part in part_of_manifest.values() for spec in pod_specs(part)]


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_object_has_run_id_label_and_namespace_and_shows_no_key(name: str) -> None:
    for body in objects(name):
        assert body["metadata"]["labels"]["seatrial/run-id"] == "20260101-0000-abcde", body["kind"]
        assert body["metadata"]["namespace"] == CLUSTERS[name]["platform"].get(
            "namespace", "default"
        )
        assert len(body["metadata"]["name"]) <= 63
    assert "PRIVATE" not in rendered(name)  # no key is shown


def node_specs(name: str) -> list[dict[str, Any]]:
    """The pods that are nodes; the MPI operator's launcher, which only waits, is none."""
    nodes = [spec for spec in pod_specs(objects(name)) if spec["containers"][0].get("ports")]
    assert nodes
    return nodes


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_node_runs_the_entry_point_on_one_port_until_its_time_is_over(name: str) -> None:
    port = CLUSTERS[name].get("ssh_port", 222)
    services = [body for body in objects(name) if body["kind"] == "Service"]
    assert all(
        [entry["port"] for entry in service["spec"]["ports"]] == [port] for service in services
    )
    for spec in node_specs(name):
        container = spec["containers"][0]
        assert [entry["containerPort"] for entry in container["ports"]] == [port]
        assert {"name": "SEATRIAL_SSH_PORT", "value": str(port)} in container["env"]
        assert container["command"] == ["/bin/sh", "/etc/seatrial/seatrial-node"]
        assert {"name": "SEATRIAL_MAX_SECONDS", "value": "14400"} in container["env"]
    assert "activeDeadlineSeconds: 14400" in rendered(name)


# Of the Pod Security Standard "baseline": what a container may add.
BASELINE = {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"} | {
    f"SET{capability}" for capability in ("FCAP", "GID", "PCAP", "UID")
} | {"SYS_CHROOT"}  # fmt: skip


@pytest.mark.parametrize("name", CLUSTERS)
def test_no_pod_has_more_rights_than_it_needs(name: str) -> None:
    """No token of the API server; no privileges and not the host's network unless the file asks for
    them.
    """
    settings = CLUSTERS[name]["platform"]
    asked = settings.get("host_network", False)
    privileged = settings.get("container", {}).get("securityContext", {}).get("privileged", False)
    own = {each["name"] for each in settings.get("pod_spec", {}).get("initContainers", [])}
    for spec in node_specs(name):
        assert spec["automountServiceAccountToken"] is False
        assert spec.get("hostNetwork", False) is asked
        assert spec.get("dnsPolicy") == ("ClusterFirstWithHostNet" if asked else None)
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec.get("initContainers", []):
            assert (
                container["name"] in own
                or container["securityContext"]["allowPrivilegeEscalation"] is False
            )
        for container in spec["containers"]:
            assert container["securityContext"].get("privileged", False) is privileged
            assert container["securityContext"]["allowPrivilegeEscalation"] is privileged


@pytest.mark.parametrize("name", CLUSTERS)
def test_nodes_share_and_pin_memory_and_have_no_other_capability(name: str) -> None:
    for spec in node_specs(name):
        container = spec["containers"][0]
        shared = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}[
            "/dev/shm"
        ]
        (volume,) = (volume for volume in spec["volumes"] if volume["name"] == shared)
        assert volume["emptyDir"]["medium"] == "Memory"
        capabilities = container["securityContext"]["capabilities"]
        assert capabilities["drop"] == ["ALL"]
        asked = (
            CLUSTERS[name]["platform"]
            .get("container", {})
            .get("securityContext", {})
            .get("capabilities", {})
        )
        assert (
            {"IPC_LOCK"}
            <= set(capabilities["add"])
            <= BASELINE | {"IPC_LOCK", *asked.get("add", [])}
        )


def test_without_gpus_nodes_keep_within_the_baseline() -> None:
    asked = {
        key: value
        for key, value in CLUSTERS["job"].items()
        if key not in ("gpus_per_node", "hardware")
    }
    cluster = Cluster.model_validate(asked)
    (spec,) = pod_specs(list(yaml.safe_load_all(rendered_of(cluster))))
    assert set(spec["containers"][0]["securityContext"]["capabilities"]["add"]) <= BASELINE
    assert not any("hostPath" in volume for volume in spec["volumes"])


def test_each_node_term_of_the_site_leaves_the_avoided_nodes_alone() -> None:
    """Kubernetes takes a node that fits any one of the terms."""
    site = [
        {"matchExpressions": [{"key": "gpu", "operator": "In", "values": [model]}]}
        for model in ("h100", "h200")
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": site}}
    platform = {
        "kind": "kubernetes",
        "avoid_nodes": ["bad"],
        "pod_spec": {"affinity": {"nodeAffinity": required}},
    }
    cluster = Cluster.model_validate({**CLUSTERS["job"], "platform": platform})
    (spec,) = pod_specs(list(yaml.safe_load_all(rendered_of(cluster))))
    (terms,) = spec["affinity"]["nodeAffinity"].values()
    avoided = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["bad"]}
    assert terms["nodeSelectorTerms"] == [
        {"matchExpressions": [avoided, *term["matchExpressions"]]} for term in site
    ]


def test_the_launcher_that_only_waits_keeps_within_restricted() -> None:
    (launcher,) = (
        spec for spec in pod_specs(objects("mpijob")) if not spec["containers"][0].get("ports")
    )
    (container,) = launcher["containers"]
    assert container["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65534,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_chosen_and_excluded_nodes_are_in_one_affinity_term() -> None:
    """Of several terms any one would do."""
    (spec,) = node_specs("everything")
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert [
        [(each["operator"], each["values"]) for each in term["matchExpressions"]] for term in terms
    ] == [[("In", ["a", "b", "c"]), ("NotIn", ["d"])]]


def test_mpijob_renders_no_service() -> None:
    """The MPI operator fails if it finds a Service of the job's name that it did not create."""
    assert "Service" not in {body["kind"] for body in objects("mpijob")}


def test_run_on_part_of_one_node_is_legal() -> None:
    asked = {**CLUSTERS["a4"], "gpus_per_node": 4, "nodes": 1}
    assert platform_for(Cluster.model_validate(asked))


def built(builder: str, **settings: Any) -> dict[str, Any]:
    """An image for amd64, on machines that are arm64."""
    image = {"build": "cpu", "builder": builder, "repository": "us-docker.pkg.dev/p/r", **settings}
    return {
        "gpus_per_node": 4,
        "hardware": "GB200-NVL72",
        "image": image,
        "platform": {"machine": "a4x"},
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": None}, "image: is required on Kubernetes"),
        ({"name": "n" * 41}, "name: must be 1 to 40 of a-z"),
        ({"hardware": "H100-SXM"}, "hardware: machine a4 is B200-SXM, is H100-SXM"),
        ({"gpus_per_node": 4}, "gpus_per_node: machine a4 has 8, all used"),
        ({"gpus_per_node": 12, "nodes": 1}, "gpus_per_node: machine a4 has 8, is 12"),
        ({"platform": {"machine": "a4x"}}, "gpus_per_node: machine a4x has 4, is 8"),
        (
            built("cloud-build"),
            "image: image cpu is for amd64, the nodes (GB200-NVL72) are arm64: build it for",
        ),
        (
            built("docker", platforms=["linux/amd64"]),
            "image: image cpu is for amd64, the nodes (GB200-NVL72) are",
        ),
        (
            {"env": {"HF_TOKEN": "hf_abc"}},
            "HF_TOKEN looks like a secret and would stand in the manifest; use platform.secret_env",
        ),
        ({"env": {"SEATRIAL_SSH_PORT": "22"}}, "env: SEATRIAL_SSH_PORT is set by seatrial"),
        (
            {"platform": {"host_network": True}},
            "platform.host_network: needs container: {securityContext: {privileged",
        ),
        (
            {"platform": {"networks": ["default"]}},
            "platform.networks: machine a4 has 10 networks, is 1",
        ),
        (
            {"platform": {"plugin_image": "x:1", "machine": "generic"}},
            "platform.plugin_image: machine generic has no plugin that is installed",
        ),
        (
            {"platform": {"host_network": True, "machine": "generic"}, "ssh_port": 22},
            "ssh_port: is taken by the host",
        ),
    ],
)
def test_contradictory_cluster_file_fields_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    platform = {**CLUSTERS["a4"]["platform"], **change.get("platform", {})}
    assert message in refusal(tmp_path, **{**CLUSTERS["a4"], **change, "platform": platform})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"launcher": ["job", "jobset"]}, "platform.launcher: must be 'job', 'jobset'"),
        ({"namespace": "n" * 64}, "platform.namespace: 'nnn"),
        (
            {"tolerations": [{"key": "team", "operator": "Exists", "value": "x"}]},
            "Exists takes no value",
        ),
        ({"tolerations": [{"key": "team"}]}, "needs key and value"),
        ({"deadline_s": 0.5}, "must be at least 60"),
        ({"priority_class": "Bad Name"}, "no name of a Kubernetes object"),
        ({"node_selector": {"a": "b c!"}}, "no label value"),
        ({"topology": {"unconstrained": True}}, "topology: is Kueue's, so it needs queue"),
        ({"queue_priority": "high"}, "queue_priority: is Kueue's, so it needs queue"),
        ({"queue": "q", "queue_priority": "x" * 64}, "at most 63"),
        (
            {"queue": "q", "topology": {"required": None}},
            "topology: needs exactly one of required: LEVEL",
        ),
        (
            {"queue": "q", "topology": {"required": ""}},
            "topology.required: '' is no label key, such as topology.",
        ),
        ({"queue": "q", "topology": {"unconstrained": True, "required": "a"}}, "exactly one of"),
        ({"target_nodes": ["a"], "avoid_nodes": ["a"]}, "among target_nodes too"),
        ({"target_nodes": ["a"]}, "nodes: must be at most the 1 of platform.target_nodes, is 2"),
        ({"resources": {"rdma": 1}}, "no resource of nodes: cpu, memory"),
        ({"resources": {"rdma/ib": -1}}, "no quantity, such as 8"),
        ({"resources": {"rdma/ib": True}}, "resources"),
        ({"resources": {"nvidia.com/gpu": 8}}, "nvidia.com/gpu is set by gpus_per_node"),
        (
            {"container": {"resources": {"limits": {"nvidia.com/gpu": 4}}}},
            "container: nvidia.com/gpu is set by gpus_per_node; leave it out here",
        ),
        ({"annotations": {"a b": "c"}}, "no label key"),
        (
            {"pod_spec": {"schedulername": "volcano"}},
            "pod_spec: schedulername is unknown to Kubernetes; legal: active",
        ),
        (
            {"pod_spec": {"tolerations": []}},
            "pod_spec: tolerations is set by tolerations; leave it out here",
        ),
        (
            {"pod_spec": {"nodeName": "gpu-1"}},
            "pod_spec: nodeName is set by target_nodes; leave it out here",
        ),
        ({"pod_spec": {"hostIPC": "yes"}}, "pod_spec: hostIPC must be of type bool"),
        (
            {"pod_spec": {"volumes": [{"name": "a", "hostpath": {}}]}},
            "volumes[0].hostpath is unknown to Kubernetes",
        ),
        ({"pod_spec": {"volumes": {"name": "a"}}}, "pod_spec: volumes must be a list"),
        (
            {"container": {"command": ["sh"]}},
            "container: command is set by seatrial; leave it out here",
        ),
        (
            {"container": {"securityContext": [1]}},
            "container: securityContext must be a map; legal: allowPrivilege",
        ),
        (
            {"container": {"resources": {"requests": ["cpu"]}}},
            "resources.requests must be a map of names to values",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    assert message in refusal(
        tmp_path, **{**CLUSTERS["a4"], "platform": {**CLUSTERS["a4"]["platform"], **settings}}
    )


@pytest.mark.parametrize(("hardware", "arch"), [("GH200", "arm64"), ("H100-SXM", None)])
def test_pods_for_grace_select_and_tolerate_arm64_on_any_machine(
    hardware: str, arch: str | None
) -> None:
    cluster = Cluster.model_validate({**CLUSTERS["job"], "hardware": hardware, "gpus_per_node": 1})
    assert isinstance(cluster.platform, KubernetesPlatform)
    assert node_selector(cluster, cluster.platform).get("kubernetes.io/arch") == arch
    tolerated = {each.get("value") for each in tolerations(cluster, cluster.platform)}
    assert ("arm64" in tolerated) is bool(arch)


def test_networks_and_plugin_image_default_to_those_of_the_machine() -> None:
    def moving(**asked: Any) -> list[str]:
        return KubernetesPlatform.model_validate(
            {"kind": "kubernetes", "machine": "a3-mega", **asked}
        ).moving_parts()

    assert moving() == [
        f"tcpxo-daemon {MACHINES['a3-mega'].init_containers[0]['image']}",
        f"networks default, {', '.join(f'vpc{i}' for i in range(1, 9))}",
    ]
    own = [f"net-{i}" for i in range(9)]
    assert moving(plugin_image="tcpx:2", networks=own) == [
        "tcpxo-daemon tcpx:2",
        f"networks {', '.join(own)}",
    ]
    named = {
        **CLUSTERS["a3-mega"],
        "platform": {**CLUSTERS["a3-mega"]["platform"], "networks": own},
    }
    assert '{"interfaceName": "eth8", "network": "net-8"}' in rendered_of(
        Cluster.model_validate(named)
    )


def test_machine_a4_sets_recipe_variables_unless_the_cluster_file_does() -> None:
    def environment(**asked: str) -> dict[str, str]:
        cluster = Cluster.model_validate({**CLUSTERS["a4"], "env": asked})
        (template,) = pod_specs(list(yaml.safe_load_all(rendered_of(cluster))))
        return {
            each["name"]: each["value"]
            for each in template["containers"][0]["env"]
            if "value" in each
        }

    assert RECIPE.items() <= environment().items()
    assert environment()["SEATRIAL_SOURCE"] == "/usr/local/gib/scripts/set_nccl_env.sh"
    assert environment(NCCL_IB_TC="41", NCCL_NET="IB") | RECIPE == environment()
    assert environment(NCCL_IB_TC="41")["NCCL_IB_TC"] == "41"


def test_longest_pod_name_fits_in_63_characters() -> None:
    """Those of a JobSet are the longest: NAME-node-0-9999-abcde, with the most nodes that a cluster
    file may have.
    """
    cluster = Cluster.model_validate(CLUSTERS["jobset"])
    longest = plan(Run("r" * 36, cluster, load_suite("quick"), Path("out"))).name
    assert len(f"{longest}-node-0-9999-abcde") == 63
    with pytest.raises(InputError, match="is too long for the names of Kubernetes objects"):
        plan(Run("r" * 37, cluster, load_suite("quick"), Path("out")))
