"""Accounting for the tests' Slurm: slurmdbd, and a MariaDB of its own that only this machine
reaches.
"""

import secrets
import shutil
import subprocess
from pathlib import Path

from tests.site import free_port

PACKAGES = {
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "sacctmgr": "slurm-client",
}
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_SLURMDBD_CONF = """\
DbdHost=localhost
DbdPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm
"""
_SLURM_CONF = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge.socket
MinJobAge=2
"""


def lacking() -> str:
    """The Debian packages that are not installed, in one line; empty when all are."""
    absent = (
        package for program, package in PACKAGES.items() if not shutil.which(program, path=_PATH)
    )
    return " ".join(dict.fromkeys(absent))


class Accounting:
    """Files, argument vectors and ports; the cluster starts and ends the daemons."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port, self._database_port, self._password = (
            free_port(),
            free_port(),
            secrets.token_hex(16),
        )

    @property
    def slurm_conf(self) -> str:
        """Further lines of slurm.conf: slurmctld soon forgets a job that is over."""
        return _SLURM_CONF.format(port=self._port, folder=self._folder)

    def prepare(self) -> None:
        values = {
            "folder": self._folder,
            "database_port": self._database_port,
            "password": self._password,
        }
        conf = self._folder / "slurmdbd.conf"
        conf.touch(mode=0o600)
        conf.write_text(_SLURMDBD_CONF.format(port=self._port, **values))
        user = f"'slurm'@'127.0.0.1' IDENTIFIED BY '{self._password}'"
        (self._folder / "init.sql").write_text(
            f"CREATE USER {user};\nGRANT ALL ON slurm.* TO 'slurm'@'127.0.0.1';\n"
        )
        subprocess.run(
            [
                "mariadb-install-db",
                "--no-defaults",
                "--user=root",
                f"--datadir={self._folder}/database",
                "--skip-test-db",
            ],
            check=True,
            capture_output=True,
        )

    def database_argv(self) -> list[str]:
        files = {
            "datadir": "database",
            "socket": "database.socket",
            "pid-file": "database.pid",
            "init-file": "init.sql",
        }
        return [
            *("/usr/sbin/mariadbd", "--no-defaults", "--user=root", "--bind-address=127.0.0.1"),
            f"--port={self._database_port}",
            *(f"--{option}={self._folder}/{file}" for option, file in files.items()),
        ]

    def is_up(self) -> bool:
        """Whether the database takes connections."""
        return (self._folder / "database.socket").exists()
