"""Step `upload`: put what the run leaves where others find it.

Nothing that goes wrong here ever changes a verdict.

At `<upload>/<run_id>/`: the result and the report, `nccl-test-results.txt` (what every sweep
printed), `connectivity-test.log`, `pod-logs/`, and everything else below `logs/`. Every file goes
through `seatrial.text.redact`.
"""

import logging
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from seatrial.checks.collectives.section import Collectives
from seatrial.config.run import RESULT, Run, log_files, secrets_of
from seatrial.model.errors import SeatrialError, classed
from seatrial.system.private import check_parents, private_folder, private_opener, read_opener
from seatrial.text.redact import Secrets

log = logging.getLogger("seatrial.upload")

TIMEOUT_S = 300.0
CUT_TIMEOUT_S = 20.0  # for a run that was cut off: somebody waits for its end
_OF_CONNECTIVITY = re.compile(r"seatrial\.(connectivity|contact): ")
# Two files that many look for, made of several.
SWEEPS = "nccl-test-results.txt"
CONNECTIVITY = "connectivity-test.log"


def upload(run: Run, timeout_s: float = TIMEOUT_S) -> str | None:
    """Upload the run's files; return a note with their address, None without an upload or after an
    error.

    Files of an earlier run in the same folder, from before `started`, are left out. fsspec's file
    systems retry by themselves; what does not get through in time is given up.
    """
    if run.cluster.upload is None:
        return None
    target = f"{run.cluster.upload}/{run.run_id}"
    secrets = secrets_of(run.cluster)
    try:
        with tempfile.TemporaryDirectory(
            prefix="seatrial-upload-", ignore_cleanup_errors=True
        ) as staging:
            names = stage(run, Path(staging), secrets)
            folder = Path(staging)
            failed: list[Exception] = []

            def work() -> None:
                try:
                    _put(folder, names, target)
                except Exception as error:
                    failed.append(error)

            worker = threading.Thread(target=work, name="upload", daemon=True)
            worker.start()
            worker.join(timeout_s)
            if worker.is_alive():
                raise SeatrialError.of("upload-timeout", timeout_s=f"{timeout_s:g}")
            if failed:
                raise failed[0]
    except Exception as error:
        (problem,) = secrets.out_of([" ".join(classed(error).split())[:300]])
        log.warning("upload to %s failed: %s", target, problem)
        return None
    log.info("%d files", len(names))
    return f"files: {target}/"


def stage(run: Run, folder: Path, secrets: Secrets) -> list[str]:
    """Copy the files to upload below `folder`, without secrets; return their names there, the most
    useful first.
    """
    logs = log_files(run.out)
    section = run.suite.section(Collectives)
    operations = [run.logs / f"{name}.log" for name in (section.operations if section else ())]
    contents = {
        name: _lines(run.out / name)
        for name in RESULT
        if (run.out / name).is_file() and not (run.out / name).is_symlink()
    }
    contents[SWEEPS] = chain.from_iterable(_lines(path) for path in operations if path in logs)
    contents[CONNECTIVITY] = chain.from_iterable(map(_about_connectivity, logs))
    for path in logs:
        within = path.relative_to(run.logs)
        name = within.as_posix() if within.parts[0] == "pod-logs" else f"logs/{within.as_posix()}"
        contents[name] = _lines(path)
    for name, lines in contents.items():
        _write(folder / name, secrets.out_of(lines))
    return [name for name in contents if (folder / name).exists()]


def _about_connectivity(path: Path) -> Iterator[str]:
    """Yield the lines of the check connectivity: of the run's log, and of its mpirun."""
    if path.name == "run.log":
        return (line for line in _lines(path) if _OF_CONNECTIVITY.search(line))
    return _lines(path) if path.name.startswith("mpirun-hostname") else iter(())


def _lines(path: Path) -> Iterator[str]:
    with open(
        path, encoding="utf-8", errors="surrogateescape", newline="", opener=read_opener
    ) as file:
        yield from file


def _write(path: Path, lines: Iterator[str]) -> None:
    """Write the lines; no file without lines."""
    first = next(lines, None)
    if first is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.writelines(chain((first,), lines))


def _put(folder: Path, names: Sequence[str], target: str) -> None:
    """Upload all files at once if the file system can.

    Folders are not made: object stores have none, and would make a bucket.
    """
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    system, root = fsspec.core.url_to_fs(target)
    if not isinstance(system, LocalFileSystem):
        system.put([str(folder / name) for name in names], [f"{root}/{name}" for name in names])
        return
    check_parents(Path(root))  # for this user alone, and through no link that others have put there
    for name in names:
        target_file = Path(root, name)
        private_folder(target_file.parent)
        with (
            (folder / name).open("rb") as source,
            open(target_file, "wb", opener=private_opener) as copy,
        ):
            shutil.copyfileobj(source, copy)


upload_task = task(name="upload", cache_policy=NO_CACHE)(upload)
