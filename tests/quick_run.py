"""A run for tests that try a platform without the flow."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.testbed import Testbed
from seatrial.platforms import platform_for
from tests.conftest import RUN_PREFIX


def quick_run(folder: Path, **cluster: Any) -> Run:
    """A run of the suite quick on a cluster file with those fields; its id is that of a test."""
    described = Cluster.model_validate({"name": "test", **cluster})
    return Run(f"{RUN_PREFIX}{secrets.token_hex(4)}", described, load_suite("quick"), folder)


@contextmanager
def launched(run: Run) -> Iterator[Testbed]:
    """The nodes of the run until the end of the block; they are taken down where the launch fails,
    too.
    """
    platform = platform_for(run.cluster)
    try:
        yield platform.launch(run)
    finally:
        platform.teardown(run.run_id)
