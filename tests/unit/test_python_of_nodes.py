"""Nodes run the probes with their own Python, which may be older than the control host's."""

import subprocess
import sys
from pathlib import Path

from seatrial.remote import probes


def test_the_probes_run_on_python_3_9() -> None:
    folder = Path(probes.__file__).parent
    vermin = str(Path(sys.executable).with_name("vermin"))
    command = [vermin, "--no-tips", "--violations", "-t=3.9-", str(folder)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
    assert "Minimum required versions: 3.9" in found.stdout
