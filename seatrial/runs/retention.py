"""Remove what the limits let go: folders of runs, and rows of the history."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.history.past import chosen_runs
from seatrial.model.errors import SeatrialError
from seatrial.model.reason import Reason
from seatrial.model.result import now
from seatrial.platforms import state
from seatrial.runs.cluster_lock import runs_at_work
from seatrial.runs.prune import (
    Limits,
    RunFolder,
    RunsFolder,
    Skipped,
    expendable,
    expendable_folders,
    newest_passes,
    opened,
)

if TYPE_CHECKING:
    from seatrial.history import RunRow
    from seatrial.history.store import Store

_ALL = 10_000_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was removed, or would be; `skipped` is no run, `failed` could not be removed."""

    folders: Sequence[RunFolder]
    rows: int
    skipped: Sequence[Skipped]
    failed: Sequence[Skipped]
    deleted: bool

    @property
    def size_bytes(self) -> int:
        return sum(folder.size_bytes for folder in self.folders)

    def to_dict(self) -> dict[str, Any]:
        """As `seatrial prune --json` prints it."""
        return {
            "deleted": self.deleted,
            "folders": [{"name": folder.name, "size_bytes": folder.size_bytes} for folder in self.folders],
            "size_bytes": self.size_bytes,
            "history_runs": self.rows,
            "left": [{"name": left.name, "problem": left.problem} for left in (*self.skipped, *self.failed)],
        }


def prune_runs(runs: Path, limits: Limits, cluster: str | None, *, delete: bool) -> Outcome:
    """Remove what `limits` let go of that cluster, or of all; without `delete` nothing is touched.

    Raises InputError where `runs` is no folder, SeatrialError where the history or the locks cannot be read: then
    nothing is removed, as nobody knows what is pinned or at work.
    """
    from seatrial.history import open_store

    at = now()
    with opened(runs) as folder, open_store() as store:
        rows = store.runs(cluster, _ALL)
        protected = _protected(store, rows)
        scanned, skipped = folder.scan()
        chosen = [one for one in scanned if cluster is None or (one.header and one.header.cluster == cluster)]
        gone = expendable_folders(chosen, limits, protected, at)
        old = _rows_to_remove(rows, limits, protected, at)
        failed = _remove(folder, gone) if delete else []
        removed = store.remove_runs([row.run_id for row in old]) if delete else len(old)
    left = {problem.name for problem in failed}
    return Outcome([one for one in gone if one.name not in left], removed, skipped, failed, delete)


def _rows_to_remove(rows: Sequence["RunRow"], limits: Limits, protected: set[str], at: datetime) -> list["RunRow"]:
    """Never those that the next run is compared with."""
    of_suite: dict[tuple[str, str], list[RunRow]] = defaultdict(list)
    for row in rows:
        of_suite[row.cluster, row.suite].append(row)
    compared = {row.run_id for some in of_suite.values() for row in chosen_runs(some)}
    return expendable(rows, limits, protected | compared, at)


def _protected(store: "Store", rows: Iterable["RunRow"]) -> set[str]:
    """The ids of the runs that stay whatever their age."""
    pinned = {pin.run_id for cluster in store.pinned_clusters() for pin in store.pinned(cluster).values() if pin.run_id}
    try:
        return pinned | newest_passes(rows) | runs_at_work() | set(state.run_ids())
    except OSError as error:
        raise SeatrialError(Reason.of("runs-at-work-unknown", problem=error)) from error


def _remove(runs: RunsFolder, folders: Iterable[RunFolder]) -> list[Skipped]:
    """Remove them; returns what could not be removed."""
    failed = []
    for folder in folders:
        try:
            runs.remove(folder)
        except (OSError, ValueError) as error:
            failed.append(Skipped(folder.name, str(error)))
    return failed
