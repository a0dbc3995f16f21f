"""The probes that start ssh keep little of what it prints, however much that is."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

PROBES = Path(__file__).parents[3] / "seatrial" / "remote" / "probes"
PEER = {"name": "node-1", "address": "127.0.0.1", "port": 22}
_ASKED = {
    "pairs": {"peers": [PEER], "timeout_s": 60, "parallel": 1},
    "stream": {"peer": PEER, "serve": "true", "max_bytes": 1, "max_seconds": 1, "timeout_s": 60},
}


@pytest.mark.parametrize("probe", _ASKED)
def test_an_ssh_that_prints_errors_without_end_is_ended(probe: str, tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexec cat /dev/zero >&2\n")
    ssh.chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(PROBES / f"{probe}.py")],
        input=json.dumps(_ASKED[probe]),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout)
    assert answer["error"]
    assert len(done.stdout) < 32 * 1024
    if probe == "pairs":
        assert answer["error"] == "output flood: ssh printed more than 16 MiB of errors"
