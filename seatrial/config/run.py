"""One run: cluster, suite, id and output folder."""

import os
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import NoReturn, TypeVar
from urllib.parse import quote

from pydantic import Field

from seatrial.config.cluster import Cluster
from seatrial.config.yamlfile import Strict
from seatrial.model.errors import InputError, os_errors_named
from seatrial.model.setup import Setup
from seatrial.system.disk_reserve import RESERVE
from seatrial.system.private import check_parents, closed_folder, own_folder, private_folder
from seatrial.system.state_home import unusable
from seatrial.text.redact import Secrets

Section = TypeVar("Section", bound=Strict)
_PART = " (only "
RESULT = ("run.json", "measurements.csv", "report.html")  # the files with the results of a run
RUNS_URL = "SEATRIAL_RUNS_URL"  # where a browser finds the folder `runs`, under `seatrial serve`
PICTURE = "busbw.png"  # of its curves, for Prefect's UI
_WRITTEN = {*RESULT, PICTURE, RESERVE, "report.pdf", "logs"}  # all that a run's folder holds


class Suite(Strict):
    """The checks to run on a testbed."""

    name: str = Field(min_length=1, max_length=63, description="what reports and history call it")
    budget_s: float = Field(
        600, ge=0, le=86_400, description="seconds for repeats and for `localize`"
    )

    def section(self, model: type[Section]) -> Section | None:
        """Return the section of that model; None if the suite leaves its check out."""
        return next((value for value in vars(self).values() if isinstance(value, model)), None)


def part_name(suite: str, checks: str) -> str:
    """Return the name of a suite of which only some checks run: nightly (only devices,
    training).
    """
    return f"{suite}{_PART}{checks})"


def whole_name(suite: str) -> str:
    """Return the name of the whole suite for a part of it; any other name unchanged.

    The numbers of a part are judged by the runs of the whole suite.
    """
    return suite.partition(_PART)[0]


def setup_of(cluster: Cluster) -> Setup:
    """Return the facts of a cluster file that references are keyed by."""
    hardware = cluster.hardware
    return Setup(
        hardware.name,
        cluster.nodes,
        cluster.gpus,
        cluster.slots,
        cluster.fabric,
        hardware.gpu_link_gb_s,
        hardware.node_link_gb_s,
    )


@dataclass(frozen=True, slots=True)
class Taken:
    """Nodes that a run takes from a cluster at work, and gives back to any other job; some of them
    wait at the gate.
    """

    nodes: tuple[str, ...]
    gated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """The request of one run.

    `day` counts days; measurements that are too many for every run take turns by it (None: no
    turns). `image` is the image of the nodes once the step `image` has built or found it. `taken`
    is set where the cluster is at work. `every_s` is how often devices are asked while it measures
    (0: never).
    """

    run_id: str
    cluster: Cluster
    suite: Suite
    out: Path
    image: str | None = None
    day: int | None = None
    taken: Taken | None = None
    every_s: float = 0

    @property
    def nodes_image(self) -> str:
        """The image of the nodes; before it is built or found, that of the cluster file; empty
        without an image.
        """
        return self.image or (self.cluster.image.planned if self.cluster.image else "")

    @property
    def logs(self) -> Path:
        """The folder of the raw output of remote commands."""
        return self.out / "logs"


def secrets_of(cluster: Cluster) -> Secrets:
    """Collect secrets, alert addresses included, from the environment of this process and the
    cluster file.
    """
    secrets = Secrets.of({**os.environ, **cluster.env}, cluster.platform.secret_variables())
    addresses = (
        address for address in os.environ.get("SEATRIAL_ALERT_URLS", "").split() if "://" in address
    )
    return replace(secrets, values=(*addresses, *secrets.values))


def set_aside(folder: Path) -> None:
    """Prepare the folder for another run: remove the earlier results, and move its logs to `logs.1`
    and so on.
    """
    for name in RESULT:
        (folder / name).unlink(missing_ok=True)
    logs = folder / "logs"
    if os.path.lexists(logs):
        logs.rename(
            next(path for n in count(1) if not os.path.lexists(path := folder / f"logs.{n}"))
        )


def log_files(folder: Path) -> list[Path]:
    """List the log files in a run's folder, sorted, without links.

    Raises InputError for a folder that cannot be read, instead of an empty list.
    """
    logs = folder / "logs"
    if logs.is_symlink() or not logs.is_dir():
        return []

    def refuse(error: OSError) -> NoReturn:
        raise InputError(f"{error.filename}: cannot be read: {error.strerror}") from error

    paths = (Path(top, name) for top, _, names in os.walk(logs, onerror=refuse) for name in names)
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def writable(folder: Path, option: str) -> Path:
    """Make the folder of a run for this user alone, with mode 0700 if it holds only files of runs.

    Raises InputError, which names the command-line option.
    """
    try:
        check_parents(folder)
        foreign = (
            os.path.isdir(folder)
            and not folder.is_symlink()
            and not all(map(is_written_by_runs, os.listdir(folder)))
        )
        (own_folder if foreign else closed_folder)(folder)
        if os.path.lexists(folder / "logs"):
            closed_folder(folder / "logs")
    except OSError as error:
        raise InputError(f"{option} {unusable(folder, error)}; give another folder") from error
    return _checked(folder, option)


def below_runs(out: str) -> Path:
    """Return the folder `out` below `runs`, where runs started by a form must write.

    Raises InputError.
    """
    runs = Path("runs").absolute()
    try:
        folder = Path(os.path.normpath(runs / out))
        below = runs.resolve() in folder.resolve().parents
    except (OSError, RuntimeError, ValueError):  # too long, a circle of links, a null character
        below = False
    if not below:
        raise InputError(
            f"out {out!r}: must be a folder below {runs}, such as {runs / 'NAME'}; or "
            "leave it empty"
        )
    return folder


def published(folder: Path) -> str | None:
    """Return the address of a run's folder in `runs`, if browsers can reach it."""
    base = os.environ.get(RUNS_URL)
    return (
        f"{base.rstrip('/')}/{quote(folder.name)}"
        if base and folder.parent == Path("runs").absolute()
        else None
    )


def check_runs_folder() -> None:
    """Raise InputError if no folder can be made in `runs`, which may be a link to a larger disk."""
    runs = Path("runs")
    with os_errors_named(f"{runs}: cannot be used as a folder", "; give another by --out"):
        check_parents(runs / "RUN_ID")
        if not os.path.isdir(runs):
            private_folder(runs)
    _checked(runs, "--out")


def is_written_by_runs(name: str) -> bool:
    """Return whether runs write a file or folder of that name."""
    return name in _WRITTEN or name.startswith("logs.")


def _checked(folder: Path, option: str) -> Path:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{option} {folder}: is not writable; give another")
    return folder
