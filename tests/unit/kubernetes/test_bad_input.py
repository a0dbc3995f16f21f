"""What cannot run on Kubernetes is said by the command in one line that names file and field; exit status 2."""

import subprocess
import sys
from pathlib import Path

import pytest

A4X = "gpus_per_node: 4\nhardware: GB200-NVL72\n"
BUILD = "image: {{build: cpu, {} repository: us-docker.pkg.dev/p/r}}\n"
PULLED = "image: r/x:1\n"


@pytest.mark.parametrize(
    ("platform", "rest", "message"),
    [
        ("machine: a4", "gpus_per_node: 12\nhardware: B200-SXM\n" + PULLED, "gpus_per_node: machine a4 has 8, is 12"),
        ("machine: a4", "gpus_per_node: 4\nhardware: B200-SXM\n" + PULLED, "gpus_per_node: machine a4 has 8, all used"),
        (
            "machine: a4x",
            "gpus_per_node: 8\nhardware: GB200-NVL72\n" + PULLED,
            "gpus_per_node: machine a4x has 4, is 8",
        ),
        ("machine: a4", f"name: {'n' * 41}\n" + PULLED, "name: must be 1 to 40 of a-z"),
        (f"namespace: {'n' * 64}", PULLED, "platform.kubernetes.namespace: 'nnn"),
        ("machine: a4x", A4X + BUILD.format("builder: cloud-build,"), "image: image cpu is for amd64, the nodes"),
        (
            "machine: a4x",
            A4X + BUILD.format("builder: docker, platforms: [linux/amd64],"),
            "image: image cpu is for amd64, the nodes (GB200-NVL72) are arm64: build it for linux/arm64",
        ),
        ("queue: q, topology: {required: }", PULLED, "topology: needs exactly one of required: LEVEL"),
        ("queue: q, topology: {required: ''}", PULLED, "topology.required: '' is no label key, such as topology."),
        ("topology: {unconstrained: true}", PULLED, "topology: is Kueue's, so it needs queue"),
        ("launcher: [job, jobset]", PULLED, "platform.kubernetes.launcher: input should be 'job', 'jobset'"),
        ("launcher: job, launcher: jobset", PULLED, "line 2: not YAML: field 'launcher' appears twice"),
        ("host_network: true", "ssh_port: 22\n" + PULLED, "ssh_port: is taken by the host's own sshd"),
        (
            "machine: a3-mega, host_network: true",
            "gpus_per_node: 8\nhardware: H100-SXM\n" + PULLED,
            "platform.host_network: must be false on machine a3-mega",
        ),
        ("volumes: [{kind: pvc, mount: /etc, claim: c}]", PULLED, "pvc.mount: '/etc' is over or in /etc"),
        ("namespace: n", "env: {HF_TOKEN: hf_x}\n" + PULLED, "env: HF_TOKEN looks like a secret"),
        ("namespace: n", "", "image: is required on Kubernetes"),
    ],
)
def test_one_line(tmp_path: Path, platform: str, rest: str, message: str) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(f"nodes: 2\nplatform: {{kind: kubernetes, {platform}}}\n{rest}")
    done = subprocess.run(
        [sys.executable, "-m", "seatrial", "render", file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"seatrial: {file}: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
