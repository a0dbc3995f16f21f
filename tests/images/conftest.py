"""The lane that builds and runs a real image: minutes the first time, so only when it is asked for
by its path.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from seatrial.remote.ssh import new_key_pair
from tests.images import lane
from tests.site import PATIENCE_S


@pytest.fixture(scope="session")
def _lane() -> Iterator[None]:
    if reason := lane.lacking():
        pytest.skip(reason)
    with lane.alone():
        yield
    assert lane.leftovers() == []


@pytest.fixture(scope="session")
def image(_lane: None) -> str:
    """images/cpu, built here."""
    return lane.build("cpu")


@pytest.fixture(scope="session")
def archive(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image as one file, its layers uncompressed."""
    file = tmp_path_factory.mktemp("archive") / "cpu.tar"
    lane.podman("save", "--quiet", "--format", "docker-archive", "--output", str(file), image)
    yield file
    file.unlink()


@pytest.fixture(autouse=True)
def _nothing_runs_on(_lane: None) -> Iterator[None]:
    """Whatever a test started ends with it, also when it fails."""
    yield
    lane.clean()


@dataclass(frozen=True)
class Keys:
    """The folder that a run mounts."""

    folder: Path
    host_key: str

    @property
    def private(self) -> Path:
        # ssh refuses the one in the folder, which everyone may read
        return self.folder.parent / "id_ed25519"


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    """Keys of one run, with the modes that a mounted Secret has."""
    user, host = new_key_pair(), new_key_pair()
    folder = tmp_path / "keys"
    folder.mkdir()
    for name, text in {
        "authorized_keys": user.public + "\n",
        "id_ed25519": user.private.rstrip("\n"),  # as it comes out of many a Secret
        "ssh_host_ed25519_key": host.private,
        "known_hosts": f"* {host.public}\n",
    }.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)
    for parent in (tmp_path, *list(tmp_path.parents)[:2]):
        parent.chmod(0o755)
    keys = Keys(folder, host.public)
    keys.private.write_text(user.private)
    keys.private.chmod(0o600)
    return keys


@pytest.fixture
def network(_lane: None) -> str:
    name = lane.PREFIX + "net"
    # --internal would leave this machine without an address in it
    lane.podman("network", "create", name)
    return name


def ssh(
    keys: Keys, address: str, *command: str, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """ssh from this machine with the run's key and its pinned host key."""
    base = [
        "ssh",
        "-F",
        "none",
        *options,
        "-p",
        "222",
        "-i",
        str(keys.private),
        "-o",
        "IdentitiesOnly=yes",
    ]
    pinned = [
        "-o",
        f"UserKnownHostsFile={keys.folder}/known_hosts",
        "-o",
        "StrictHostKeyChecking=yes",
    ]
    target = ["-o", "BatchMode=yes", "-l", "root", address]
    return subprocess.run(
        [*base, *pinned, *target, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
