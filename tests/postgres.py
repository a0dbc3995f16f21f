"""A PostgreSQL server for tests, on a Unix socket in a folder of its own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)), None)


@contextmanager
def postgres_server() -> Iterator[Path]:
    """The folder of its socket; user and database are `postgres`.

    Skips where the binaries are not installed.
    """
    if POSTGRES is None:
        pytest.skip("PostgreSQL's server binaries are not installed")
    folder = Path(tempfile.mkdtemp(prefix="seatrial-pg-"))
    as_user: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]
    pg_ctl = [*as_user, str(POSTGRES.with_name("pg_ctl")), "-D", str(folder / "data"), "-w", "-s"]
    try:
        initdb = [
            *as_user,
            str(POSTGRES),
            "-D",
            str(folder / "data"),
            "-A",
            "trust",
            "-U",
            "postgres",
            "--no-sync",
        ]
        subprocess.run(initdb, check=True, capture_output=True, cwd="/")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        subprocess.run(
            [*pg_ctl, "-l", str(folder / "log"), "-o", options, "start"], check=True, cwd="/"
        )
        try:
            yield folder
        finally:
            subprocess.run([*pg_ctl, "-m", "immediate", "stop"], check=True, cwd="/")
    finally:
        shutil.rmtree(folder)
