"""A flow run in a container of its own, as the Jobs of deployments/server/kubernetes start it.

python -m flows.execute      PREFECT__FLOW_RUN_ID says which

A pod that is evicted, deleted or past its deadline gets SIGTERM. Prefect's own command would end by that before the run
has taken its nodes down, or have it begin anew in another Job, past every deadline.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

from flows.serving.signals import children


def main() -> int:
    """Prefect's exit status; the run's own state says what it came to."""
    process = subprocess.Popen([sys.executable, "-m", "prefect", "flow-run", "execute"])

    def pass_on(*_: Any) -> None:
        """To the run, which Prefect's command waits for; to the command where there is no run yet."""
        for pid in children(process.pid) or {process.pid}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, pass_on)
    return process.wait()


if __name__ == "__main__":
    sys.exit(main())
