"""A run in a pod: SIGTERM goes to the run itself, and the pod waits for it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
# In the place of Prefect's command: it dies of SIGTERM, and waits for a run that does not.
PREFECT = """\
import subprocess, sys
RUN = '''
import signal, sys, time
def down(*_):
    time.sleep(0.5)
    open("down", "w").close()
    sys.exit()
signal.signal(signal.SIGTERM, down)
open("up", "w").close()
time.sleep(60)
'''
sys.exit(subprocess.call([sys.executable, "-c", RUN]) or 7)
"""


def test_the_run_takes_its_nodes_down_before_the_pod_ends(tmp_path: Path) -> None:
    (tmp_path / "prefect").mkdir()
    (tmp_path / "prefect" / "__main__.py").write_text(PREFECT)
    (tmp_path / "prefect" / "__init__.py").touch()
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    process = subprocess.Popen([sys.executable, "-m", "flows.execute"], cwd=tmp_path, env=environment)
    try:
        deadline = time.monotonic() + 20
        while not (tmp_path / "up").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 7
        assert (tmp_path / "down").exists()
    finally:
        process.kill()
