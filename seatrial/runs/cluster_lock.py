"""One check of a cluster at a time on this machine, first come, first served: locks end when their
holder dies.
"""

import fcntl
import json
import logging
import os
import time
from contextlib import suppress
from pathlib import Path

from seatrial.model.result import now
from seatrial.system.private import closed_folder, private_opener, read_opener
from seatrial.system.state_home import state_home
from seatrial.text.words import count

log = logging.getLogger("seatrial.lock")


class Line:
    """A place among those that wait, from now until `leave`: a locked file, named by the time.

    Raises OSError.
    """

    def __init__(self, folder: Path) -> None:
        made = closed_folder(folder) / f".{time.time_ns():020d}-{os.getpid()}"
        self._place = made.with_name(made.name[1:])
        self._file = private_opener(str(made), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        with suppress(OSError):  # a file system without locks keeps no order
            fcntl.flock(self._file, fcntl.LOCK_EX)
        made.rename(self._place)  # visible only once locked: an unlocked place is of a dead run

    def ahead(self) -> int:
        """Count the runs that came earlier and still wait; remove the places of dead ones."""
        before = (
            path for path in self._place.parent.glob("[0-9]*") if path.name < self._place.name
        )
        return sum(1 for path in before if _is_held(path))

    def leave(self) -> None:
        if self._file >= 0:
            self._place.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def _is_held(path: Path) -> bool:
    try:
        with open(path, "rb", opener=read_opener) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
    except BlockingIOError:
        return True
    except OSError:  # it has left this moment, or there are no locks
        return False
    return False


class FileLock:
    """The lock of one cluster for this user on this machine. Raises OSError."""

    def __init__(self, cluster: str, run_id: str) -> None:
        self._cluster = cluster
        self._run_id = run_id
        path = closed_folder(state_home() / "locks") / f"{cluster}.lock"
        self._line = Line(path.with_suffix(".line"))
        # Never removed: a lock on a removed file is none.
        self._file = private_opener(str(path), os.O_RDWR | os.O_CREAT)

    def take(self) -> bool:
        """Take the lock; False if another run has it or came before.

        A file system without locks counts as taken.
        """
        if self._line.ahead():
            return False
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            log.warning("no lock on this machine, runs may meet: %s", error)
            return True
        self._line.leave()
        with suppress(OSError):  # a quota that is full; the lock itself takes no room
            os.ftruncate(self._file, 0)
            os.pwrite(
                self._file,
                json.dumps({"run": self._run_id, "since": f"{now():%Y-%m-%d %H:%M} UTC"}).encode(),
                0,
            )
        return True

    def holder(self) -> str:
        """Return in words which run holds the lock, and how many wait before this one."""
        try:
            record = json.loads(os.pread(self._file, 4096, 0))
            holds = held_by(self._cluster, str(record["run"]), str(record["since"]))
        except (OSError, ValueError, KeyError, TypeError):  # taken this very moment
            holds = f"cluster {self._cluster} is being checked by another run"
        ahead = self._line.ahead()
        return f"{holds}; {count(ahead, 'run')} before this one" if ahead else holds

    def close(self) -> None:
        self._line.leave()
        os.close(self._file)


def held_by(cluster: str, run: str, since: str) -> str:
    return f"cluster {cluster} is being checked by run {run} since {since}"
