"""No secret that a node prints is in what a run leaves, also where the run is killed in the
middle.
"""

import base64
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.e2e.conftest import Console, until

SECRET = "s3cr3t/of+the site"
# The secret as it is, in two pieces, in base64 behind a user, and URL-encoded; then what mpirun
# does.
TALKATIVE = f"""#!/bin/sh
echo "$MY_TOKEN {base64.b64encode(f"user:{SECRET}".encode()).decode()} {quote(SECRET, safe="")}"
printf 's3cr3t/of'; sleep 0.3; echo '+the site'
echo talked
exec {shutil.which("mpirun")} "$@"
"""


@pytest.mark.parametrize("killed", [True, False])
def test_secret_printed_by_a_node_is_in_no_output_or_file(console: Console, killed: bool) -> None:
    mpirun, out = console.folder / "mpirun", console.folder / "out"
    mpirun.write_text(TALKATIVE)
    mpirun.chmod(0o755)
    cluster = console.cluster(2, env={"MY_TOKEN": SECRET}, mpi={"mpirun": str(mpirun)})
    process = console.start("run", cluster, "--suite", console.suite(), "--out", out)
    log = out / "logs" / "all_reduce.log"
    if killed:
        until(lambda: log.exists() and "talked" in log.read_text())
        process.kill()
    output = "".join(process.communicate())
    assert not leaks(output)
    files = [path for path in out.rglob("*") if path.is_file()]
    assert log in files
    assert "*** " in log.read_text()
    assert [path for path in files if leaks(path.read_text(errors="replace"))] == []
    console.run("reap")
    until(lambda: not console.left())


def leaks(text: str) -> bool:
    encoded = base64.b64encode(f"user:{SECRET}".encode()).decode()
    return any(
        part in text for part in ("s3cr3t", "of+the", "of%2Bthe", encoded[8:16], encoded[16:24])
    )


def test_a_planted_leak_is_detected() -> None:
    assert leaks(f"x {SECRET}")
    assert leaks(quote(SECRET, safe=""))
    assert leaks(base64.b64encode(f"user:{SECRET}".encode()).decode())
    assert not leaks(Path(__file__).name)
