"""The Helm chart's templates, by a real Helm: the same objects as seatrial's own, and what is
refused.
"""

import json
import subprocess
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from tests.e2e.kubernetes.chart import (
    HELD_AGAINST,
    KEYS,
    RELEASE,
    Object,
    Values,
    changed,
    in_order,
    submitted,
    values_for,
)
from tests.unit.kubernetes.chart import CHART
from tests.unit.kubernetes.golden import CLUSTERS


@pytest.fixture
def template(
    helm_program: Path, tmp_path: Path
) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """`helm template` of the chart with those values; further arguments as they are."""

    def run(
        values: Values, *arguments: str, namespace: str = "default"
    ) -> "subprocess.CompletedProcess[str]":
        file = tmp_path / "values.json"
        file.write_text(json.dumps(values))
        command: list[str | Path] = [
            helm_program,
            "template",
            RELEASE,
            CHART,
            "--namespace",
            namespace,
            "--values",
            file,
            *arguments,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    return run


Template = Callable[..., "subprocess.CompletedProcess[str]"]


def rendered(
    template: Template, values: Values, *arguments: str, namespace: str = "default"
) -> list[Object]:
    done = template(values, *arguments, namespace=namespace)
    assert done.returncode == 0, done.stderr
    return in_order([body for body in yaml.safe_load_all(done.stdout) if body])


@pytest.mark.parametrize("name", HELD_AGAINST)
def test_chart_renders_the_same_objects_as_seatrial_render(template: Template, name: str) -> None:
    file = HELD_AGAINST[name]
    namespace = file["platform"].get("namespace", "default")
    assert rendered(template, values_for(file), namespace=namespace) == submitted(file)


EXPORTS = (  # the machine's, with the value's own in its place, and no defaults
    "-x NCCL_IB_TC=53 -x NCCL_NET=gIB -x NCCL_SOCKET_IFNAME=eth0,eth1"
    " -x NCCL_TUNER_CONFIG_PATH=/usr/local/gib/configs/tuner_config_a4.txtpb"
)


@pytest.mark.parametrize("launcher", ["job", "jobset"])
def test_launcher_script_adds_a_config_map_and_its_settings_to_the_chart(
    template: Template, tmp_path: Path, launcher: str
) -> None:
    script = tmp_path / "run.sh"
    script.write_text('#!/bin/bash\nmpirun --hostfile "$HOSTFILE" hostname\n')
    values = values_for(changed("a4", {"launcher": launcher}, env={"NCCL_IB_TC": "53"}))
    plain = rendered(template, values)
    *_, config, parent, _, _ = with_launcher = rendered(
        template, values, "--set-file", f"workload_launcher={script}"
    )
    with_launcher.remove(config)
    assert config["kind"] == "ConfigMap"
    assert config["metadata"]["name"] == "bed-launcher"
    first = {"job": "bed-", "jobset": "bed-node-0-"}[launcher]
    assert config["data"] == {
        "launch-workload.sh": script.read_text(),
        "start-workload": (CHART / "files" / "start-workload").read_text(),
        "hostfile": f"{first}0.bed slots=8 port=222\n{first}1.bed slots=8 port=222\n",
    }
    added = deepcopy(next(body for body in plain if body["kind"] == parent["kind"]))
    job = (
        added["spec"]
        if launcher == "job"
        else added["spec"]["replicatedJobs"][0]["template"]["spec"]
    )
    job["successPolicy"] = {"rules": [{"succeededIndexes": "0"}]}
    added["spec"]["ttlSecondsAfterFinished"] = 43200
    pod = job["template"]["spec"]
    pod["volumes"].append({"name": "launcher", "configMap": {"name": "bed-launcher"}})
    node = pod["containers"][0]
    node["args"] = ["sh", "/workload/launcher/start-workload"]
    node["volumeMounts"].append(
        {"name": "launcher", "mountPath": "/workload/launcher", "readOnly": True}
    )
    node["env"] += [
        {"name": "HOSTFILE", "value": "/workload/launcher/hostfile"},
        {"name": "NNODES", "value": "2"},
        {"name": "GPUS_PER_NODE", "value": "8"},
        {"name": "WORLD_SIZE", "value": "16"},
        {"name": "MASTER_ADDR", "value": f"{first}0.bed"},
        {"name": "MASTER_PORT", "value": "6002"},
        {"name": "MPI_EXPORTS", "value": EXPORTS},
    ]
    assert with_launcher == [added if body["kind"] == added["kind"] else body for body in plain]


def test_existing_secret_is_used_unchanged(template: Template) -> None:
    file = CLUSTERS["job"]
    released = rendered(template, {**values_for(file), "keys": {"existingSecret": "team-keys"}})
    objects = [body for body in submitted(file) if body["kind"] != "Secret"]
    objects[0]["spec"]["template"]["spec"]["volumes"][0]["secret"]["secretName"] = "team-keys"
    assert released == objects


GOOD: Values = {"workload": {"image": "registry.example.com/testbed:1"}, "keys": KEYS}


def test_default_values_render_two_a4_nodes_identically_each_time(template: Template) -> None:
    first, second = template(GOOD), template(GOOD)
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    parent = next(body for body in yaml.safe_load_all(first.stdout) if body["kind"] == "JobSet")
    job = parent["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert job["completions"] == 2
    assert (
        job["template"]["spec"]["nodeSelector"]["cloud.google.com/gke-accelerator"] == "nvidia-b200"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "workload.gpus=12",
            "workload.gpus: machine a4 has 8 per node, so 1 to 8 or a multiple of 8 is legal, is 12",
        ),
        (
            "machine=a4x,workload.gpus=6",
            "machine a4x has 4 per node, so 1 to 4 or a multiple of 4 is legal, is 6",
        ),
        ("workload.gpus=0", "workload.gpus: machine a4 has 8 per node"),
        ("workload.gpus=sixteen", "at '/workload/gpus': got string, want integer"),
        ("workload.nodes=2", "workload.nodes: follows from workload.gpus on machine a4"),
        ("machine=generic", "workload.nodes: is required with machine generic"),
        (
            "machine=generic,workload.nodes=3",
            "workload.gpus: 3 nodes cannot have the same number each, is 16",
        ),
        (
            "machine=a5",
            (
                "at '/machine': value must be one of 'a3-mega', 'a3-ultra', 'a4', 'a4x', "
                "'a4x-max', 'generic'"
            ),
        ),
        ("launcher=mpijob", "at '/launcher': value must be one of 'jobset', 'job'"),
        ("workload.image=", "workload.image: is required"),
        ("workload.colour=red", "at '/workload': additional properties 'colour' not allowed"),
        ("network.sshPort=70000", "at '/network/sshPort': maximum: got 70,000, want 65,535"),
        ("network.hostNetwork=true", "network.hostNetwork: needs network.privileged on machine a4"),
        ("network.privileged=true", "network.privileged: is for network.hostNetwork alone"),
        (
            "machine=generic,workload.nodes=2,network.hostNetwork=true,network.sshPort=22",
            "network.sshPort: is taken",
        ),
        (
            "tasSettings.topologyRequest.kueue\\.x-k8s\\.io/podset-required-topology=a",
            "so it needs queue",
        ),
        ("targetNodes={a,b},avoidNodes={b}", "avoidNodes: b is among targetNodes too"),
        (
            "workload.envs[0].name=HF_TOKEN,workload.envs[0].value=hf_1",
            "HF_TOKEN looks like a secret",
        ),
        ("workload.envs[0].name=SEATRIAL_SSH_PORT,workload.envs[0].value=a", "is set by the chart"),
        (
            "workload.envs[0].name=A,workload.envs[0].value=1",
            "at '/workload/envs/0/value': got number, want string",
        ),
        (
            "volumes.ssdMountPath=/usr/local",
            'volumes: "/usr/local" is over or in /usr, which the node needs',
        ),
        ("volumes.ssdMountPath=/", "is over or in /bin, which the node needs"),
        ("volumes.ssdMountPath=ssd/", 'volumes: "ssd/" is no absolute path, such as /data'),
        (
            "volumes.ssdMountPath=/gcs,volumes.gcsMounts[0].bucketName=tokens",
            "volumes: mount /gcs appears twice",
        ),
        ("keys.id_ed25519=", "keys.id_ed25519: is missing; every testbed has keys of its own"),
        ("keys.existingSecret=mine", "keys.authorized_keys: keys.existingSecret is given too"),
    ],
)
def test_invalid_values_are_refused_in_one_line(
    template: Template, change: str, message: str
) -> None:
    done = template(GOOD, "--set", change)
    assert done.returncode != 0
    assert len([line for line in done.stderr.splitlines() if message in line]) == 1, done.stderr


def test_a_name_that_pods_cannot_have_is_refused(helm_program: Path) -> None:
    command: list[str | Path] = [helm_program, "template", "x" * 46, CHART]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert f"release name \"{'x' * 46}\": 1 to 45 of a-z, 0-9 and '-' are legal" in done.stderr


def test_helm_lint_reports_nothing(helm_program: Path) -> None:
    keys = [f"--set=keys.{name}=key" for name in KEYS]
    command: list[str | Path] = [
        helm_program,
        "lint",
        "--strict",
        "--quiet",
        CHART,
        "--set=workload.image=image",
        *keys,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
