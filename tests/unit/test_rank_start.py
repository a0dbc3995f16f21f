"""What starts each rank: its report, and the pipe of rank 0 that the supervisor copies apart."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import seatrial.remote
from seatrial.remote.probes import probe

SHELL = Path(seatrial.remote.__file__).parent / "shell"
HOST = os.uname().nodename


def start(pipe: Path, rank: str, *program: str) -> list[str]:
    return [
        "env",
        f"OMPI_COMM_WORLD_RANK={rank}",
        "sh",
        str(SHELL / "rank.sh"),
        str(pipe),
        *program,
    ]


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"])
def test_rank_start_reports_the_rank_and_then_executes_the_program(
    name: str, tmp_path: Path
) -> None:
    command = [
        "sh",
        str(SHELL / "rank.sh"),
        str(tmp_path / "pipe"),
        "sh",
        "-c",
        "echo out; echo $$; kill -9 $$",
    ]
    environment = {
        key: value for key, value in os.environ.items() if "RANK" not in key and "SLURM" not in key
    }
    with subprocess.Popen(
        command, env={**environment, name: "3"}, stdout=subprocess.PIPE, text=True
    ) as rank:
        assert rank.stdout
        lines = [line for line in rank.stdout.read().splitlines() if line]
    assert lines == [f"seatrial-rank: 3 on {HOST}", "out", str(rank.pid)]
    assert rank.returncode == -9, "mpirun sees what ended it"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_rank_reports_itself_in_one_write(shell: str, tmp_path: Path) -> None:
    """So that no half line of another rank gets between the line end before it and the report."""
    reads, writes = os.pipe2(os.O_DIRECT)  # a read returns what one write wrote
    command = [shell, str(SHELL / "rank.sh"), str(tmp_path / "pipe"), "true"]
    subprocess.run(
        command, env={**os.environ, "OMPI_COMM_WORLD_RANK": "3"}, stdout=writes, check=True
    )
    assert os.read(reads, 4096).decode() == f"\nseatrial-rank: 3 on {HOST}\n"
    os.close(reads)
    os.close(writes)


def test_a_program_that_is_missing_is_named_with_its_rank(tmp_path: Path) -> None:
    done = subprocess.run(
        start(tmp_path, "2", "no-such-program"), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (
        127,
        f"{HOST} rank 2: cannot start: no-such-program is not installed\n",
    )


@pytest.mark.parametrize("supervisor", ["python", "shell"])
def test_output_of_rank_0_is_separated_from_other_ranks(supervisor: str, tmp_path: Path) -> None:
    """Another rank prints half a line meanwhile; no byte of rank 0 is lost."""
    pipe = tmp_path / "sessions" / "rank-0"
    own = start(pipe, "0", "sh", "-c", "seq 100000; echo error >&2")
    other = start(pipe, "1", "printf", "half")
    both = ["sh", "-c", '"$@" & first=$!; printf half; wait $first', "sh", *own]
    if supervisor == "python":
        program = [sys.executable, str(probe("supervise")), "60"]
        variables = json.dumps({"SEATRIAL_PIPE": str(pipe)})
    else:
        program = ["sh", str(SHELL / "supervise.sh"), "60.0"]
        variables = base64.b64encode(f"export SEATRIAL_PIPE={pipe}\n".encode()).decode()
    pipes = subprocess.PIPE
    with subprocess.Popen(
        [*program, *both], stdin=pipes, stdout=pipes, stderr=pipes, text=True
    ) as process:
        assert process.stdin
        process.stdin.write(f"{variables}\n")
        process.stdin.flush()
        assert process.stdout
        assert process.stderr
        apart, rest = process.stderr.read(), process.stdout.read()
    assert process.returncode == 0
    assert rest == "half"
    lines = [line for line in apart.splitlines() if line]
    assert lines == [f"seatrial-rank: 0 on {HOST}", *map(str, range(1, 100_001)), "error"]
    assert subprocess.run(other, capture_output=True, text=True, check=True).stdout.endswith("half")
