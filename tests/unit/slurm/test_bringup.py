"""What the steps of a job print, as the nodes' log has it."""

import pytest

from seatrial.platforms.slurm.jobs import read_nodes_log

PULL = """\
srun: cluster configuration lacks support for cpu binding
0: slurmstepd: pyxis: importing docker image: nvcr.io#nvidia/nothing:1
0: slurmstepd: error: pyxis: child 4242 failed with error code: 1
0: slurmstepd: error: pyxis: failed to import docker image
0: slurmstepd: error: pyxis: printing enroot log file:
0: slurmstepd: error: pyxis:     [INFO] Querying registry for permission grant
0: slurmstepd: error: pyxis:     [ERROR] URL https://nvcr.io/v2/nvidia/nothing/manifests/1 returned error code: 404
0: slurmstepd: error: pyxis: couldn't start container
0: slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1
0: slurmstepd: error: Failed to invoke spank plugin stack
"""


def test_ports_count_once_and_failures_by_task() -> None:
    ready = " 0: seatrial-node: ready 222\n10: seatrial-node: ready 222\n 0: seatrial-node: ready 9\n"
    log = read_nodes_log(f"{ready} 3: seatrial-node: failed: why\n")
    assert log.ports == {0: 222, 10: 222}
    assert log.problems == {3: "why"}
    assert log.last_lines == {}


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (PULL, "returned error code: 404"),
        ("1: FATAL:   could not open image /no/such.sif\n1: something after it\n", "could not open image /no/such.sif"),
        ("1: first\n1: sh: 1: syntax error\n", "sh: 1: syntax error"),
        ("1: \x1b[31mred\n", "red"),
    ],
)
def test_the_most_telling_line_of_a_task_is_kept(log: str, words: str) -> None:
    (line,) = read_nodes_log(log).last_lines.values()
    assert words in line
    assert "\x1b" not in line
