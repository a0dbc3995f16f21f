"""How long `make run` takes once it is set up, and how much of that is no check: python
benchmarks/quick_run.py [RUNS].

Seconds of each run of the suite `quick` on four local nodes. `start` is all until the first step,
`checks` what the checks of run.json took, and `rest` what is neither: the other steps, and the end
of the process.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEATRIAL = str(Path(sys.executable).with_name("seatrial"))
COMMAND = [SEATRIAL, "run", "deployments/clusters/local.yaml", "--suite", "quick", "--out"]


def once(out: Path) -> dict[str, float]:
    """Seconds by part. Raises CalledProcessError where the run does not pass."""
    started = time.perf_counter()
    # Nothing is measured again
    own = {**os.environ, "SEATRIAL_HISTORY": f"sqlite:///{out.parent}/history.db"}
    subprocess.run([*COMMAND, str(out)], cwd=ROOT, check=True, capture_output=True, env=own)
    total = time.perf_counter() - started
    document = json.loads((out / "run.json").read_text())
    checks = {check["name"]: check["seconds"] for check in document["checks"]}
    start, measured = document["timings"]["startup"], sum(checks.values())
    return {
        "total": total,
        "start": start,
        "checks": measured,
        "rest": total - start - measured,
        **checks,
    }


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for number in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            taken = once(Path(folder) / "run")
        if not number:
            print("  ".join(f"{name:>12}" for name in taken))
        print("  ".join(f"{seconds:12.1f}" for seconds in taken.values()), flush=True)


if __name__ == "__main__":
    main()
