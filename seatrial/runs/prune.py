"""Remove old runs from the folder of all runs and from the history. No link is followed.

A run stays if any rule keeps it: it is young enough, among the newest, the newest that passed of
its cluster and suite, the source of a pinned baseline, or at work. What cannot be read as a run
stays too.
"""

import os
import shutil
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from seatrial.config.run import is_written_by_runs
from seatrial.history import RunRow, open_store
from seatrial.history.past import chosen_runs
from seatrial.model.errors import SeatrialError, os_errors_named
from seatrial.model.result import now
from seatrial.model.verdict import Verdict
from seatrial.platforms import state
from seatrial.runs.at_work import ids_at_work
from seatrial.runs.measurements_file import MAX_BYTES

if TYPE_CHECKING:
    from seatrial.history.store import Store


T = TypeVar("T")
Found = TypeVar("Found")
Document = dict[str, Any]
# A folder without run.json may be of a run at work, on another machine too
_UNTOUCHED = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Limits:
    """The runs to keep: those younger than `older_than`, and the newest `keep` of each cluster;
    None keeps none.
    """

    older_than: timedelta | None
    keep: int | None


class RunHeader(BaseModel):
    """The part of run.json that decides."""

    run_id: str = Field(max_length=1000)
    cluster: str = Field(max_length=1000)
    suite: str = Field(max_length=1000)
    started: AwareDatetime
    verdict: Verdict


R = TypeVar("R", RunRow, RunHeader)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder below the folder of all runs; `size_bytes` on the disk; without `header` its run
    never ended.
    """

    name: str
    header: RunHeader | None
    size_bytes: int
    changed: datetime

    @property
    def run_id(self) -> str:
        return self.header.run_id if self.header else self.name

    @property
    def line(self) -> str:
        """The folder on a terminal: its name, start, verdict and size."""
        started = f"{self.header.started:%Y-%m-%d %H:%M}" if self.header else "never ended"
        verdict = self.header.verdict.value if self.header else "-"
        return f"{self.name}  {started}  {verdict}  {megabytes(self.size_bytes)}"

    def to_dict(self) -> Document:
        return {"name": self.name, "size_bytes": self.size_bytes}


@dataclass(frozen=True, slots=True)
class Skipped:
    """An entry that is not a removable run."""

    name: str
    problem: str


def megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"


def each_tried(
    action: Callable[[T], Found], items: Mapping[str, T]
) -> tuple[list[Found], list[Skipped]]:
    """Return what the action returns of each item, and the items, by name, for which it raises
    OSError or ValueError.
    """
    found = []
    skipped = []
    for name, item in items.items():
        try:
            found.append(action(item))
        except (OSError, ValueError) as error:
            skipped.append(Skipped(name, str(error)))
    return found, skipped


def expendable(runs: Iterable[R], limits: Limits, protected: Set[str], now: datetime) -> list[R]:
    """Return the runs that no rule keeps, oldest first."""
    ordered = sorted(runs, key=_age_order)
    by_cluster: dict[str, list[R]] = defaultdict(list)
    for run in ordered:
        by_cluster[run.cluster].append(run)
    beyond = [
        run
        for oldest_first in by_cluster.values()
        for run in oldest_first[: -limits.keep if limits.keep else None]
    ]
    kept = newest_passes(ordered).union(protected)
    old = limits.older_than or timedelta(0)
    return sorted(
        (run for run in beyond if run.run_id not in kept and now - run.started > old),
        key=_age_order,
    )


def newest_passes(runs: Iterable[RunRow | RunHeader]) -> set[str]:
    """Return the ids of the newest run that passed, of each cluster and suite."""
    passed = sorted((run for run in runs if run.verdict is Verdict.PASS), key=_age_order)
    return set({(run.cluster, run.suite): run.run_id for run in passed}.values())


def _age_order(run: RunRow | RunHeader) -> tuple[datetime, str]:
    return run.started, run.run_id


def expendable_folders(
    folders: Sequence[RunFolder], limits: Limits, protected: Set[str], now: datetime
) -> list[RunFolder]:
    """Return finished runs as `expendable` does, and unfinished ones that have not changed for a
    day.
    """
    finished = [folder.header for folder in folders if folder.header]
    gone = {id(header) for header in expendable(finished, limits, protected, now)}
    stale = max(_UNTOUCHED, limits.older_than or _UNTOUCHED)
    return [
        folder
        for folder in folders
        if (id(folder.header) in gone if folder.header else now - folder.changed > stale)
        and protected.isdisjoint({folder.name, folder.run_id})
    ]


class RunsFolder:
    """The folder of all runs, held by descriptor: a link that replaces the folder or a part of it
    later is not followed.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def scan(self) -> tuple[list[RunFolder], list[Skipped]]:
        """List the folders of runs by name, and other entries."""
        names = sorted(os.listdir(self._descriptor))
        return each_tried(self._folder, dict(zip(names, names, strict=True)))

    def remove(self, folder: RunFolder) -> RunFolder:
        """Remove a folder, and return it. Raises OSError, or ValueError if it has changed."""
        if self._folder(folder.name) != folder:
            raise ValueError("has changed in the meantime")
        shutil.rmtree(folder.name, dir_fd=self._descriptor)
        return folder

    def _folder(self, name: str) -> RunFolder:
        status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            raise ValueError("is a link" if stat.S_ISLNK(status.st_mode) else "is no folder")
        if status.st_uid != os.geteuid():
            raise ValueError("belongs to another user")
        size = 0
        changed = status.st_mtime
        for folder, _, files, descriptor in os.fwalk(name, dir_fd=self._descriptor, onerror=_raise):
            if folder == name and (
                foreign := [
                    entry for entry in os.listdir(descriptor) if not is_written_by_runs(entry)
                ]
            ):
                raise ValueError(f"holds {foreign[0]!r}, which no run writes")
            if os.fstat(descriptor).st_dev != status.st_dev:
                raise ValueError("another file system is mounted in it")
            for entry in (".", *files):
                of_entry = os.stat(entry, dir_fd=descriptor, follow_symlinks=False)
                size += of_entry.st_blocks * 512
                changed = max(changed, of_entry.st_mtime)
        return RunFolder(
            name=name,
            header=self._header(name),
            size_bytes=size,
            changed=datetime.fromtimestamp(changed, UTC),
        )

    def _header(self, name: str) -> RunHeader | None:
        """Read the header of run.json; None without one.

        Raises ValueError for a link or other content.
        """
        try:
            file = os.open(
                f"{name}/run.json",
                os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK,
                dir_fd=self._descriptor,
            )
        except FileNotFoundError:
            return None
        with os.fdopen(file, "rb") as reader:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise ValueError("run.json is no regular file")
            content = reader.read(MAX_BYTES + 1)
        with suppress(ValidationError):
            if len(content) <= MAX_BYTES:
                return RunHeader.model_validate_json(content)
        raise ValueError("run.json cannot be read as that of a run")


@contextmanager
def opened(folder: Path, option: str, content: str) -> Iterator[int]:
    """Open a folder, which may be a link, as a descriptor.

    Raises InputError with the option that names it.
    """
    with os_errors_named(f"{option} {folder}", f"; give the folder that holds {content}"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _raise(error: OSError) -> None:
    raise error


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was or would be removed, each a `noun`; `skipped` is nothing of seatrial's, `failed`
    could not be removed.

    `removed` has the line of each for a terminal, and its part of the JSON document. `rows` are the
    runs of the history that go too.
    """

    noun: Literal["folder", "job"]
    removed: Mapping[str, Document]
    skipped: Sequence[Skipped]
    failed: Sequence[Skipped]
    deleted: bool
    rows: int | None = None

    @property
    def size_bytes(self) -> int:
        return sum(each["size_bytes"] for each in self.removed.values())

    def to_dict(self) -> Document:
        """Return the document of `seatrial prune --json`."""
        document: Document = {
            "deleted": self.deleted,
            f"{self.noun}s": list(self.removed.values()),
            "size_bytes": self.size_bytes,
            "left": [asdict(left) for left in (*self.skipped, *self.failed)],
        }
        if self.rows is not None:
            document["history_runs"] = self.rows
        return document


def prune_runs(runs: Path, limits: Limits, cluster: str | None, *, delete: bool) -> Outcome:
    """Remove what `limits` let go of that cluster, or of all; without `delete` nothing is touched.

    Raises InputError if `runs` is no folder, and SeatrialError, before anything is removed, if the
    history or the locks cannot be read: they say what is pinned or at work.
    """
    at = now()
    with opened(runs, "--runs", "the folders of runs") as descriptor, open_store() as store:
        folder = RunsFolder(descriptor)
        rows = store.runs(cluster, limit=10_000_000)  # all
        protected = _protected(store, rows)
        scanned, skipped = folder.scan()
        chosen = [
            one
            for one in scanned
            if cluster is None or (one.header and one.header.cluster == cluster)
        ]
        gone = expendable_folders(chosen, limits, protected, at)
        # Without those that the next run is compared with
        of_suite: dict[tuple[str, str], list[RunRow]] = defaultdict(list)
        for row in rows:
            of_suite[row.cluster, row.suite].append(row)
        compared = {row.run_id for some in of_suite.values() for row in chosen_runs(some)}
        old = expendable(rows, limits, protected | compared, at)
        failed: list[Skipped] = []
        count = len(old)
        if delete:
            gone, failed = each_tried(folder.remove, {one.name: one for one in gone})
            count = store.remove_runs([row.run_id for row in old])
    removed = {one.line: one.to_dict() for one in gone}
    return Outcome("folder", removed, skipped, failed, deleted=delete, rows=count)


def _protected(store: "Store", rows: Iterable[RunRow]) -> set[str]:
    """Return the ids of runs that stay at any age."""
    pinned = {
        pin.run_id
        for cluster in store.pinned_clusters()
        for pin in store.pinned(cluster).values()
        if pin.run_id
    }
    try:
        return pinned | newest_passes(rows) | ids_at_work() | set(state.run_ids())
    except OSError as error:
        raise SeatrialError.of("runs-at-work-unknown", problem=error) from error
