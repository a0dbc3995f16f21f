"""A sink in a process of its own: a receiver that answers slowly or without end holds no run and
fills no memory.

python -m seatrial.tasks.sinks.bounded      reads a call, pickled, and writes the delivery
"""

import pickle
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from seatrial.alerts.alert import Alert
from seatrial.history.incident import Receipt
from seatrial.model.errors import SeatrialError
from seatrial.model.result import RunResult
from seatrial.tasks.sinks import TOO_LARGE, Delivery, Files, Sink

LIMIT_S = 120.0  # Slack alone may ask to wait for 30 s twice
_GRACE_S = 5.0  # for a sink to say at the limit what it has sent
MEMORY_MIB = 128  # for answers, and for the libraries that a sink loads


@dataclass(frozen=True)
class BoundedSink:
    """`sink` with a limit of time and memory for all its requests together."""

    sink: Sink
    limit_s: float = LIMIT_S

    @property
    def name(self) -> str:
        return self.sink.name

    def send(self, alert: Alert, receipt: Receipt, files: Files) -> Delivery:
        return self._call("send", receipt, alert, receipt, files)

    def digest(self, result: RunResult) -> Delivery:
        return self._call("digest", Receipt(), result)

    def _call(self, method: str, receipt: Receipt, *arguments: Any) -> Delivery:
        try:
            ended = subprocess.run(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "seatrial.tasks.sinks.bounded",
                ],  # -P: not from the folder of the run's start
                input=pickle.dumps((self.sink, method, arguments, self.limit_s)),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=self.limit_s + _GRACE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Delivery(receipt, _late(self.limit_s), failed=True)
        if ended.returncode != 0:
            return Delivery(
                receipt, f"its process ended with status {ended.returncode}", failed=True
            )
        delivery = pickle.loads(ended.stdout)
        assert isinstance(delivery, Delivery)
        return delivery


def _late(limit_s: float) -> str:
    return f"not delivered within {limit_s:g} s"


def main() -> None:
    sink, method, arguments, limit_s = pickle.load(sys.stdin.buffer)
    out = sys.stdout.buffer
    sys.stdout = sys.stderr
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = in_use + (MEMORY_MIB << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def stop(*_: object) -> NoReturn:
        raise SeatrialError(_late(limit_s))

    signal.signal(signal.SIGALRM, stop)
    # Once more each second: a sink that has sent the alert goes on without what it attaches
    signal.setitimer(signal.ITIMER_REAL, limit_s, 1)
    delivery: Delivery
    try:
        delivery = getattr(sink, method)(*arguments)
    except (MemoryError, SeatrialError) as error:
        receipt = arguments[1] if method == "send" else Receipt()
        summary = TOO_LARGE if isinstance(error, MemoryError) else str(error)
        delivery = Delivery(receipt, summary, failed=True)
    signal.setitimer(signal.ITIMER_REAL, 0)
    out.write(pickle.dumps(delivery))


if __name__ == "__main__":
    main()
