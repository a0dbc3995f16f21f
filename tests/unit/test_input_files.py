"""Cluster and suite files: what ships loads, and what is wrong is said in one line that tells what is legal."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.checks.collectives.section import Collectives
from seatrial.checks.devices.section import Devices
from seatrial.checks.suites import SHIPPED, load_suite
from seatrial.checks.table import CHECKS
from seatrial.checks.training.section import Training
from seatrial.config.cluster import load_cluster
from seatrial.model.errors import InputError
from seatrial.model.sizes import format_size, parse_size
from seatrial.platforms import platform_for

CLUSTERS = sorted((Path(__file__).parents[2] / "deployments" / "clusters").glob("*.yaml"))
LOCAL = "platform: {kind: local}\n"


def test_every_platform_has_an_example() -> None:
    kinds = {load_cluster(path).platform.kind for path in CLUSTERS}
    assert kinds == {"local", "kubernetes", "slurm", "runai", "baremetal", "docker", "this-machine"}


def test_only_the_platform_that_the_file_names_is_imported() -> None:
    program = f"""
import sys
from pathlib import Path
from seatrial.config.cluster import load_cluster
load_cluster(Path({str(CLUSTERS[0].with_name("local.yaml"))!r}))
print(*sorted({{name.split(".")[2] for name in sys.modules if name.startswith("seatrial.platforms.")}} - {{"reasons"}}))
"""  # and the codes that all platforms share
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "local\n"


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_every_example_has_a_platform(path: Path) -> None:
    assert platform_for(load_cluster(path))


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_suites_load(name: str) -> None:
    suite = load_suite(name)
    assert suite.name == name
    left_out = {Devices, Training} if name == "a4-sweep" else set()  # a sweep and nothing else
    assert {kind.section for kind in CHECKS if suite.section(kind.section)} == {
        kind.section for kind in CHECKS
    } - left_out
    section = suite.section(Collectives)
    assert section
    assert "all_reduce" in section.operations


def test_a_name_comes_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "My_Cluster.yaml"
    path.write_text("nodes: 2\n" + LOCAL)
    assert load_cluster(path).name == "my-cluster"


def test_one_rank_per_gpu_unless_slots_say_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("nodes: 2\ngpus_per_node: 8\nhardware: H100-SXM\n" + LOCAL)
    assert load_cluster(path).slots == 8
    path.write_text("nodes: 2\nslots_per_node: 3\n" + LOCAL)
    assert load_cluster(path).slots == 3


def test_hardware_that_the_catalog_does_not_know_can_be_described(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("nodes: 2\nhardware: {name: X9, gpus_per_node: 4, gpu_link_gb_s: 900}\n" + LOCAL)
    assert (load_cluster(path).hardware.name, load_cluster(path).gpus) == ("X9", 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: 0\n" + LOCAL, r"nodes: .*greater than or equal to 1, is 0"),
        ("nodes: four\n" + LOCAL, r"nodes: .*integer.*'four'"),
        ("nodes: 2\nssh_port: 70000\n" + LOCAL, r"ssh_port: .*less than or equal to 65535, is 70000"),
        ("nodes: 2\nnodez: 3\n" + LOCAL, r"nodez: unknown field; legal: .*nodes"),
        ("nodes: 2\nplatform: {kind: local, foo: 1}", r"platform\.local\.foo: unknown field; legal: kind"),
        ("nodes: 2\nplatform: {kind: cloud}", r"platform: .*'cloud'.*'local'"),
        ("nodes: 2\nhardware: H101\n" + LOCAL, r"hardware: unknown hardware 'H101'; known: cpu, A100-SXM"),
        ("nodes: 2\nhardware: B200-SXM\n" + LOCAL, r"gpus_per_node: is required with hardware B200-SXM"),
        ("nodes: 2\ngpus_per_node: 8\n" + LOCAL, r"gpus_per_node: 8 needs hardware that has GPUs"),
        ("nodes: 2\nnodes: 3\n" + LOCAL, r"line 2: .*'nodes' appears twice"),
        ("nodes: [", r"line \d: not YAML"),
        ("- a\n- b\n", r"must be a mapping of fields, is a list"),
        ("", r"must be a mapping of fields, is empty"),
        ("nodes: 2\nname: Not Legal\n" + LOCAL, r"name: .*a-z, 0-9"),
        ("nodes: 2\nfaults: [{node: node-7, rate: 1gbit}]\n" + LOCAL, r"faults: unknown node 'node-7'"),
        ("nodes: 2\nfaults: [{node: node-1, rate: fast}]\n" + LOCAL, r"rate: .*200mbit.*'fast'"),
        ("nodes: 2\nfaults: [{node: node-1}]\n" + LOCAL, r"one of rate, sshd, host_key, cpu_share, memory, computes"),
        (
            "nodes: 2\nfaults: [{link: [node-0, node-0], state: down}]\n" + LOCAL,
            r"faults\.0\.link: a link needs two different nodes",
        ),
        ("nodes: 9000\n" + LOCAL, r"nodes: .*512"),
        ("nodes: yes\n" + LOCAL, r"nodes: must be a whole number, is true"),
        ("nodes: 2\nssh_port: true\n" + LOCAL, r"ssh_port: must be a whole number, is true"),
        ("nodes: {{ nodes }}\n" + LOCAL, r"line 1: .*template that was not filled in"),
        ("nodes: !!int abc\n" + LOCAL, r"not YAML that can be read"),
        ("nodes: 2020-13-45\n" + LOCAL, r"not YAML that can be read"),
        ("nodes: !!map [a]\n" + LOCAL, r"not YAML"),
        ("nodes: 2\nplatform: {}", r"platform: needs a field kind"),
        ("nodes: 2\nenv: {A: 1}\n" + LOCAL, r"env\.A: must be text, is 1: quote it"),
        ("nodes: 2\nenv: {'A B': x}\n" + LOCAL, r"env: 'A B' is no name of an environment variable"),
        ('nodes: 2\nenv: {A: "a\\0b"}\n' + LOCAL, r"env: the value of A must be one line of text"),
        ("nodes: 2\nfaults: [{node: node-1, rate: 0mbit}]\n" + LOCAL, r"faults\.0\.node\.rate: .*from 8kbit"),
        (
            "nodes: 2\nfaults: [{node: node-1, spead: 1}]\n" + LOCAL,
            r"faults\.0\.node\.spead: unknown field; legal: computes, cpu_share, device, host_key",
        ),
    ],
)
def test_a_bad_cluster_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as refused:
        load_cluster(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "collectives: {cpu: {min_bytes: 4M, max_bytes: 1K}, gpu: {min_bytes: 4, max_bytes: 8}}",
            r"collectives\.cpu: sizes run backwards: min_bytes 4M must not be above max_bytes 1K",
        ),
        (
            "collectives: {cpu: {min_bytes: 4X, max_bytes: 1K}, gpu: {min_bytes: 4, max_bytes: 8}}",
            r"collectives\.cpu\.min_bytes: .*such as 8, 64K",
        ),
        (
            "collectives: {operations: [all_reduce, all_reduce], cpu: {min_bytes: 4, max_bytes: 8},"
            " gpu: {min_bytes: 4, max_bytes: 8}}",
            r"operations must not name the same operation twice",
        ),
        ("training: {steps: 0}", r"training\.steps: .*4, is 0"),
        ("training: {timeout_s: .inf}", r"training\.timeout_s: .*finite"),
        (
            "collectives: {cpu: {min_bytes: 4, max_bytes: 4000G}, gpu: {min_bytes: 4, max_bytes: 8}}",
            r"collectives\.cpu\.max_bytes: .*less than or equal",
        ),
        ("trainings: {steps: 5}", r"trainings: unknown field; legal: .*training"),
    ],
)
def test_a_bad_suite_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as refused:
        load_suite(str(path))
    assert "\n" not in str(refused.value)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nope\.yaml: cannot be read: No such file"):
        load_cluster(tmp_path / "nope.yaml")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        load_cluster(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        load_cluster(tmp_path / "binary.yaml")
    (tmp_path / "huge.yaml").write_text("#" * 1_100_000)
    with pytest.raises(InputError, match="larger than"):
        load_cluster(tmp_path / "huge.yaml")
    (tmp_path / "deep.yaml").write_text("[" * 5_000)
    with pytest.raises(InputError, match=r"deep\.yaml: "):
        load_cluster(tmp_path / "deep.yaml")
    with pytest.raises(InputError, match="suite 'quik': unknown; legal: quick, nightly, acceptance, a4-sweep"):
        load_suite("quik")


@pytest.mark.parametrize(
    ("text", "size"), [("8", 8), (4096, 4096), ("64K", 65536), ("16M", 1 << 24), ("8GiB", 1 << 33)]
)
def test_sizes_are_binary(text: object, size: int) -> None:
    assert parse_size(text) == size
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("value", ["$(reboot)", "`reboot`", 'x"; reboot; "', "a\\b", "a\nb"])
@pytest.mark.parametrize(
    ("field", "where"),
    [
        (lambda value: {"mpi": {"args": ["--mca", "pml", value]}}, "mpi.args.2"),
        (lambda value: {"mpi": {"interface": value}}, "mpi.interface"),
        (lambda value: {"env": {"OMPI_MCA_pml": value}}, "env"),
    ],
)
def test_what_a_shell_of_a_node_would_expand_is_refused(
    tmp_path: Path, field: Callable[[str], dict[str, Any]], where: str, value: str
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({"nodes": 2, "platform": {"kind": "local"}, **field(value)}))
    with pytest.raises(InputError) as refused:
        load_cluster(path)
    assert str(refused.value).startswith(f"{path}: {where}: ")
    assert "\n" not in str(refused.value)
