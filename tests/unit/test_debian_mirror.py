"""images/cpu/base/debian-mirror: where this machine's own apt sources have Debian, in both formats
that apt reads.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.images.lane import DEBIAN_MIRROR

pytestmark = pytest.mark.skipif(
    shutil.which("apt-get") is None, reason="apt's sources are a Debian machine's"
)

ONE_LINE = """\
# deb http://commented.example.com/debian bookworm main
deb cdrom:[Debian]/ bookworm main
deb [arch=amd64] https://vendor.example.com/apt nodistro main
deb [trusted=yes] http://mirror.example.com/debian/ bookworm main contrib
deb http://second.example.com/debian bookworm main
deb http://mirror.example.com/security bookworm-security main
"""
DEB822 = """\
Types: deb deb-src
URIs: http://mirror.example.com/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example.com/security/
Suites: bookworm-security
Components: main
"""


def debian_mirror(suite: str, folder: Path, **sources: str) -> subprocess.CompletedProcess[str]:
    """Run with apt reading nothing but `sources`: `one_line` is its sources.list, `deb822` a
    .sources file.
    """
    parts = folder / "sources.list.d"
    parts.mkdir()
    (folder / "sources.list").write_text(sources.get("one_line", ""))
    (parts / "debian.sources").write_text(sources.get("deb822", ""))
    settings = {
        "Etc::sourcelist": folder / "sources.list",
        "Etc::sourceparts": parts,
        "State::lists": folder,
    }
    config = folder / "apt.conf"
    config.write_text("".join(f'Dir::{name} "{path}";\n' for name, path in settings.items()))
    return subprocess.run(
        [str(DEBIAN_MIRROR), suite],
        env=os.environ | {"APT_CONFIG": str(config)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "sources", [{"one_line": ONE_LINE}, {"deb822": DEB822}], ids=["one-line", "deb822"]
)
@pytest.mark.parametrize(
    ("suite", "uri"),
    [
        ("bookworm", "http://mirror.example.com/debian"),
        ("bookworm-security", "http://mirror.example.com/security"),
    ],
)
def test_debian_mirror_is_read_from_the_apt_sources(
    tmp_path: Path, sources: dict[str, str], suite: str, uri: str
) -> None:
    done = debian_mirror(suite, tmp_path, **sources)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{uri}\n", "")


def test_a_suite_that_no_source_has_is_named(tmp_path: Path) -> None:
    done = debian_mirror("trixie", tmp_path, one_line=ONE_LINE)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "debian-mirror: the apt sources of this machine have no suite trixie of Debian; "
        "name a mirror\n"
    )


def test_mirror_with_a_login_is_refused_without_showing_the_password(tmp_path: Path) -> None:
    done = debian_mirror(
        "bookworm", tmp_path, one_line="deb http://me:hunter2@mirror.example.com/d bookworm main\n"
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "holds a login" in done.stderr
    assert "hunter2" not in done.stderr
