"""Real nodes on this machine: brought up for one test and taken down after it, or healthy ones that
tests share.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.checks.suites import load_suite
from seatrial.config.cluster import Cluster
from seatrial.config.run import Run
from seatrial.model.testbed import Testbed
from seatrial.platforms.local.platform import PLATFORM
from seatrial.remote.node_setup import set_up_node
from seatrial.remote.ssh import on_each
from tests.conftest import RUN_PREFIX, leftovers

LocalTestbed = Callable[..., AbstractContextManager[tuple[Run, Testbed]]]
Up = tuple[Run, Testbed]
_SHARED_PREFIX = f"shared-{os.getpid()}-"  # nodes that outlive a test are not what it left behind


def local_run(out: Path, nodes: int = 3, prefix: str = RUN_PREFIX, **fields: Any) -> Run:
    cluster = Cluster.model_validate(
        {"name": "test", "nodes": nodes, "platform": {"kind": "local"}, **fields}
    )
    return Run(f"{prefix}{secrets.token_hex(4)}", cluster, load_suite("quick"), out)


@contextmanager
def _up(run: Run) -> Iterator[Up]:
    try:
        yield run, PLATFORM.launch(run)
    finally:
        PLATFORM.teardown(run.run_id)


@pytest.fixture(scope="session")
def _local() -> None:
    if lacking := PLATFORM.missing():
        pytest.skip("; ".join(map(str, lacking)))


@pytest.fixture
def local_testbed(tmp_path: Path, nothing_left: None, _local: None) -> LocalTestbed:
    """`with local_testbed(nodes=3, faults=[...]) as (run, testbed)`; torn down whatever the test
    does.
    """
    return lambda nodes=3, **fields: _up(local_run(tmp_path, nodes, **fields))


@pytest.fixture(scope="session")
def _shared(tmp_path_factory: pytest.TempPathFactory, _local: None) -> Iterator[Up]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("shared-state")))
        with _up(local_run(tmp_path_factory.mktemp("shared"), prefix=_SHARED_PREFIX)) as (
            run,
            testbed,
        ):
            for contact in on_each(
                testbed.nodes, lambda node: set_up_node(testbed, node, 60)
            ).values():
                assert not isinstance(contact, Exception), contact
                contact.transport.close()
            yield run, testbed
    assert not [left for left in leftovers() if _SHARED_PREFIX in left]


@pytest.fixture
def shared(_shared: Up, tmp_path: Path) -> Up:
    """Three healthy nodes that have the probes, for tests that leave them as they are; each has a
    folder of its own.
    """
    run, testbed = _shared
    return replace(run, out=tmp_path), testbed
