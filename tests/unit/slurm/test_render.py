"""The scripts for Slurm: held to golden files, and to what a shell and a careful reader think of them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.platforms import platform_for
from seatrial.platforms.testbed import MADE_LATER, node_script
from tests.unit.slurm.golden import GOLDEN, clusters, rendered

NAMES = sorted(clusters())


@pytest.mark.parametrize("name", NAMES)
def test_scripts_are_as_they_were(name: str) -> None:
    kept = {path.name: path.read_text() for path in (GOLDEN / name).iterdir()}
    assert rendered(name) == kept | {"node.sh": node_script("20260102-0304-abcde", 222, MADE_LATER, MADE_LATER)}


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_the_shell_and_shellcheck_accept_them(shell: str, tmp_path: Path) -> None:
    files = [(file, text) for name in NAMES for file, text in rendered(name).items() if file != "ssh_config"]
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
def test_no_key_is_outside_of_the_standard_input(name: str) -> None:
    files = rendered(name)
    assert "KEY" not in files["job.sbatch"]
    assert "<made for each run>" in files["node.sh"]


@pytest.mark.parametrize(("nodes", "gpus"), [(1, 8), (2, 1), (2, 8)])
def test_only_links_that_are_there_are_measured(nodes: int, gpus: int) -> None:
    described = {"name": "test", "nodes": nodes, "hardware": "H100-SXM", "gpus_per_node": gpus}
    cluster = Cluster.model_validate({**described, "platform": {"kind": "slurm"}})
    run = Run("20260102-0304-abcde", cluster, load_suite("nightly"), Path("out"))
    text = platform_for(cluster).render(run).files["measure.sbatch"]
    assert ("measure network" in text, '"intra-$node"' in text) == (nodes > 1, gpus > 1)


def test_gres_takes_the_place_of_gpus_per_node() -> None:
    lines = rendered("full")["job.sbatch"].splitlines()
    assert "#SBATCH --gres=gpu:h100:8" in lines
    assert not any("gpus-per-node" in line for line in lines)
