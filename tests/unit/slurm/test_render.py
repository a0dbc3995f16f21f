"""The scripts and the command line for Slurm, and the verdict on what srun prints where ranks do
not start.
"""

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.failures import classify_failure
from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.testbed import Node, Testbed, dial_tcp
from seatrial.model.verdict import Verdict
from seatrial.platforms import platform_for
from seatrial.platforms.slurm import SlurmPlatform
from seatrial.platforms.slurm.login import Login
from seatrial.platforms.slurm.platform import SrunLauncher
from seatrial.platforms.testbed import MADE_LATER, node_script
from seatrial.remote.mpi_result import MpiResult
from tests.unit.slurm.golden import GOLDEN, clusters, rendered

NAMES = sorted(clusters())


@pytest.mark.parametrize("name", NAMES)
def test_scripts_match_the_golden_files(name: str) -> None:
    kept = {path.name: path.read_text() for path in (GOLDEN / name).iterdir()}
    assert rendered(name) == kept | {
        "node.sh": node_script("20260102-0304-abcde", 222, MADE_LATER, MADE_LATER)
    }


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_rendered_scripts_pass_the_shell_syntax_check_and_shellcheck(
    shell: str, tmp_path: Path
) -> None:
    files = [
        (file, text)
        for name in NAMES
        for file, text in rendered(name).items()
        if file != "ssh_config"
    ]
    texts = {text for file, text in files if (shell == "bash") is (file == "measure.sbatch")}
    scripts = [tmp_path / f"script-{number}" for number in range(len(texts))]
    assert scripts
    for script, text in zip(scripts, texts, strict=True):
        script.write_text(text)
        subprocess.run([shell, "-n", script], check=True)
    if shellcheck := shutil.which("shellcheck"):
        command = [shellcheck, f"--shell={shell}", "--severity=warning", *map(str, scripts)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_rendered_files_contain_no_keys(name: str) -> None:
    files = rendered(name)
    assert "KEY" not in files["job.sbatch"]
    assert "<made for each run>" in files["node.sh"]


@pytest.mark.parametrize(("nodes", "gpus"), [(1, 8), (2, 1), (2, 8)])
def test_measure_script_sweeps_only_arms_that_the_cluster_has(nodes: int, gpus: int) -> None:
    described = {"name": "test", "nodes": nodes, "hardware": "H100-SXM", "gpus_per_node": gpus}
    cluster = Cluster.model_validate({**described, "platform": {"kind": "slurm"}})
    run = Run("20260102-0304-abcde", cluster, load_suite("nightly"), Path("out"))
    text = platform_for(cluster).render(run).files["measure.sbatch"]
    assert ("measure network" in text, '"intra-$node"' in text) == (nodes > 1, gpus > 1)


def test_gres_replaces_the_gpus_per_node_option() -> None:
    lines = rendered("full")["job.sbatch"].splitlines()
    assert "#SBATCH --gres=gpu:h100:8" in lines
    assert not any("gpus-per-node" in line for line in lines)


def launcher(image: str = "", **fields: Any) -> tuple[SrunLauncher, Testbed]:
    platform = SlurmPlatform(kind="slurm", launch="srun", **fields.pop("platform", {}))
    cluster = Cluster.model_validate(
        {"name": "test", "nodes": 2, "platform": platform, "image": image or None, **fields}
    )
    nodes = tuple(
        Node(f"gpu-{i}", f"10.0.0.{i}", 222, cluster.slots, "ssh-ed25519 A", cluster.gpus)
        for i in range(2)
    )
    testbed = Testbed(
        "run", nodes, "user", Path("key"), dial_tcp, "/home/u/.seatrial/run", launcher=None
    )
    return SrunLauncher(
        Login(), cluster, platform, "7", image, "/home/u/.seatrial/run", "/tmp/seatrial-run"
    ), testbed


GPUS: dict[str, Any] = {"hardware": "H100-SXM", "gpus_per_node": 8}


def test_every_rank_has_a_gpu() -> None:
    srun, testbed = launcher(**GPUS)
    assert shlex.join(srun.argv(testbed, ["all_reduce_perf"], {})) == (
        "srun --jobid=7 --job-name=seatrial-ranks --overlap --input=none --nodes=2 "
        "--nodelist=gpu-0,gpu-1 --ntasks=16"
        " --ntasks-per-node=8 --gpus-per-task=1 --cpu-bind=none --mem=0 --mpi=pmix "
        "--kill-on-bad-exit=1 --label"
        " all_reduce_perf"
    )
    assert srun.environment({"A": "1"}) == {
        "A": "1",
        "NCCL_TESTS_DEVICE": "0",
        "SLURM_GPUS_PER_TASK": "1",
        "TMPDIR": "/tmp/seatrial-run/tmp",
    }


def test_srun_gives_each_rank_its_gpu_on_nodes_with_one_gpu() -> None:
    srun, testbed = launcher(**GPUS | {"gpus_per_node": 1})
    assert "--gpus-per-task=1" in srun.argv(testbed, ["true"], {})


def test_ranks_that_share_gpus_choose_among_all() -> None:
    srun, testbed = launcher(**GPUS, slots_per_node=4)
    assert "--gpus-per-task=1" not in srun.argv(testbed, ["true"], {})
    assert "NCCL_TESTS_DEVICE" not in srun.environment({})


@pytest.mark.parametrize(
    ("image", "runtime", "words", "environment"),
    [
        (
            "/s/a.sqsh",
            "pyxis",
            ["--container-image=/s/a.sqsh", "--container-mounts=/home/u/.seatrial/run:/home/u/.seatrial/run",
             "--container-env=A,B", "--no-container-entrypoint", "--no-container-remap-root", "true"],
            {"A": "1", "B": "2"},
        ),
        (
            "/s/a.sif",
            "apptainer",
            ["apptainer", "exec", "--bind=/home/u/.seatrial/run:/home/u/.seatrial/run", "/s/a.sif", "true"],
            {"A": "1", "APPTAINERENV_A": "1", "B": "2", "APPTAINERENV_B": "2"},
        ),
    ],
)  # fmt: skip
def test_containers_see_the_probes_and_the_environment(
    image: str, runtime: str, words: list[str], environment: dict[str, str]
) -> None:
    srun, testbed = launcher(image, platform={"runtime": runtime})
    env = {"B": "2", "A": "1"}
    assert srun.argv(testbed, ["true"], env)[-len(words) :] == words
    assert srun.environment(env).items() >= environment.items()
    assert srun.python == "python3"


@pytest.mark.parametrize(
    ("lines", "verdict", "words"),
    [
        (
            ("slurmstepd-n1: error: execve(): all_reduce_perf: No such file or directory",
             "srun: error: n1: task 1: Exited with exit code 2"),
            Verdict.NOT_RUN, "executable missing",
        ),
        (
            (("srun: error: Couldn't find the specified plugin name for mpi/pmix looking at " "all files"),
             "srun: error: cannot find mpi plugin for mpi/pmix",
             "srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types"),
            Verdict.NOT_RUN, "MPI plugin of srun missing (pmix)",
        ),
        (
            ("srun: error: Unable to confirm allocation for job 5: Invalid job id specified",),
            Verdict.INCONCLUSIVE, "srun could not start the job",
        ),
        (("srun: error: Node failure on n1",), Verdict.FAIL, "a node failed under Slurm on n1"),
    ],
)  # fmt: skip
def test_srun_errors_before_the_ranks_start_are_classified(
    lines: tuple[str, ...], verdict: Verdict, words: str
) -> None:
    came_to, reason = classify_failure(MpiResult(1, lines, 1.0), began=False)
    assert (came_to, words in reason.sentence) == (verdict, True), reason
