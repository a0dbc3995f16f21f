"""One run: a cluster, a suite, an id that names everything it makes, and the folder it writes to."""

import os
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from seatrial.config.cluster import Cluster
from seatrial.config.yamlfile import Strict
from seatrial.model.errors import InputError
from seatrial.model.setup import Setup
from seatrial.system.disk_reserve import RESERVE
from seatrial.system.private import closed_folder, own_folder, private_folder
from seatrial.system.state_home import unusable
from seatrial.text.redact import Secrets

Section = TypeVar("Section", bound=Strict)


class Suite(Strict):
    """What is run on a testbed."""

    name: str = Field(min_length=1, max_length=63, description="what reports and history call it")

    def section(self, model: type[Section]) -> Section | None:
        """The section of that model; None where the suite leaves its check out."""
        return next((value for value in vars(self).values() if isinstance(value, model)), None)


def setup_of(cluster: Cluster) -> Setup:
    """The facts as the cluster file gives them."""
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


RESULT = ("run.json", "measurements.csv", "report.html")  # the files that say what a run came to
PICTURE = "busbw.png"  # of its curves, for Prefect's UI
_WRITTEN = {*RESULT, PICTURE, RESERVE, "report.pdf", "logs"}  # all that a run's folder holds


@dataclass(frozen=True, slots=True)
class Run:
    """What one run was asked to do.

    `day` counts days; what is too much for every run is measured in turn by it. None: no such turns.
    `image` is what its nodes run, once the step `image` has built or found it: with its digest where they pull it.
    """

    run_id: str
    cluster: Cluster
    suite: Suite
    out: Path
    image: str | None = None
    day: int | None = None

    @property
    def nodes_image(self) -> str:
        """What its nodes run; before it is built or found, what the cluster file says of it; empty without an image."""
        return self.image or (self.cluster.image.planned if self.cluster.image else "")

    @property
    def logs(self) -> Path:
        """Where the raw output of every remote command is kept."""
        return self.out / "logs"


def secrets_of(cluster: Cluster) -> Secrets:
    """Of this process' environment and of the cluster file."""
    return Secrets.of({**os.environ, **cluster.env}, cluster.platform.secret_variables())


def set_aside(folder: Path) -> None:
    """Make room in the folder for another run: the earlier one's verdict is gone, its logs are in `logs.1` and so on.

    All that is in `logs` is then of the new run, whatever clocks say.
    """
    for name in RESULT:
        (folder / name).unlink(missing_ok=True)
    logs = folder / "logs"
    if os.path.lexists(logs):
        logs.rename(next(path for n in count(1) if not os.path.lexists(path := folder / f"logs.{n}")))


def log_files(folder: Path) -> list[Path]:
    """Those of the run that has `folder`, sorted. Links may lead anywhere: none of them."""
    logs = folder / "logs"
    if logs.is_symlink():
        return []
    return sorted(path for path in logs.rglob("*") if path.is_file() and not path.is_symlink())


def writable(folder: Path, option: str) -> Path:
    """The folder of a run, for this user alone: made where it is not there, and its mode 0700 if it holds only runs.

    Raises InputError, which names the option that it was given by.
    """
    try:
        foreign = (
            os.path.isdir(folder) and not folder.is_symlink() and not all(map(is_written_by_runs, os.listdir(folder)))
        )
        (own_folder if foreign else closed_folder)(folder)
        if os.path.lexists(folder / "logs"):
            closed_folder(folder / "logs")
    except OSError as error:
        raise InputError(f"{option} {unusable(folder, error)}; give another folder") from error
    return _checked(folder, option)


def below_runs(out: str) -> Path:
    """The folder in `runs` that `out` names: who starts a run by a form writes nowhere else. Raises InputError."""
    runs = Path("runs").absolute()
    try:
        folder = Path(os.path.normpath(runs / out))
        below = runs.resolve() in folder.resolve().parents
    except (OSError, RuntimeError, ValueError):  # too long, a circle of links, a null character
        below = False
    if not below:
        raise InputError(f"out {out!r}: must be a folder below {runs}, such as {runs / 'NAME'}; or leave it empty")
    return folder


def check_runs_folder() -> None:
    """Raises InputError where no folder can be made in `runs`, which may be a link to a larger disk."""
    runs = Path("runs")
    try:
        if not os.path.isdir(runs):
            private_folder(runs)
    except OSError as error:
        raise InputError(f"{runs}: cannot be used as a folder: {error.strerror}; give another by --out") from error
    _checked(runs, "--out")


def is_written_by_runs(name: str) -> bool:
    """Whether a run's folder has a file or folder of that name."""
    return name in _WRITTEN or name.startswith("logs.")


def _checked(folder: Path, option: str) -> Path:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{option} {folder}: is not writable; give another")
    return folder
