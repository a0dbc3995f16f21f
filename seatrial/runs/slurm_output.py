"""Output of batch scripts that `seatrial render` wrote for Slurm: `seatrial-JOB.out`, and the
folder `seatrial-JOB`.

They lie where the script was submitted, among files of the user's own, which are neither read nor
named.
"""

import os
import re
import shutil
import stat
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from seatrial.model.result import now
from seatrial.runs.prune import (
    Document,
    Limits,
    Outcome,
    Skipped,
    each_tried,
    megabytes,
    opened,
)

_NAME = re.compile(r"seatrial-(\d{1,10})(\.out)?", re.ASCII)
_LOG = re.compile(r"[\w.-]{1,250}\.log", re.ASCII)
# What the script prints when a measurement starts
_STARTED = re.compile(r"\d\d:\d\d:\d\d [\w.-]+", re.ASCII)
_AT_WORK = timedelta(days=1)  # a job may still write to what was changed since
_MAX_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class JobOutput:
    """Files of one job by `names` in the folder; `is_good`: every measurement started and none
    failed.
    """

    job: int
    names: tuple[str, ...]
    size_bytes: int
    changed: datetime
    is_good: bool

    @property
    def line(self) -> str:
        """The output on a terminal: its names, end, whether all was measured, and its size."""
        state = "complete" if self.is_good else "failed"
        ended = f"{self.changed:%Y-%m-%d %H:%M}"
        return f"{' '.join(self.names)}  {ended}  {state}  {megabytes(self.size_bytes)}"

    def to_dict(self) -> Document:
        return {"job": self.job, "names": list(self.names), "size_bytes": self.size_bytes}


def prune_outputs(folder: Path, limits: Limits, *, delete: bool) -> Outcome:
    """Remove the outputs in `folder` that `limits` let go; without `delete` nothing is touched.

    Raises InputError where it is no folder.
    """
    failed: list[Skipped] = []
    with opened(folder, "--slurm-output", "seatrial-JOB.out") as descriptor:
        outputs, skipped = scan(descriptor)
        gone = expendable_outputs(outputs, limits, now())
        if delete:
            by_name = {output.names[0]: output for output in gone}
            gone, failed = each_tried(partial(remove, descriptor), by_name)
    removed = {output.line: output.to_dict() for output in gone}
    return Outcome("job", removed, skipped, failed, deleted=delete)


def scan(descriptor: int) -> tuple[list[JobOutput], list[Skipped]]:
    """List outputs of jobs in a folder, oldest first, and those that are not as the script leaves
    them.

    `descriptor` is the open folder, so that another one under its name cannot take its place.
    """
    by_job: dict[int, list[str]] = defaultdict(list)
    for name in sorted(os.listdir(descriptor)):
        if match := _NAME.fullmatch(name):
            by_job[int(match[1])].append(name)
    by_name = {names[0]: names for names in by_job.values()}
    outputs, skipped = each_tried(partial(_output, descriptor), by_name)
    return sorted(outputs, key=lambda output: (output.changed, output.job)), skipped


def expendable_outputs(
    oldest_first: Sequence[JobOutput], limits: Limits, at: datetime
) -> list[JobOutput]:
    """Return outputs that no limit keeps; the newest good one and those changed within a day
    stay.
    """
    newest_good = [output for output in oldest_first if output.is_good][-1:]
    age = max(_AT_WORK, limits.older_than or _AT_WORK)
    beyond = oldest_first[: -limits.keep] if limits.keep else oldest_first
    return [output for output in beyond if output not in newest_good and at - output.changed > age]


def remove(descriptor: int, output: JobOutput) -> JobOutput:
    """Remove an output, and return it.

    Raises OSError, or ValueError if it has changed since it was listed. What was removed before an
    error stays removed.
    """
    if _output(descriptor, output.names) != output:
        raise ValueError("has changed in the meantime")
    for name in output.names:
        if name.endswith(".out"):
            os.unlink(name, dir_fd=descriptor)
        else:
            shutil.rmtree(name, dir_fd=descriptor)
    return output


def _output(descriptor: int, names: Sequence[str]) -> JobOutput:
    """Look at the file and the folder of a job, or at the one that is there.

    Raises OSError, or ValueError for files that the script does not leave.
    """
    statuses: list[os.stat_result] = []
    for name in names:
        statuses += _statuses(descriptor, name)
    changed = max(status.st_mtime for status in statuses)
    job = names[0].removeprefix("seatrial-").removesuffix(".out")
    return JobOutput(
        job=int(job),
        names=tuple(names),
        size_bytes=sum(status.st_size for status in statuses),
        changed=datetime.fromtimestamp(changed, UTC),
        is_good=len(names) == 2 and _is_good(descriptor, f"seatrial-{job}.out"),
    )


def _statuses(descriptor: int, name: str) -> Iterator[os.stat_result]:
    """Yield the status of the file, or of the folder and its logs.

    Raises ValueError for other files.
    """
    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    is_file = name.endswith(".out")
    if is_file and not stat.S_ISREG(status.st_mode):
        raise ValueError("is no regular file")
    if not is_file and not stat.S_ISDIR(status.st_mode):
        raise ValueError("is no folder")
    if status.st_uid != os.geteuid():
        raise ValueError("belongs to another user")
    yield status
    if is_file:
        return
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
    try:
        for entry in os.listdir(folder):
            status = os.stat(entry, dir_fd=folder, follow_symlinks=False)
            if not (_LOG.fullmatch(entry) and stat.S_ISREG(status.st_mode)):
                raise ValueError(f"holds {entry!r}, which no job writes")
            yield status
    finally:
        os.close(folder)


def _is_good(descriptor: int, name: str) -> bool:
    """Return whether the file has nothing but starts of measurements: a failure prints more."""
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=descriptor)
    with os.fdopen(file, errors="replace") as reader:
        lines = reader.read(_MAX_BYTES).splitlines()
    return bool(lines) and all(_STARTED.fullmatch(line) for line in lines)
