"""The probe that starts ssh keeps little of what it prints, however much that is."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

PROBES = Path(__file__).parents[3] / "seatrial" / "remote" / "probes"
PEER = {"name": "node-1", "address": "127.0.0.1", "port": 22}
REQUEST = {"peers": [PEER], "timeout_s": 60, "parallel": 1}


def test_an_ssh_that_prints_errors_without_end_is_ended(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexec cat /dev/zero >&2\n")
    ssh.chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(PROBES / "pairs.py")],
        input=json.dumps(REQUEST),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout)
    assert answer["error"] == "output flood: ssh printed more than 16 MiB of errors"
    assert len(done.stdout) < 32 * 1024
