"""The lane that looks at what is made for people with a real browser; only when it is asked for by
its path.

With `--pictures` the tests also take the pictures in docs/pictures anew.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.flows.serving.server import TemporaryServer
from seatrial.platforms.local.platform import PLATFORM
from tests.browser.page import Browser
from tests.e2e.conftest import Console, prefect_server  # noqa: F401 - a fixture

SUITE = {
    "devices": {"seconds": 0.1},
    "collectives": {
        "operations": ["all_reduce"],
        "gpu": {"min_bytes": "1M", "max_bytes": "1M"},
        "cpu": {
            "min_bytes": "4K",
            "max_bytes": "16M",
            "step_factor": 4,
            "warmup_iterations": 1,
            "iterations": 3,
        },
        "timeout_s": 60,
    },
}
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of Linux; os.unshare has it since Python 3.12
TRAINING = {"steps": 20, "batch_per_rank": 4, "min_loss_drop": 0.05, "timeout_s": 60}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--pictures", action="store_true", help="take the pictures in docs/pictures anew"
    )


@pytest.fixture(scope="session")
def chromium() -> str:
    if lacking := [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]:
        pytest.skip(f"{' and '.join(lacking)} not installed; as root: scripts/browser-packages")
    return str(shutil.which("chromium"))


@pytest.fixture(scope="module")
def own_network() -> Iterator[None]:
    """A network with nothing but loopback, for what this process starts; who is not root stays in
    the machine's.

    Chromium breaks off what it is loading when any interface of its network comes or goes, such as
    those of containers.
    """
    if os.geteuid() != 0:
        yield
        return
    libc, outside = (
        ctypes.CDLL(None, use_errno=True),
        os.open("/proc/thread-self/ns/net", os.O_RDONLY),
    )
    try:
        if libc.unshare(_NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "unshare")
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        yield
    finally:
        back = libc.setns(outside, _NEW_NETWORK)
        os.close(outside)
        assert back == 0


@pytest.fixture
def browser(chromium: str, tmp_path: Path) -> Iterator[Browser]:
    """A browser of its own, that reaches nothing but files of this machine."""
    with Browser.started(chromium, tmp_path / "profile") as browser:
        yield browser


@pytest.fixture
def still_browser(chromium: str, tmp_path: Path) -> Iterator[Browser]:
    """One in which no script runs."""
    with Browser.started(chromium, tmp_path / "still", scripts=False) as browser:
        yield browser


@pytest.fixture
def pictures(tmp_path: Path, pytestconfig: pytest.Config) -> Path:
    """The folder that pictures of pages are written to."""
    return PICTURES if pytestconfig.getoption("--pictures") else tmp_path


@pytest.fixture(scope="session")
def runs(
    chromium: str,
    tmp_path_factory: pytest.TempPathFactory,
    prefect_server: TemporaryServer,  # noqa: F811
) -> Path:
    """Three good nights of four local nodes, `good-2` the last, and a bad one: `bad`, with node-2
    on a slow link.
    """
    if lacking := PLATFORM.missing():
        pytest.skip("; ".join(map(str, lacking)))
    folder = tmp_path_factory.mktemp("runs")
    console = Console(folder, _environment(folder, prefect_server))
    for n in range(3):  # three passes make a history
        good = console.check(
            console.cluster(), console.suite(**SUITE, training=TRAINING), f"good-{n}"
        )
        assert good.status == 0, good.output
    slow = console.cluster(faults=[{"node": "node-2", "rate": "200mbit"}])
    bad = console.check(slow, console.suite(**SUITE, training=TRAINING), "bad")
    assert bad.status == 1, bad.output
    assert not console.left()
    return folder


def _environment(folder: Path, server: TemporaryServer) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SEATRIAL_")}
    return {
        **kept,
        "PREFECT_API_URL": server.api_url,
        "PREFECT_API_AUTH_STRING": server.auth_string,
        "PREFECT_HOME": str(folder / "prefect"),
        "XDG_STATE_HOME": str(folder / "state"),
        "COLUMNS": "200",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
