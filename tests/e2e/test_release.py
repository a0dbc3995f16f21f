"""A release of the last commit: the same bytes each time, checksums, an SBOM, and a signature that
anyone verifies.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.release import NAMESPACE, ROOT, build, check_changelog
from seatrial.model.errors import InputError


def test_a_release_is_reproducible_and_verifies(tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    out = tmp_path / "dist"
    command = [sys.executable, "-m", "scripts.release", "--out", str(out), "--sign", str(key)]
    subprocess.run(command, cwd=ROOT, check=True)
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=out, check=True)
    signers = tmp_path / "allowed_signers"
    signers.write_text(f"signer {key.with_suffix('.pub').read_text()}")
    verify = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", "signer", "-n", NAMESPACE]
    with (out / "SHA256SUMS").open() as sums:
        subprocess.run([*verify, "-s", str(out / "SHA256SUMS.sig")], stdin=sums, check=True)
    (sbom,) = out.glob("*.cdx.json")
    document = json.loads(sbom.read_text())
    assert document["bomFormat"] == "CycloneDX"
    assert document["metadata"]["component"]["name"] == "seatrial"
    listed = {component["name"] for component in document["components"]}
    assert {"prefect", "pydantic", "click"} <= listed
    assert not {"pytest", "ruff"} & listed

    again = tmp_path / "again"
    again.mkdir()
    for file in build(again):
        assert file.read_bytes() == (out / file.name).read_bytes(), file.name


def test_a_version_without_a_date_in_the_changelog_is_refused() -> None:
    check_changelog("0.1.0", "# Changelog\n\n## [0.1.0] - 2026-11-27\n")
    with pytest.raises(InputError, match=r"has no heading `## \[0.1.1\] - YYYY-MM-DD`"):
        check_changelog("0.1.1", "## [0.1.1]\n\n## [0.1.0] - 2026-11-27\n")
