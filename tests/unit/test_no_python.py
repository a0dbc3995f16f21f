"""seatrial/remote/shell: what stands in for the probes on nodes without Python."""

import base64
import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import seatrial.remote
from seatrial.remote.answers import Facts

SHELL = Path(seatrial.remote.__file__).parent / "shell"


def supervise(limit_s: str, *command: str) -> "subprocess.Popen[str]":
    argv = ["sh", str(SHELL / "supervise.sh"), limit_s, *command]
    started = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdin
    started.stdin.write(base64.b64encode(b"export A='x y\nz'\n").decode() + "\n")
    started.stdin.flush()
    return started


def test_shell_probe_prints_facts_in_the_format_of_the_python_probe() -> None:
    script = (SHELL / "facts.sh").read_text()
    done = subprocess.run(
        ["sh", "-s", "no-mpirun"], input=script, capture_output=True, text=True, check=True
    )
    facts = Facts.model_validate(json.loads(done.stdout))
    assert (facts.hostname, facts.architecture) == (os.uname().nodename, os.uname().machine)
    assert (facts.mpirun, facts.versions["python"], facts.versions["torch"]) == ("", "", "")


def test_supervised_command_gets_its_variables_and_returns_its_status() -> None:
    process = supervise("60", "sh", "-c", 'echo "$A"; exit 3')
    assert process.stdout
    assert process.stdout.read() == "x y\nz\n"
    assert process.wait() == 3
    process.communicate()


def test_a_command_ends_when_its_time_is_up() -> None:
    process = supervise("0.0", "sleep", "3600")
    assert process.stdout
    assert process.stdout.read() == "seatrial-supervisor: time is up\n"
    process.communicate()


def test_supervisor_ends_child_processes_when_its_input_closes() -> None:
    process = supervise("3600.0", "sh", "-c", "sleep 3600 & echo $!; wait")
    assert process.stdout
    pid = int(process.stdout.readline())
    out, _ = process.communicate()  # closes its standard input
    assert out == "seatrial-supervisor: not wanted any more\n"
    with suppress(FileNotFoundError, ProcessLookupError):
        while ") Z " not in Path(f"/proc/{pid}/stat").read_text():  # killed, and on its way out
            time.sleep(0.01)


def test_a_program_that_is_missing_is_named() -> None:
    out, _ = supervise("60", "no-such-program").communicate()
    assert out == "seatrial-supervisor: cannot start no-such-program: No such file or directory\n"
