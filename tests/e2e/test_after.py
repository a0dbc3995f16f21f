"""What a local run leaves: uploads, nodes that are kept, and a way to log in."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys

from tests.e2e.conftest import Console, until
from tests.site import LONG, PATIENCE_S

BROKEN = [{"node": "node-1", "sshd": "stopped"}]


def kept_run(console: Console, **fields: object) -> str:
    """The id of a run that failed and whose nodes are kept."""
    upload = f"file://{console.folder}/bucket"
    cluster = console.cluster(2, upload=upload, keep="on_failure", **fields)
    run = console.check(cluster, console.suite())
    assert run.status in (1, 3), run.output
    run_id = str(run.document["run_id"])
    kept = run.out[run.out.index("nodes are kept until ") :]
    _, login, end, files, gap, *others, verdict = kept.splitlines()
    assert login.split(": ")[1].strip() == f"seatrial ssh {run_id} head"
    assert end.split(": ")[1].strip() == f"seatrial reap --run {run_id}"
    assert files == f"files: {upload}/{run_id}/"
    assert (gap, [verdict, *others]) == ("", run.document["summary"])
    assert verdict == f"{run.document['verdict']}: {run.document['reason']}"
    return run_id


def on_a_terminal(console: Console, *arguments: str, keys: bytes) -> tuple[int, bytes]:
    """A command on a terminal of its own, with what is typed; its exit status, and what the
    terminal showed.
    """
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "seatrial", *arguments]
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=console.environment,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        os.write(ours, keys)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while data := os.read(ours, 4096):
                shown += data
        os.close(ours)
        return process.wait(30), shown


def test_a_failed_run_is_kept_until_somebody_ends_it(console: Console) -> None:
    run_id = kept_run(console, faults=BROKEN)
    there = console.folder / "bucket" / run_id
    assert json.loads((there / "run.json").read_text())["verdict"] == "fail"
    assert "1 of 2 nodes answer on port 222" in (there / "connectivity-test.log").read_text()
    assert "Accepted publickey" in (there / "logs" / "nodes" / "node-0.log").read_text()

    done = console.run("ssh", run_id, "head", "--", "hostname; exit 7")
    assert (done.status, done.out) == (7, "node-0\n")
    # Its sshd is what is broken
    assert console.run("ssh", console.folder / "out", "node-1", "true").status == 255
    typed = b"tty && echo $((6 * 7)) from $(hostname); exit 3\n"
    status, shown = on_a_terminal(console, "ssh", run_id, "head", keys=typed)
    assert (status, b"/dev/pts/" in shown, b"42 from node-0" in shown) == (3, True, True), shown
    wrong = console.run("ssh", run_id, "node-2")
    assert (wrong.status, wrong.err.count("\n")) == (2, 1)
    assert "has no node 'node-2'; legal: node-0, node-1, head, or 0 to 1" in wrong.err

    assert "0 runs reaped" in console.run("reap").out
    assert console.left()
    ended = console.run("reap", "--run", console.folder / "out")
    assert (ended.status, ended.out) == (0, f"{run_id}: removed\n")
    assert not console.left()
    over = console.run("ssh", run_id, "head")
    assert (over.status, over.err.count("\n")) == (2, 1)
    assert f"run {run_id}: is over, or not from this machine and user" in over.err


def test_a_kept_run_ends_by_itself_when_its_time_is_over(console: Console) -> None:
    run_id = kept_run(console, mpi={"mpirun": "/nowhere/mpirun"}, keep_s=20)
    assert any(run_id in left for left in console.left())
    until(lambda: not console.left())


def test_running_run_accepts_ssh_and_is_not_kept_when_interrupted(console: Console) -> None:
    suite = console.suite(collectives=LONG["collectives"])
    cluster = console.cluster(2, upload=f"file://{console.folder}/bucket", keep="always")
    out = console.folder / "out"
    process = console.start("run", cluster, "--suite", suite, "--out", out)
    log = out / "logs" / "run.log"
    until(lambda: log.exists() and "all_reduce     1M" in log.read_text())
    (run_id,) = console.run_ids()
    assert console.run("ssh", run_id, "1", "hostname").out == "node-1\n"
    busy = console.run("reap", "--run", run_id)
    assert (busy.status, "is at work; interrupt it" in busy.err) == (2, True)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, errors
    assert not console.left()
    there = console.folder / "bucket" / run_id
    assert "cut off by" in json.loads((there / "run.json").read_text())["reason"]
    assert "all_reduce" in (there / "nccl-test-results.txt").read_text()
