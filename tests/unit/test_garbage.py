"""The garbage of a server on SQLite does not keep its event loop from going on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.serving.server import _SERVE, ORIGINS, SERVER_AUTH

# The same without asyncio: a cursor that an error has left in a cycle, its connection waiting to write in a thread, and
# the only one who can end that wait making so many objects that the collector is due.
_SERVER = """
import contextlib, sqlite3, sys, threading, weakref
from flows.serving.server import collect_apart

collect_apart()
writes = sqlite3.connect(sys.argv[1], isolation_level=None)
writes.execute("create table numbers (n unique)")
writes.execute("insert into numbers values (1)")
waits = sqlite3.connect(sys.argv[1], isolation_level=None, check_same_thread=False, timeout=30)
left = [waits.cursor()]
left.append(left)
executing, collected = threading.Event(), threading.Event()
watch = weakref.ref(left[0], lambda _: collected.set())  # called before the cursor is finalized
with contextlib.suppress(sqlite3.IntegrityError):
    left[0].execute("insert into numbers values (1)")
writes.execute("begin immediate")
thread = threading.Thread(target=lambda: print("written", waits.execute("insert into numbers values (2)").rowcount))
waits.set_trace_callback(lambda _: executing.set())  # called while the connection is locked
thread.start()
executing.wait()
del left
made = [[] for _ in range(100_000)]
collected.wait()
writes.execute("commit")
thread.join()
"""


def test_a_cursor_left_behind_does_not_stop_who_is_waited_for(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _SERVER, str(tmp_path / "prefect.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == ("written 1\n", "")


@pytest.mark.parametrize(
    "serve",
    [_SERVE, "from flows.serving.webserver import main; main('0', str(os.pipe()[0]), '.', '127.0.0.1')"],
    ids=["of a run", "lasting"],
)
def test_each_of_our_servers_does_so(serve: str, tmp_path: Path) -> None:
    stub = "import gc, os, uvicorn; uvicorn.run = lambda *_, **__: print('collects by itself:', gc.isenabled())\n"
    command = [sys.executable, "-c", stub + serve, "0"]
    asked_for = {SERVER_AUTH: "user:password", ORIGINS: "http://127.0.0.1:4200"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path, env={**os.environ, **asked_for}
    )
    assert done.stdout == "collects by itself: False\n", done.stderr
