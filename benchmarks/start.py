"""How long the light commands take to start: seconds, median and worst of 15 starts each.

They must stay below 0.3 s, `judge` below 0.35 s. `import pydantic`, most of what `render` costs,
shows the speed of the machine.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
STARTS = 15
SEATRIAL = [str(Path(sys.executable).with_name("seatrial"))]
COMMANDS = {
    "import pydantic": [sys.executable, "-c", "import pydantic.main"],
    "--help": [*SEATRIAL, "--help"],
    "parse": [
        *SEATRIAL,
        "parse",
        "tests/golden/nccl-logs/a3mega_h100_16ranks_hashes_partly_lost.log",
    ],
    "judge": [*SEATRIAL, "judge", "tests/golden/nccl-logs/awsdoeks_t4_efa_tagged_nccl_info.log"],
    **{
        f"render {path.name}": [*SEATRIAL, "render", str(path)]
        for path in (
            ROOT / "deployments/clusters/local.yaml",
            ROOT / "deployments/clusters/a4-gke.yaml",
        )
    },
}


def seconds(command: list[str]) -> float:
    started = time.monotonic()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return time.monotonic() - started


def main() -> None:
    for name, command in COMMANDS.items():
        seconds(command)  # files are in the page cache from here on
        taken = [seconds(command) for _ in range(STARTS)]
        print(f"{name:24} {statistics.median(taken):.2f}  {max(taken):.2f}")


if __name__ == "__main__":
    main()
