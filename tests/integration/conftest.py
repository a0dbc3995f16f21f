"""Real nodes on this machine, brought up for a test and taken down after it."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.testbed import Testbed
from seatrial.platforms.local.platform import PLATFORM
from tests.conftest import RUN_PREFIX

LocalTestbed = Callable[..., AbstractContextManager[tuple[Run, Testbed]]]


def local_run(out: Path, nodes: int = 3, **fields: Any) -> Run:
    cluster = Cluster.model_validate({"name": "test", "nodes": nodes, "platform": {"kind": "local"}, **fields})
    return Run(f"{RUN_PREFIX}{secrets.token_hex(4)}", cluster, load_suite("quick"), out)


@pytest.fixture
def local_testbed(tmp_path: Path, nothing_left: None) -> Iterator[LocalTestbed]:
    """`with local_testbed(nodes=3, faults=[...]) as (run, testbed)`; torn down whatever the test does."""
    if lacking := PLATFORM.missing():
        pytest.skip("; ".join(lacking))

    @contextmanager
    def up(nodes: int = 3, **fields: Any) -> Iterator[tuple[Run, Testbed]]:
        run = local_run(tmp_path, nodes, **fields)
        try:
            yield run, PLATFORM.launch(run)
        finally:
            PLATFORM.teardown(run.run_id)

    yield up
