"""The Dockerfiles whose bases are a vendor's, built on a stand-in: every step but the CUDA
compiler's runs for real.
"""

import pytest

from tests.images import lane
from tests.images.conftest import Keys

# What the vendors' images bring, as far as the steps need it: a compiler, MPI, git, gIB's script,
# and a key that should not be there. In place of nccl-tests a program that says which rank it is,
# behind the same make variables.
BASE = """\
FROM {base}
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev make git libopenmpi-dev \
    openmpi-bin python3 && rm -rf /var/lib/apt/lists/*
COPY nccl-tests /stand-in/nccl-tests
COPY set_nccl_env.sh /usr/local/gib/scripts/
RUN cd /stand-in/nccl-tests && git init -q && git add . \
    && git -c user.name=x -c user.email=x@example.com commit -q -m x && git tag v2.19.6 \
    && mkdir -p /root/.ssh /etc/ssh && echo key > /root/.ssh/id_rsa && echo key > /etc/ssh/ssh_host_rsa_key
"""
MAKEFILE = """\
MPI ?= 0
all:
\tmkdir -p build
ifeq ($(MPI), 1)
\t$(CC) -o build/all_reduce_perf rank.c -I$(MPI_HOME)/include -L$(MPI_HOME)/lib -lmpi
else
\t$(CC) -o build/all_reduce_perf -x c /dev/null
endif
"""
PROGRAM = """\
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("rank %d of %d\\n", rank, size);
    return MPI_Finalize();
}
"""


@pytest.fixture(scope="session")
def vendor(_lane: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("vendor") / "context"
    (folder / "nccl-tests").mkdir(parents=True)
    (folder / "nccl-tests" / "Makefile").write_text(MAKEFILE)
    (folder / "nccl-tests" / "rank.c").write_text(PROGRAM)
    # Bash, unset names
    (folder / "set_nccl_env.sh").write_text("NCCL_NET=gIB\n[[ -z $UNSET ]] && NCCL_TUNER='a b'\n")
    return lane.build_text("vendor", BASE.format(base=lane.base()), folder)


def test_pytorch_mpi_has_nccl_tests_built_with_its_mpi(vendor: str) -> None:
    image = lane.build(
        "pytorch-mpi",
        "--build-arg",
        "NCCL_TESTS_URL=file:///stand-in/nccl-tests",
        start_from=vendor,
    )
    done = lane.run_once(image, "mpirun", "-np", "2", "--oversubscribe", "all_reduce_perf")
    assert sorted(done.stdout.splitlines()) == ["rank 0 of 2", "rank 1 of 2"]
    left = lane.run_once(
        image, "sh", "-c", "ls /root/.ssh /etc/ssh /opt; command -v seatrial-ready mpirun"
    )
    assert "key" not in left.stdout
    assert "id_rsa" not in left.stdout
    assert "nccl-tests" not in left.stdout


def test_pytorch_rocm_has_rccl_tests_built_with_its_mpi(vendor: str) -> None:
    arguments = (
        "--build-arg",
        "NCCL_TESTS_URL=file:///stand-in/nccl-tests",
        "--build-arg",
        "RCCL_TESTS_TAG=v2.19.6",
    )
    image = lane.build("pytorch-rocm", *arguments, start_from=vendor)
    done = lane.run_once(image, "mpirun", "-np", "2", "--oversubscribe", "all_reduce_perf")
    assert sorted(done.stdout.splitlines()) == ["rank 0 of 2", "rank 1 of 2"]


def test_the_a4_testbed_sources_gibs_settings_for_every_session(
    vendor: str, keys: Keys, network: str
) -> None:
    image = lane.build("testbed-a4", start_from=vendor)
    node = lane.start(image, "node-0", keys.folder, ("--network", network))
    node.wait_ready()
    output = node.exec("ssh", node.address, 'echo "$NCCL_NET,$NCCL_TUNER"; echo "$PATH"')
    assert output.splitlines()[0] == "gIB,a b"
    assert output.rstrip().endswith(":/third_party/nccl-tests/build")
