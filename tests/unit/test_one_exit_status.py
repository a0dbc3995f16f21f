"""A run by hand that is interrupted ends with one exit status, whenever further signals come."""

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import atexit, os, signal, sys
from seatrial.flows.serving import by_hand
from seatrial.flows.serving.by_hand import Unfinished, flow_by_hand
from tests.samples import healthy_local

number, when = int(sys.argv[1]), sys.argv[2]

class Destructor:
    def __del__(self):
        os.kill(os.getpid(), number)

def flow(name, **parameters):
    if when == "within":
        os.kill(os.getpid(), number)
    if when == "swallowed":
        try:
            os.kill(os.getpid(), number)
        except BaseException:
            pass
    if when == "destructor":
        del [Destructor()][0]
    if when == "twice":
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), number)
    return healthy_local()

by_hand._run_flow = flow
atexit.register(os.kill, os.getpid(), number)  # one more while Python ends
ended = flow_by_hand("seatrial.flows.check:check")
class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=number):
        kill(pid, number)  # and when it has given its handlers back
sys.late = Late()
sys.exit(ended.exit_status if isinstance(ended, Unfinished) else 0)
"""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
@pytest.mark.parametrize(
    "when", ["within", "swallowed", "destructor", "twice", "after the verdict"]
)
def test_the_exit_status_is_that_of_the_first_signal(
    number: signal.Signals, status: int, when: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(int(number)), when],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0 if when == "after the verdict" else status, "")
