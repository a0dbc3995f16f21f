"""What a probe makes of the variables that launchers set: its rank, and where rank 0 listens."""

import importlib
from types import ModuleType

import pytest

from seatrial.remote.probes import probe

SLURM = "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0"
MPIRUN = "OMPI_COMM_WORLD_RANK={} OMPI_COMM_WORLD_SIZE={} "


def env(text: str) -> dict[str, str]:
    return dict(variable.split("=", 1) for variable in text.split())


@pytest.fixture
def placement(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(probe("placement").parent))
    return importlib.import_module("placement")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (0, 1, 0)),
        (env(MPIRUN.format(3, 4) + "OMPI_COMM_WORLD_LOCAL_RANK=1 RANK=0"), (3, 4, 1)),
        (env("PMI_RANK=2 PMI_SIZE=8"), (2, 8, 0)),
        (env("PMIX_RANK=1 SLURM_NTASKS=2 SLURM_LOCALID=1"), (1, 2, 1)),
        (env("SLURM_PROCID=5 SLURM_NTASKS=6 SLURM_LOCALID=5"), (5, 6, 5)),
        (env("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1"), (1, 2, 1)),
        (env("SLURM_NTASKS=2 PET_NPROC_PER_NODE=8 PET_NNODES=2"), (0, 1, 0)),  # a job's shell
        (env("PET_NODE_RANK=1 PET_NNODES=3 PET_NPROC_PER_NODE=1"), (1, 3, 0)),
        (env(SLURM + " RANK=5 WORLD_SIZE=8 LOCAL_RANK=1"), (5, 8, 1)),  # several ranks of a task
        # mpirun starts torchrun on every node
        (
            env(MPIRUN.format(1, 2) + "RANK=7 WORLD_SIZE=8 LOCAL_RANK=3 TORCHELASTIC_RUN_ID=none"),
            (7, 8, 3),
        ),
        # mpirun in a pod of Kubeflow, whose RANK counts pods
        (
            env(
                MPIRUN.format(6, 8)
                + "RANK=1 WORLD_SIZE=8 PET_NPROC_PER_NODE=4 OMPI_COMM_WORLD_LOCAL_RANK=2"
            ),
            (6, 8, 2),
        ),
    ],
)
def test_rank_is_taken_from_the_innermost_launcher(
    placement: ModuleType, environ: dict[str, str], expected: tuple[int, int, int]
) -> None:
    here = placement.place(environ)
    assert (here.rank, here.world_size, here.local_rank) == expected


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (env("RANK=2 WORLD_SIZE=2"), "RANK is 2, but WORLD_SIZE is 2"),
        (env("RANK=0"), "RANK is set, but WORLD_SIZE is not"),
        (env("WORLD_SIZE=4"), "WORLD_SIZE is set, but RANK is not"),
        (env("RANK=0 WORLD_SIZE=0"), "WORLD_SIZE is '0', not a whole number of 1 or more"),
        (env("RANK=-1 WORLD_SIZE=2"), "RANK is '-1', not a whole number of 0 or more"),
        (
            {"RANK": "\x1b[2J", "WORLD_SIZE": "2"},
            r"RANK is '\x1b[2J', not a whole number of 0 or more",
        ),
        (env("RANK=0 WORLD_SIZE=2 LOCAL_RANK=1"), "LOCAL_RANK is 1, but RANK is 0"),
        (env(SLURM + " RANK=0 WORLD_SIZE=2"), "RANK is 0, but SLURM_PROCID is 1, both of 2 ranks"),
        (
            env("RANK=1 WORLD_SIZE=16 PET_NPROC_PER_NODE=8"),
            "RANK is the rank of a node and PET_NPROC_PER_NODE is '8': start it by torchrun",
        ),
        (
            env("PET_NODE_RANK=1 PET_NNODES=2 PET_NPROC_PER_NODE=auto"),
            (
                "PET_NODE_RANK is the rank of a node and PET_NPROC_PER_NODE is 'auto': start "
                "it by torchrun"
            ),
        ),
    ],
)
def test_contradictory_variables_are_named(
    placement: ModuleType, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(placement.ContradictoryEnvironment) as caught:
        placement.place(environ)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("environ", "world_size", "address"),
    [
        ({}, 1, "127.0.0.1"),
        (
            env(SLURM + " MASTER_ADDR=gpu-9 PET_MASTER_ADDR=pod-0 SLURM_JOB_NODELIST=n[0-1]"),
            2,
            "gpu-9",
        ),
        (env("PET_MASTER_ADDR=job-node-0-0.job"), 2, "job-node-0-0.job"),
        (env("OMPI_COMM_WORLD_LOCAL_SIZE=2"), 2, "127.0.0.1"),
        (env(SLURM + " SLURM_STEP_NODELIST=n[2-3] SLURM_JOB_NODELIST=n[0-3]"), 2, "n2"),
        # mpirun's daemons are a step of all nodes but its own
        (env(MPIRUN.format(0, 2) + "SLURM_STEP_NODELIST=n1 SLURM_JOB_NODELIST=n[0-1]"), 2, "n0"),
    ],
)
def test_address_of_rank_0_is_found_in_launcher_variables(
    placement: ModuleType, environ: dict[str, str], world_size: int, address: str
) -> None:
    assert placement.master_address(environ, world_size) == address


def test_missing_address_of_rank_0_is_refused_with_several_ranks(placement: ModuleType) -> None:
    with pytest.raises(
        placement.ContradictoryEnvironment,
        match="2 ranks, but neither MASTER_ADDR nor --master-addr",
    ):
        placement.master_address(env("RANK=0 WORLD_SIZE=2"), 2)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("gpu-[01-03,07]", "gpu-01"),
        ("gpu-[07,01-03],cpu-1", "gpu-07"),
        ("n0", "n0"),
        ("n0,n1", "n0"),
        ("r[1-2]n[3-4]", "r1n3"),
        ("tux[0-1].example.com", "tux0.example.com"),
    ],
)
def test_first_host_of_a_slurm_node_list_is_found(
    placement: ModuleType, nodes: str, first: str
) -> None:
    assert placement.first_host("SLURM_JOB_NODELIST", nodes) == first


@pytest.mark.parametrize(
    "nodes",
    [
        "",
        "gpu-[01",
        "gpu-]",
        "gpu-[a-b]",
        "-oProxyCommand=x",
        "a b",
        "n[1-2;x]",
        ",n1",
        "a[" * 500_001,
    ],
)
def test_invalid_slurm_node_list_is_refused(placement: ModuleType, nodes: str) -> None:
    with pytest.raises(
        placement.ContradictoryEnvironment, match=r"SLURM_JOB_NODELIST is .*, which is no node list"
    ) as e:
        placement.first_host("SLURM_JOB_NODELIST", nodes)
    assert len(str(e.value)) < 200


def test_port_and_device_are_read_from_the_environment(placement: ModuleType) -> None:
    assert placement.master_port({}) == 29500
    assert placement.master_port(env("MASTER_PORT=1234 PET_MASTER_PORT=5")) == 1234
    with pytest.raises(
        placement.ContradictoryEnvironment, match="MASTER_PORT is 70000, which is no port"
    ):
        placement.master_port(env("MASTER_PORT=70000"))
    devices = [placement.device(env(backend)) for backend in ("", "BACKEND=gloo", "BACKEND=nccl")]
    assert devices == ["cpu", "cpu", "cuda"]
    with pytest.raises(
        placement.ContradictoryEnvironment, match="BACKEND is 'mpi'; gloo and nccl are known"
    ):
        placement.device(env("BACKEND=mpi"))


@pytest.mark.parametrize(
    ("environ", "index"),
    [
        (env("SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=3"), 3),
        (env("SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=3 SLURM_GPUS_PER_TASK=1"), 0),
        (env("PMIX_RANK=3 SLURM_NTASKS=4 SLURM_LOCALID=3 SLURM_GPUS_PER_TASK=1"), 0),
        (env("SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=3 SLURM_GPUS_PER_TASK=2"), 3),
        # mpirun in a job that was asked for with --gpus-per-task: its ranks see all GPUs of the
        # node
        (env(MPIRUN.format(3, 4) + "OMPI_COMM_WORLD_LOCAL_RANK=3 SLURM_GPUS_PER_TASK=1"), 3),
    ],
)
def test_gpu_index_of_a_rank_follows_from_its_launcher(
    placement: ModuleType, environ: dict[str, str], index: int
) -> None:
    assert placement.gpu_index(environ, placement.place(environ)) == index
