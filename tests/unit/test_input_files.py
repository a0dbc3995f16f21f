"""Cluster and suite files: what ships loads, and what is wrong is said in one line that tells what
is legal.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.checks.collectives.section import Collectives
from seatrial.checks.dcgm import Dcgm
from seatrial.checks.devices.section import Devices
from seatrial.checks.rdma.section import Rdma
from seatrial.checks.storage.check import Storage
from seatrial.checks.suites import SHIPPED, load_suite
from seatrial.checks.table import CHECKS
from seatrial.checks.training.section import Training
from seatrial.config.cluster import load_cluster
from seatrial.config.upload import missing_package
from seatrial.model.errors import FileError, InputError
from seatrial.model.sizes import format_size, parse_size

CLUSTERS = sorted((Path(__file__).parents[2] / "deployments" / "clusters").glob("*.yaml"))
LOCAL = "platform: {kind: local}\n"
CPU, GPU = "cpu: {min_bytes: 4, max_bytes: 8}", "gpu: {min_bytes: 4, max_bytes: 8}"


def test_every_platform_has_an_example() -> None:
    kinds = {load_cluster(path).platform.kind for path in CLUSTERS}
    assert kinds == {"local", "kubernetes", "slurm", "runai", "baremetal", "docker", "this-machine"}


def test_only_the_platform_that_the_file_names_is_imported() -> None:
    program = f"""
import sys
from pathlib import Path
from seatrial.config.cluster import load_cluster
from seatrial.config.upload import missing_package
load_cluster(Path({str(CLUSTERS[0].with_name("local.yaml"))!r}))
print(*sorted({{name.split(".")[2] for name in sys.modules if name.startswith("seatrial.platforms.")}} - {{"reasons"}}))
"""  # and the codes that all platforms share
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "local\n"


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_suites_load(name: str) -> None:
    suite = load_suite(name)
    assert suite.name == name
    alone: dict[str, set[Any]] = {
        "a4-sweep": {Devices, Training},
        "resnet50-fp32": {Devices, Collectives},
        "qualify": {Training},
        "qualify-pairs": {Devices, Training},
    }
    left_out = {Dcgm, Rdma, Storage} | alone.get(name, set())
    assert {kind.section for kind in CHECKS if suite.section(kind.section)} == {
        kind.section for kind in CHECKS
    } - left_out
    section = suite.section(Collectives)
    assert (
        section is None
        if Collectives in left_out
        else section and section.first_operation == "all_reduce"
    )


def test_cluster_name_defaults_to_the_file_name(tmp_path: Path) -> None:
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
    path.write_text(
        "nodes: 2\nhardware: {name: X9, gpus_per_node: 4, gpu_link_gb_s: 900}\n" + LOCAL
    )
    assert (load_cluster(path).hardware.name, load_cluster(path).gpus) == ("X9", 4)


WRONG_FIELDS = [
    ("nodes: 0", r"line 1: nodes: must be at least 1, is 0$"),
    ("nodes: four", r"nodes: must be a whole number, is 'four'"),
    ("nodes: 9000", r"nodes: .*512"),
    ("nodes: yes", r"nodes: must be a whole number, is true"),
    ("nodes: {{ nodes }}", r"line 1: .*template that was not filled in"),
    ("nodes: !!int abc", r"line 1: .*a number must be plain and decimal, is 'abc'"),
    ("nodes: 2020-13-45", r"not YAML that can be read"),
    ("nodes: !!map [a]", r"not YAML"),
    ("ssh_port: 70000", r"line 2: ssh_port: must be at most 65535, is 70000"),
    ("mpi: {interface: 10.0.0.0/33}", r"mpi\.interface: .*; legal: one network such as 10\.0\."),
    ("ssh_port: true", r"ssh_port: must be a whole number, is true"),
    ("nodez: 3", r"nodez: unknown field; nearest: nodes; legal: .*nodes"),
    ("name: Not Legal", r"name: .*a-z, 0-9"),
    ("name: H100", r"name: must be 1 to 40 of a-z.* at both ends, is 'H100'$"),
    (
        "platform: {kind: baremetal, hosts: [a, b], port: yes}",
        r"platform\.port: must be a whole number, is true",
    ),
    ("hardware: H101", r"hardware: unknown hardware 'H101'; known: cpu, A100-SXM"),
    ("hardware: B200-SXM", r"gpus_per_node: is required with hardware B200-SXM"),
    ("gpus_per_node: 8", r"gpus_per_node: 8 needs hardware that has GPUs"),
    ("platform: {kind: local, foo: 1}", r"line 2: platform\.foo: unknown field; legal: kind"),
    ("platform: {kind: cloud}", r"platform: kind 'cloud' is unknown; legal: 'local', "),
    ("platform: {}", r"platform: needs a field kind"),
    ("platform: {kind: this-machine}", r"nodes: must be 1 on platform this-machine, is 2"),
    (
        "nodes: 1\nimage: a/cpu:1\nplatform: {kind: this-machine}",
        r"image: has no use on platform this-machine",
    ),
    ("nodes: 1\nfaults: [{kind: slow-link}]\nplatform: {kind: this-machine}", r"faults"),
    ("platform: {kind: baremetal, hosts: ['gpu-[2-1]']}", r"platform\.hosts.*smaller number first"),
    ("faults: [{node: node-7, rate: 1gbit}]", r"faults: unknown node 'node-7'"),
    ("faults: [{node: node-1, rate: fast}]", r"rate: .*200mbit.*'fast'"),
    ("faults: [{node: node-1, rate: 0mbit}]", r"faults\.0\.rate: .*from 8kbit"),
    ("faults: [{node: node-1}]", r"one of rate, sshd, host_key, cpu_share, memory, computes"),
    (
        "faults: [{node: node-1, spead: 1}]",
        r"faults\.0\.spead: unknown field; legal: after, checkpoint_s, computes, cpu_share, device",
    ),
    (
        "faults: [{link: [node-0, node-0], state: down}]",
        r"faults\.0: a link needs two different nodes",
    ),
    ("faults: [{link: [node-0, node-1]}]", r"faults\.0: a fault needs one of state, rate, loss"),
    (
        "faults: [{link: [node-0, node-1], state: down, loss: 5%}]",
        r"leaves nothing for rate and loss",
    ),
    ("faults: [{link: [node-0, node-1], loss: 5}]", r"faults\.0\.loss: must be text, is 5"),
    (
        "faults: [{link: [node-0, node-1], loss: 100%}]",
        r"loss: must be a share of packets .* such as 5%, is '100%'",
    ),
    ("faults: [{switch: [node-1]}]", r"faults\.0\.uplink: is required"),
    (
        "faults: [{switch: [node-0, node-1], uplink: 1gbit}]",
        r"faults: switch: some nodes must stay outside of it",
    ),
    ("faults: [{node: node-1, rate: 1gbit, after: launch}]", r"faults\.0\.after: .*'connectivity'"),
    (
        "faults: [{node: node-1, memory: 1G, after: connectivity}]",
        r"after is for rate, sshd, cpu_share, not for memory",
    ),
    (
        "faults: [{link: [node-1, node-0], rate: 1gbit}, {link: [node-0, node-1], rate: 1mbit}]",
        r"faults: rate of node-0--node-1 is set twice",
    ),
    (
        "nodes: 3\nfaults: [{switch: [node-1], uplink: 1gbit}, {switch: [node-1], uplink: 1mbit}]",
        r"faults: node-1 is behind a switch twice",
    ),
    ("env: {A: 1}", r"env\.A: must be text, is 1: quote it"),
    ("env: {<<: {A: 1}, B: c}", r"env\.A: must be text, is 1: quote it"),
    ("env: {A: 2026-11-30}", r"env\.A: must be text, is 2026-11-30: quote it$"),
    ("env: {'A B': x}", r"env: 'A B' is no name of an environment variable"),
    ('env: {A: "a\\0b"}', r"env: the value of A must be one line of text"),
    ("keep: sometimes", r"keep: .*'never', 'on_failure' or 'always'"),
    ("keep_s: 0", r"keep_s: must be above 0, is 0"),
    ("keep_s: 1000000", r"keep_s: must be at most 604800, is 1000000"),
    ("upload: gcs2://bucket", r"upload: unknown protocol 'gcs2'; legal: .*\bgs\b.*\bs3\b"),
    (
        "upload: /srv/logs",
        r"upload: must be the URL of a folder, such as gs://bucket/testbed-logs, is '/srv/logs'",
    ),
    ("upload: gs://", r"upload: must name a bucket or folder behind gs://"),
    ("upload: file://srv/logs", r"upload: must be file:// and a full path"),
    ("upload: file://", r"upload: must be file:// and a full path"),
    ("upload: ftp://me:pass@host/logs", r"upload: must not hold a login"),
    ("upload: simplecache::gs://bucket/logs", r"upload: must be the URL of a folder"),
    (
        "notify: {slack: {channel: 'two words'}}",
        r"notify\.slack\.channel: must be a channel's name or id",
    ),
    (
        "notify: {slack: {mentions: {fail: ['@ann']}}}",
        r"notify\.slack\.mentions\.fail\.0: must be here, channel, eve",
    ),
    ("notify: {slack: {mentions: {terrible: [here]}}}", r"notify\.slack\.mentions\.terrible"),
    (
        "notify: {slack: {token: xoxb-1}}",
        r"notify\.slack\.token: unknown field; legal: channel, mentions",
    ),
    ("notify: {quiet: please}", r"notify\.quiet: must be 'nothing' or 'digest', is 'please'"),
    (
        "notify: {report_url: 'https://u:p@x.example.com'}",
        r"notify\.report_url: must be an http or https address wit",
    ),
    (
        "notify: {report_url: 'https://x.example.com/{run}'}",
        r"notify\.report_url: must be an http or https address",
    ),
    (
        "notify: {mail: ops@example.com}",
        r"notify\.mail: unknown field; legal: quiet, report_url, slack",
    ),
]
NO_CLUSTERS = [
    ("nodes: 2\nnodes: 3\n" + LOCAL, r"line 2: .*'nodes' appears twice"),
    ("nodes: [", r"line \d: not YAML"),
    ("- a\n- b\n", r"must be a mapping of fields, is a list"),
    ("", r"must be a mapping of fields, is empty"),
]


LONG_NUMBERS = [
    (f"nodes: 0x{'f' * 5_000}", r"line 1: .*a number must be plain and decimal, is '0xf{78}'"),
    (f"nodes: 1{':1' * 200_000}", r"line 1: .*a number must be plain and decimal, is '1:1"),
    (f"keep_s: {'9' * 900_000}", r"line 2: .*a number must be plain and decimal, is '9{80}'"),
    (f"keep_s: 1{':1' * 200}.5", r"line 2: .*a number must be plain and decimal, is '1:1"),
    (f"keep_s: '{'9' * 900_000}'", r"keep_s: must be a finite number, is '9{79}$"),
]


def cluster_with(field: str) -> str:
    """A cluster file with that field, and the others as they should be."""
    nodes, platform = (
        "" if field.startswith("nodes") else "nodes: 2\n",
        "" if "platform" in field else LOCAL,
    )
    return f"{nodes}{field}\n{platform}"


@pytest.mark.parametrize(
    ("text", "message"),
    [*((cluster_with(field), message) for field, message in WRONG_FIELDS), *NO_CLUSTERS],
)
def test_a_bad_cluster_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as refused:
        load_cluster(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


def test_all_errors_of_a_file_are_told_at_once_in_the_order_of_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        """\
nodez: 3
hardware: B200-SXM
keep: on_failures
platform:
  kind: kubernetes
  namespace: 7
  topology: {unconstrained: true}
  volumes:
    - {kind: nfs, mount: /data, server: x}
    - 3
env: [a]
faults: [{node: node-1, rate: {}}]
"""
    )
    with pytest.raises(FileError) as refused:
        load_cluster(path)
    lines = [line.removeprefix(f"{path}: ") for line in refused.value.lines]
    assert [line.partition("; legal")[0] for line in lines] == [
        "line 1: nodez: unknown field; nearest: nodes",
        (
            "line 3: keep: must be 'never', 'on_failure' or 'always', is 'on_failures'; "
            "nearest: on_failure"
        ),
        "line 6: platform.namespace: must be text, is 7: quote it",
        "line 9: platform.volumes.0.path: is required",
        "line 10: platform.volumes.1: must be a mapping of fields, is 3",
        "line 11: env: must be a mapping of fields, is a list",
        "line 12: faults.0.rate: must be text, is a mapping",
    ]


def test_inconsistent_fields_are_refused_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "nodes: 600\nhardware: B200-SXM\nfaults:\n  - {node: node-700, sshd: stopped}\n"
        "platform:\n  kind: local\n"
    )
    with pytest.raises(FileError) as refused:
        load_cluster(path)
    assert [line.removeprefix(f"{path}: ") for line in refused.value.lines] == [
        "line 1: nodes: the local platform takes at most 512, is 600",
        "line 3: faults: unknown node 'node-700'; legal: node-0 to node-599",
        "gpus_per_node: is required with hardware B200-SXM",
    ]
    path.write_text("nodes: 2\nplatform:\n  kind: kubernetes\n  topology: {unconstrained: true}\n")
    with pytest.raises(
        FileError, match=r": line 4: platform\.topology: is Kueue's, so it needs queue$"
    ):
        load_cluster(path)


@pytest.mark.parametrize(
    ("field", "message"), LONG_NUMBERS, ids=["hex", "sexagesimal", "digits", "float", "text"]
)
def test_very_long_number_is_refused_quickly(tmp_path: Path, field: str, message: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(cluster_with(field))
    with pytest.raises(InputError, match=message):
        load_cluster(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"collectives: {{cpu: {{min_bytes: 4M, max_bytes: 1K}}, {GPU}}}",
            r"min_bytes 4M must not be above max_bytes 1K",
        ),
        (
            f"collectives: {{cpu: {{min_bytes: 4X, max_bytes: 1K}}, {GPU}}}",
            r"cpu\.min_bytes: .*such as 8, 64K",
        ),
        (
            f"collectives: {{cpu: {{min_bytes: 4, max_bytes: 4000G}}, {GPU}}}",
            r"cpu\.max_bytes: must be at most \d+, is",
        ),
        (
            f"collectives: {{operations: [broadcast, broadcast], {CPU}, {GPU}}}",
            r"must not name the same operation",
        ),
        ("training: {steps: 0}", r"training\.steps: .*4, is 0"),
        ("training: {timeout_s: .inf}", r"training\.timeout_s: .*finite"),
        ("training: {size: 8B}", r"line 1: training\.size: must be .* is '8B'; nearest: 8b"),
        ("training: {size: {layers: x}}", r"training\.size\.layers: must be a whole number"),
        ("storage: {paths: [data]}", r"line 1: storage\.paths\.0: must match .*, is 'data'$"),
        ("campaign: {hours: 1, phases: [{suite: quik}]}", "suite 'quik': unknown; legal: quick, "),
        (
            "campaign: {hours: 1, phases: [{suite: {name: a, budget_s: x}}]}",
            r"campaign\.phases\.0\.suite\.budget_s: must be a number, is 'x'",
        ),
        ("rdma: {programs: [ib_write]}", r"rdma\.programs\.0: must .*ib_read_bw$"),
        (
            "trainings: {steps: 5}",
            r"trainings: unknown field; nearest: training, storage; legal: .*training",
        ),
    ],
)
def test_a_bad_suite_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as refused:
        load_suite(str(path))
    assert "\n" not in str(refused.value)


def test_unreadable_file_is_named_with_its_problem(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "huge.yaml").write_text("#" * 1_100_000)
    (tmp_path / "deep.yaml").write_text("[" * 5_000)
    for name, problem in (
        ("nope", "cannot be read: No such file"),
        ("folder", "cannot be read: Is a directory"),
        ("binary", "is not UTF-8 text"),
        ("huge", "larger than"),
        ("deep", ""),
    ):
        with pytest.raises(InputError, match=rf"{name}\.yaml: .*{problem}"):
            load_cluster(tmp_path / f"{name}.yaml")
    # No such cluster file is shipped
    with pytest.raises(InputError, match=r"^deployments/clusters/none\.yaml: cannot be read"):
        load_cluster(Path("deployments/clusters/none.yaml"))
    with pytest.raises(
        InputError,
        match="suite 'quik': unknown; legal: quick, nightly, acceptance, a4-sweep, "
        "resnet50-fp32, qualify",
    ):
        load_suite("quik")


@pytest.mark.parametrize(
    "url",
    [
        *(
            "gs://bucket/testbed-logs",
            "s3://bucket",
            "abfs://container@account.dfs.core.windows.net/logs",
        ),
        *("file:///srv/logs", "memory://bucket/logs", "sftp://host/srv/logs"),
    ],
)
def test_supported_upload_urls_are_accepted(tmp_path: Path, url: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(cluster_with(f"upload: {url}/"))
    assert load_cluster(path).upload == url


def test_a_package_that_an_upload_lacks_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for comes_with_fsspec in ("file:///srv/logs", "memory://bucket"):
        assert missing_package(comes_with_fsspec) is None
    monkeypatch.setattr("seatrial.config.upload.find_spec", lambda _: None)
    message = missing_package("gs://bucket/logs")
    assert message
    assert "gcsfs is not installed, which gs:// needs: " in message
    assert message.endswith("with its extra `gcs`")


@pytest.mark.parametrize(
    ("text", "size"), [("8", 8), (4096, 4096), ("64K", 65536), ("16M", 1 << 24), ("8GiB", 1 << 33)]
)
def test_sizes_are_read_in_binary_units(text: object, size: int) -> None:
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
    assert re.match(rf"{path}: line \d: {where}: ", str(refused.value))
    assert "\n" not in str(refused.value)
