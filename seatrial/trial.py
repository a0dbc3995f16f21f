"""One run while it happens: what its steps came to so far. Whatever goes wrong in one becomes a check with a reason."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from seatrial.errors import LaunchError, MissingError, RemoteError, SeatrialError
from seatrial.progress import step
from seatrial.result import Check, RunResult, conclude, merge_suspects, now
from seatrial.run import Run
from seatrial.testbed import Testbed
from seatrial.verdict import Verdict

log = logging.getLogger("seatrial")


@dataclass(slots=True)
class Trial:
    """Collects checks, timings and fingerprint of `run`; `testbed` is set once nodes are up."""

    run: Run
    started: datetime = field(default_factory=now)
    testbed: Testbed | None = None
    checks: list[Check] = field(default_factory=list)
    fingerprint: dict[str, str] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    nodes: list[dict[str, object]] = field(default_factory=list)

    @contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """A step: timed, announced, and its errors turned into a check, so that a run always ends in a verdict."""
        started = time.monotonic()
        with step(name, self.timings):
            try:
                yield
            except Exception as error:
                verdict, reason = _explain(error)
                log.error("%s: %s", name, reason, exc_info=None if isinstance(error, SeatrialError) else error)
                self.checks.append(Check(name, verdict, reason, seconds=time.monotonic() - started))

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A step whose failure ends the run: timed and announced, no more."""
        with step(name, self.timings):
            yield

    def up(self, testbed: Testbed) -> None:
        """The nodes are up; run.json names all of them, also those that are taken out later."""
        self.testbed = testbed
        self.nodes = [node.to_dict() for node in testbed.nodes]

    @property
    def nodes_up(self) -> Testbed:
        """The testbed of a run whose `launch` went well."""
        if self.testbed is None:
            raise LaunchError("no testbed is up")
        return self.testbed

    def has_testbed(self, name: str) -> bool:
        """Whether step `name` can run; when it cannot, a check says why."""
        blocker = next((check for check in self.checks if check.verdict is Verdict.NOT_RUN), None)
        if self.testbed and self.testbed.nodes and not blocker:
            return True
        cause = blocker or next((check for check in self.checks if check.verdict is not Verdict.PASS), None)
        self.checks.append(Check(name, Verdict.NOT_RUN, f"{cause.name}: {cause.reason}" if cause else "no nodes"))
        return False

    def add(self, check: Check | None) -> None:
        """Keep what a step found; None when the suite does not ask for it."""
        if check:
            self.checks.append(check)

    def result(self) -> RunResult:
        """What the run came to, as of now."""
        verdict, reason = conclude(self.checks)
        return RunResult(
            run_id=self.run.run_id,
            cluster=self.run.cluster.name,
            suite=self.run.suite.name,
            started=self.started,
            finished=now(),
            verdict=verdict,
            reason=reason,
            nodes=self.nodes,
            checks=tuple(self.checks),
            suspects=tuple(merge_suspects(self.checks)),
            fingerprint=dict(sorted(self.fingerprint.items())),
            timings=dict(self.timings),
        )


def _explain(error: Exception) -> tuple[Verdict, str]:
    """What an error in a step means for the verdict: only a cluster that broke the test is a `fail`."""
    match error:
        case MissingError():
            return Verdict.NOT_RUN, str(error)
        case RemoteError():
            return Verdict.FAIL, str(error)
        case LaunchError() | SeatrialError():
            return Verdict.INCONCLUSIVE, str(error)
        case _:
            return (
                Verdict.INCONCLUSIVE,
                f"seatrial itself failed ({type(error).__name__}: {error}); logs/run.log has the trace",
            )


def process_age_s() -> float:
    """Seconds since this process started: what imports and Prefect took before the first step."""
    ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    hertz = 100.0  # USER_HZ: the kernel shows start times in hundredths on every platform
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / hertz
