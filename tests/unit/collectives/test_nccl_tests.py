"""How nccl-tests are called, and which network NCCL took."""

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.collectives import check as step
from seatrial.checks.collectives import sweep
from seatrial.checks.collectives.section import Collectives, PlannedSweep
from seatrial.checks.contract import CheckContext, try_check
from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.result import Check
from seatrial.model.testbed import Testbed
from seatrial.model.verdict import Verdict
from tests.unit.collectives.fake_mpirun import (
    GPU_SIZES,
    FakeMpirun,
    make_run,
    make_testbed,
    result,
    table,
)

SOCKETS = "node-0:81:90 [0] NCCL INFO Using network Socket"
INFINIBAND = "node-0:81:90 [0] NCCL INFO Using network IB"


@pytest.mark.parametrize(
    ("evidence", "env", "fabric", "verdict"),
    [
        (SOCKETS, {}, "IB-8x400G", Verdict.FAIL),
        (SOCKETS, {"NCCL_NET": "gIB"}, None, Verdict.FAIL),
        (INFINIBAND, {}, "IB-8x400G", Verdict.PASS),
        ("", {}, "IB-8x400G", Verdict.PASS),  # no evidence, no accusation
        (SOCKETS, {}, None, Verdict.PASS),
        (SOCKETS, {}, "MNNVL", Verdict.PASS),
        (SOCKETS, {"NCCL_NET": "Socket"}, "IB-8x400G", Verdict.PASS),  # as asked
    ],
)
def test_a_silent_fallback_to_sockets_fails(
    check: Callable[..., Check],
    evidence: str,
    env: dict[str, str],
    fabric: str | None,
    verdict: Verdict,
) -> None:
    played = result([evidence, *table(sizes=GPU_SIZES)])
    done = check(played, make_testbed(gpus=1, env=env), sizes=GPU_SIZES, fabric=fabric)
    assert done.verdict is verdict, done.reason
    if verdict is Verdict.FAIL:
        assert (
            f"went over sockets, not over {env.get('NCCL_NET') or fabric}: {SOCKETS}"
            in done.reason.sentence
        )


def test_nccl_debug_info_is_set_for_the_first_sweep_unless_the_cluster_file_sets_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = make_run(tmp_path, operations=["all_reduce", "alltoall"], sizes=GPU_SIZES, fabric="RoCE")

    def envs(bed: Testbed) -> list[Mapping[str, str] | None]:
        fake = FakeMpirun(lambda operation: result(table(sizes=GPU_SIZES)))
        monkeypatch.setattr(sweep, "mpirun", fake)
        try_check(step.COLLECTIVES, CheckContext(run, bed))
        return fake.envs

    info = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    assert envs(make_testbed(gpus=1)) == [info, {"NCCL_DEBUG": "WARN"}]
    assert envs(make_testbed(gpus=1, env={"NCCL_DEBUG": "VERSION"})) == [{}, {}]
    assert envs(make_testbed()) == [{}, {}]


def test_gpus_get_nccl_tests_and_cpus_the_probe(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    section = load_suite("quick").section(Collectives)
    assert section is not None
    nccl = sweep.nccl_argv(section, "all_gather", section.gpu)
    assert (
        " ".join(nccl) == "all_gather_perf -b 1048576 -e 1073741824 -f 4 -g 1 -w 5 -n 20 -d float"
    )
    planned = PlannedSweep("all_gather", section.cpu)
    gloo = sweep.gloo_argv(run, make_testbed(), section, planned, planned.label)
    assert gloo[:4] == ["python3", "/w/collective.py", "--operation", "all_gather"]
    assert gloo[gloo.index("--master-addr") + 1] == "10.0.0.1"
    assert 20_000 <= int(gloo[gloo.index("--master-port") + 1]) < 30_000


def test_arguments_of_nccl_tests_are_conditions_of_the_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Eight GPUs of two nodes in processes of two: four processes, and another series than one GPU
    each.
    """
    fake = FakeMpirun(lambda operation: result(table(ranks=8, sizes=GPU_SIZES)))
    monkeypatch.setattr(sweep, "mpirun", fake)

    def series(**gpu: Any) -> set[str]:
        run = make_run(tmp_path, nodes=2, sizes=GPU_SIZES, gpu=gpu)
        done = try_check(step.COLLECTIVES, CheckContext(run, make_testbed(2, gpus=4))).check
        assert done.verdict is Verdict.PASS, done.reason
        return {measurement.series() for measurement in done.measurements}

    plain, asked = series(), series(gpus_per_process=2, args="-R 1 -G 1")
    assert len(plain) == len(asked) > 5
    assert not plain & asked
    assert {
        key.replace("args=-R 1 -G 1,", "").replace("gpus_per_process=2,", "") for key in asked
    } == plain
    assert fake.slots == [8, 4]
    assert [argv[argv.index("-g") + 1] for argv in fake.argvs] == ["1", "2"]
    assert fake.argvs[1][-4:] == ["-R", "1", "-G", "1"]


def test_shown_sweep_command_equals_the_mpirun_command_line(tmp_path: Path) -> None:
    run = make_run(tmp_path, nodes=2, sizes=GPU_SIZES, gpu={"gpus_per_process": 2, "args": "-c 1"})
    (line,) = sweep.sweep_commands(
        run, make_testbed(2, gpus=4, env={"NCCL_NET": "IB", "MARK": "a b"})
    )
    assert line == (
        "env NCCL_NET=IB 'MARK=a b' NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET mpirun "
        "--allow-run-as-root"
        " --hostfile /w/hostfile -np 4 --map-by slot --bind-to none --mca "
        "orte_keep_fqdn_hostnames 1"
        " --mca btl_tcp_if_include 10.0.0.0/24 --mca oob_tcp_if_include 10.0.0.0/24 --tag-output"
        " -x NCCL_NET -x MARK -x NCCL_DEBUG -x NCCL_DEBUG_SUBSYS"
        " all_reduce_perf -b 262144 -e 4194304 -f 4 -g 2 -w 2 -n 20 -d float -c 1"
    )


@pytest.mark.parametrize("argument", ["-b 8", "--ngpus=2", "-J x.json", "-h", "a;b"])
def test_extra_arguments_that_have_a_field_of_their_own_are_refused(
    tmp_path: Path, argument: str
) -> None:
    with pytest.raises(ValueError, match=r"args"):
        make_run(tmp_path, gpu={"args": argument})


def test_collectives_are_not_run_when_gpus_per_process_does_not_divide_gpus(
    check: Callable[..., Check],
) -> None:
    done = check(
        result(table()),
        make_testbed(2, gpus=4),
        sizes=GPU_SIZES,
        nodes=2,
        gpu={"gpus_per_process": 3},
    )
    assert done.verdict is Verdict.NOT_RUN
    assert (
        done.reason.sentence
        == "all_reduce: 4 GPUs of node-0 cannot be shared out to processes of 3 GPUs each"
    )


def test_sweeps_by_hand_start_the_arm_of_each_node_on_every_node(tmp_path: Path) -> None:
    """The lines of the shell, with an mpirun that says what it is given."""
    cluster = {
        "name": "c",
        "nodes": 3,
        "gpus_per_node": 4,
        "hardware": "H100-SXM",
        "platform": {"kind": "local"},
    }
    run = Run("r", Cluster.model_validate(cluster), load_suite("nightly"), tmp_path)
    testbed = replace(
        make_testbed(3, gpus=4, env={"NCCL_SOCKET_IFNAME": "^lo,docker0"}),
        workdir=str(tmp_path),
        nccl_tests="/opt/nccl-tests/build",
    )
    commands = sweep.sweep_commands(run, testbed)
    mpirun = tmp_path / "mpirun"
    mpirun.write_text('#!/bin/sh\necho "$NCCL_SOCKET_IFNAME $2 $3 $4 $5 $6 $(cat "$3") $*"\n')
    mpirun.chmod(0o755)
    (tmp_path / "hostfile").write_text("".join(f"10.0.0.{i} slots=4\n" for i in range(3)))
    script = "\n".join(commands)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    intra = [line for line in done.stdout.splitlines() if "hostfile-" in line]
    assert sorted(line.partition(" slots")[0].rpartition(" ")[2] for line in intra) == [
        f"10.0.0.{i}" for i in range(3)
    ]
    assert all(
        " -np 4 " in line and "/opt/nccl-tests/build/all_reduce_perf" in line for line in intra
    )
    assert all("NCCL_P2P_LEVEL" in line for line in intra)
    assert all(line.startswith("^lo,docker0 ") for line in intra)
