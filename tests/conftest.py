"""What every test shares: a state of its own, and a look at what it left behind."""

import gc
import logging
import os
import signal
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from seatrial.config import PLATFORMS
from seatrial.platforms import state as states

pytest.register_assert_rewrite("tests.contract.promises")  # no module of tests itself

RUN_PREFIX = f"test-{os.getpid()}-"
# Collected only when their path is given.
LANES = ("baremetal", "browser", "docker", "e2e/kubernetes", "fuzz", "images", "runai", "slurm")

# A shell ignores SIGINT in the background, nohup SIGHUP; processes that tests start inherit that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed",
        type=int,
        default=1,
        help="of what tests choose at random; the same seed chooses alike",
    )
    parser.addoption(
        "--times", type=int, default=2, help="how often a test ends something at a random moment"
    )


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed {config.getoption('--seed')}"


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    number: int = pytestconfig.getoption("--seed")
    return number


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    folder = collection_path.relative_to(Path(__file__).parent).as_posix()
    asked_for = any(f"tests/{folder}" in argument for argument in config.args)
    return True if folder in LANES and not asked_for else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests are made, and all of them stay: there is no garbage to look for
    meanwhile.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="session")
def state_folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the state of each test goes; numbered folders of pytest would be counted anew for each
    of thousands.
    """
    return tmp_path_factory.mktemp("state")


@pytest.fixture(autouse=True)
def _own_state(state_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's history, Prefect database or Slack settings."""
    monkeypatch.setenv("XDG_STATE_HOME", tempfile.mkdtemp(dir=state_folders))
    for name in list(os.environ):
        if name.startswith(("SEATRIAL_", "PREFECT_API")):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _own_log_level() -> Iterator[None]:
    """A command that a test tries within this process sets how much is said; the next test hears
    all of it.
    """
    logger = logging.getLogger("seatrial")
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.fixture(scope="session")
def empty_history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the current schema without runs, to be copied: making one takes longer than most
    tests.
    """
    from seatrial.history import open_store

    file = tmp_path_factory.mktemp("history") / "history.sqlite"
    open_store(f"sqlite:///{file}").close()
    return file


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fail a test that leaves a namespace, an sshd or a keeper of a test's run behind."""
    yield
    assert not {left for left in leftovers() if RUN_PREFIX in left}


def leftovers() -> set[str]:
    """Every namespace, state folder and process of local runs on this machine, other people's too.

    A folder of another process that lives is none: somebody else runs tests, or a run, at the same
    time. Runs that this session makes without the flow have ids that begin with RUN_PREFIX.
    """
    namespaces = (
        {entry.name for entry in Path("/run/netns").glob("seatrial-*")}
        if Path("/run/netns").is_dir()
        else set()
    )
    folders = {
        str(entry)
        for kind in PLATFORMS
        for entry in Path("/run", f"seatrial-{kind}").glob("*")
        if not _is_in_use(entry)
    }
    listing = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,args="], capture_output=True, text=True, check=True
    ).stdout
    processes = {
        line.strip()
        for line in listing.splitlines()
        if "/run/seatrial-local/" in line and "ps -ww" not in line
    }
    return namespaces | folders | processes


def _is_in_use(folder: Path) -> bool:
    owner = states.read_owner(folder, "owner")
    return bool(owner and owner.alive and owner.pid != os.getpid())
