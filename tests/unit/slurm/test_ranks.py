"""The command line of `launch: srun`. Pure."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from seatrial.config.cluster import Cluster
from seatrial.model.testbed import Node, Testbed, dial_tcp
from seatrial.platforms.slurm import SlurmPlatform
from seatrial.platforms.slurm.login import Login
from seatrial.platforms.slurm.platform import SrunLauncher


def launcher(image: str = "", **fields: Any) -> tuple[SrunLauncher, Testbed]:
    platform = SlurmPlatform(kind="slurm", launch="srun", **fields.pop("platform", {}))
    cluster = Cluster.model_validate(
        {"name": "test", "nodes": 2, "platform": platform, "image": image or None, **fields}
    )
    nodes = tuple(Node(f"gpu-{i}", f"10.0.0.{i}", 222, cluster.slots, "ssh-ed25519 A", cluster.gpus) for i in range(2))
    testbed = Testbed("run", nodes, "user", Path("key"), dial_tcp, "/home/u/.seatrial/run", launcher=None)
    return SrunLauncher(Login(), cluster, platform, "7", image, "/home/u/.seatrial/run", "/tmp/seatrial-run"), testbed


GPUS: dict[str, Any] = {"hardware": "H100-SXM", "gpus_per_node": 8}


def test_every_rank_has_a_gpu() -> None:
    srun, testbed = launcher(**GPUS)
    assert shlex.join(srun.argv(testbed, ["all_reduce_perf"], {})) == (
        "srun --jobid=7 --job-name=seatrial-ranks --overlap --input=none --nodes=2 --nodelist=gpu-0,gpu-1 --ntasks=16"
        " --ntasks-per-node=8 --gpus-per-task=1 --cpu-bind=none --mem=0 --mpi=pmix --kill-on-bad-exit=1 --label"
        " all_reduce_perf"
    )
    assert srun.environment({"A": "1"}) == {
        "A": "1",
        "NCCL_TESTS_DEVICE": "0",
        "SLURM_GPUS_PER_TASK": "1",
        "TMPDIR": "/tmp/seatrial-run/tmp",
    }


def test_the_one_gpu_of_a_node_is_its_ranks() -> None:
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
