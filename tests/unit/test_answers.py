"""What nodes answer is typed and bounded; anything else is one line that names the field."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from seatrial.remote.answers import MAX_TEXT, Facts, PeerAnswer, StreamAnswer, read_answer
from seatrial.remote.probes import probe

ANSWER = {
    "hostname": "node-1",
    "cpus": 2,
    "memory_gb": 25.3,
    "gpus": 0,
    "gpu_model": "",
    "gpu_clock_mhz": None,
    "gpu_problem": "",
    "nvlink_domain": "",
    "hardware_ids": ["0123456789abcdef"],
    "cpu_model": "AMD EPYC",
    "architecture": "x86_64",
    "mpirun": "/usr/bin/mpirun",
    "sshd": None,
    "nccl_tests": "",
    "versions": {"kernel": "6.1", "openmpi": None},
}
DEEP = "[" * 100_000 + "]" * 100_000


def answer(**other: Any) -> str:
    return json.dumps({**ANSWER, **other})


def test_output_of_the_facts_probe_is_read() -> None:
    done = subprocess.run(
        [sys.executable, str(probe("facts")), "mpirun"], capture_output=True, text=True, check=True
    )
    assert read_answer(Facts, done.stdout).model_dump() == json.loads(done.stdout)
    assert read_answer(Facts, answer()).model_dump() == ANSWER


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "Invalid JSON"),
        ("{}", "hostname: Field required"),
        ("[]", "Input should be an object"),
        (DEEP, "recursion limit exceeded"),
        (f'{{"hostname": {DEEP}}}', "recursion limit exceeded"),
        (answer(hostname=["node-1"]), "hostname: Input should be a valid string"),
        (answer(hostname=""), "hostname: String should have at least 1 character"),
        (
            answer(hostname="x" * (MAX_TEXT + 1)),
            "hostname: String should have at most 300 characters",
        ),
        (answer(gpus="8"), "gpus: Input should be a valid integer"),
        (answer(gpus=10**30), "gpus: Input should be less than or equal to 1024"),
        (answer(memory_gb=float("nan")), "memory_gb: Input should be a finite number"),
        (answer(versions=None), "versions: Input should be an object"),
        (answer(versions={"torch": 2}), "versions.torch: Input should be a valid string"),
        (
            answer(versions={str(n): "" for n in range(65)}),
            "versions: Dictionary should have at most 64 items",
        ),
    ],
    ids=lambda value: str(value)[:24],
)
def test_invalid_facts_are_refused_with_the_field(line: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)) as error:
        read_answer(Facts, line)
    assert len(str(error.value)) <= MAX_TEXT


def test_control_characters_in_an_answer_are_replaced() -> None:
    facts = read_answer(Facts, answer(hostname="\x1b[31mnode\u202e"))
    assert facts.hostname == "\N{REPLACEMENT CHARACTER}[31mnode\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("seconds", [0, -1, "NaN", "Infinity", 1e-300, '"1"', "true"])
def test_a_stream_without_a_time_is_no_measurement(seconds: object) -> None:
    line = (
        f'{{"id": 1, "out": {{"bytes": 1, "seconds": {seconds}}}, "in": {{"bytes": 1, '
        f'"seconds": 1}}}}'
    )
    with pytest.raises(ValueError, match=r"out\.seconds"):
        read_answer(StreamAnswer, line)


def test_a_stream_is_measured_in_both_directions() -> None:
    line = (
        '{"id": 1, "out": {"bytes": 2000000, "seconds": 1}, "in": {"bytes": 8000000, '
        '"seconds": 2.0}}'
    )
    streams = read_answer(StreamAnswer, line)
    assert (streams.out.mb_s, streams.in_.mb_s) == (2.0, 4.0)


def test_peer_that_is_not_a_string_is_refused() -> None:
    with pytest.raises(ValueError, match="peer: Input should be a valid string"):
        read_answer(PeerAnswer, '{"peer": ["node-1"], "error": ""}')
