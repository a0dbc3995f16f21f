"""Build a release from the last commit: wheel, sdist, SBOM, checksums, and a signature by an SSH
key.

    python -m scripts.release [--out DIR] [--sign KEY]      `make release KEY=~/.ssh/release`

The same commit makes the same wheel and sdist: they are built from `git archive`, with the commit's
time. The SBOM (CycloneDX) lists what pip installs with the wheel on that day. Who has the signer's
public key verifies it all:

    sha256sum -c SHA256SUMS
    ssh-keygen -Y verify -f allowed_signers -I signer -n seatrial-release \\
        -s SHA256SUMS.sig < SHA256SUMS
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from seatrial.bundle import MANIFEST
from seatrial.bundle.pack import sign
from seatrial.model.errors import InputError

ROOT = Path(__file__).parents[1]
NAMESPACE = "seatrial-release"  # of the signature
_BIN = Path(sys.executable).parent
# In an environment of its own: beside prefect, a package of it makes each import of prefect take
# twice as long
_SBOM_TOOL = "cyclonedx-bom>=7"


def main() -> None:
    parser = argparse.ArgumentParser(description="Build a release from the last commit.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder to write to")
    parser.add_argument("--sign", type=Path, metavar="KEY", help="private SSH key")
    options = parser.parse_args()
    try:
        written = release(options.out, options.sign)
    except (InputError, subprocess.CalledProcessError) as error:
        sys.exit(f"release: {error}")
    for path in written:
        print(path)
    if not options.sign:
        print("not signed: give --sign KEY")


def release(out: Path, key: Path | None) -> list[Path]:
    """Write the files of the release into `out`, and return them.

    Raises InputError, CalledProcessError.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    check_changelog(project["version"], (ROOT / "CHANGELOG.md").read_text())
    out.mkdir(parents=True, exist_ok=True)
    built = build(out)
    wheel = next(path for path in built if path.suffix == ".whl")
    files = [*built, write_sbom(wheel, out)]
    sums = out / MANIFEST
    sums.write_text("".join(f"{_sha256(path)}  {path.name}\n" for path in sorted(files)))
    signed = [sign(sums, key, NAMESPACE)] if key else []
    return [*files, sums, *signed]


def check_changelog(version: str, changelog: str) -> None:
    """Raise InputError unless the changelog has the version with a date."""
    if not re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d{{2}}-\d{{2}}$", changelog, re.MULTILINE
    ):
        raise InputError(f"CHANGELOG.md: has no heading `## [{version}] - YYYY-MM-DD`")


def build(out: Path) -> list[Path]:
    """Build wheel and sdist of the last commit into `out`."""
    with tempfile.TemporaryDirectory(prefix="seatrial-release-") as folder:
        source = Path(folder, "source")
        source.mkdir()
        archive = _run("git", "-C", str(ROOT), "archive", "HEAD")
        subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
        built = Path(folder, "built")
        _run(str(_BIN / "uv"), "build", "--quiet", "--out-dir", str(built), str(source))
        made = sorted(path for path in built.iterdir() if path.suffix in (".whl", ".gz"))
        return [Path(shutil.copy(path, out / path.name)) for path in made]


def write_sbom(wheel: Path, out: Path) -> Path:
    """Install the wheel into an environment of its own, and list what is in it."""
    sbom = out / f"{wheel.name.split('-py3')[0]}.cdx.json"
    with tempfile.TemporaryDirectory(prefix="seatrial-sbom-") as folder:
        python = Path(folder, "bin", "python")
        _run(str(_BIN / "uv"), "venv", "--quiet", "--python", sys.executable, folder)
        _run(str(_BIN / "uv"), "pip", "install", "--quiet", "--python", str(python), str(wheel))
        options = [
            "--pyproject",
            str(ROOT / "pyproject.toml"),
            "--output-reproducible",
            "--output-file",
            str(sbom),
        ]
        tool = [str(_BIN / "uv"), "tool", "run", "--quiet", "--from", _SBOM_TOOL, "cyclonedx-py"]
        _run(*tool, "environment", *options, str(python))
    return sbom


def _run(*argv: str) -> bytes:
    """Run a program with the time of the last commit as that of all files, and return what it
    prints.
    """
    time = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    commit_time = subprocess.run(time, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": commit_time}
    return subprocess.run(argv, stdout=subprocess.PIPE, env=environment, check=True).stdout


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    main()
