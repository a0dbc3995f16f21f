"""One changed byte is named, and a certificate that does not follow from its evidence is
refused.
"""

import json
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.bundle.pack import seal
from tests.unit.certificate.conftest import BUSBW, Site, command, judgement, run_of

needs_ssh_keygen = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed"
)
RUN = run_of(judgement(60.0))
LOW = [{**BUSBW, "limit": {"at_least": 99}}]
WAIVED = {"id": "BW", "name": "A", "reason": "b", "until": "2026-06-01"}
FILES = ("certificate.json", "certificate.html", "requirements.yaml", "evidence/1/run.json")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    for name in ("ours", "other"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True
        )
    return tmp_path


def _edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change certificate.json as seatrial would have written it."""
    file = folder / "certificate.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document, indent=1) + "\n")


@needs_ssh_keygen
@pytest.mark.parametrize("name", FILES)
def test_one_changed_byte_is_named(site: Site, keys: Path, name: str) -> None:
    assert site.certify([RUN], LOW, "--sign", keys / "ours")[0] == 1
    assert command("verify", site.certificate, "--key", keys / "ours.pub")[0] == 0
    content = bytearray((site.certificate / name).read_bytes())
    content[len(content) // 2] ^= 1
    (site.certificate / name).write_bytes(content)
    status, output = command("verify", site.certificate, "--key", keys / "ours.pub")
    assert (status, f"{name}: is not what it was" in output) == (1, True), output


@needs_ssh_keygen
def test_recomputed_checksums_without_the_signing_key_are_refused(site: Site, keys: Path) -> None:
    site.certify([RUN], LOW, "--sign", keys / "ours")
    file = site.certificate / "evidence/1/run.json"
    file.write_text(file.read_text().replace("60.0", "160.0"))
    seal(site.certificate, FILES, None)
    status, output = command("verify", site.certificate, "--key", keys / "ours.pub")
    assert (status, "SHA256SUMS: is not what was signed" in output) == (1, True)
    (site.certificate / "SHA256SUMS.sig").unlink()
    assert "is not signed" in command("verify", site.certificate, "--key", keys / "ours.pub")[1]
    seal(site.certificate, FILES, keys / "other")
    assert "is by another key" in command("verify", site.certificate, "--key", keys / "ours.pub")[1]


def _met(document: dict[str, Any]) -> None:
    document["verdict"] = "met"


def _measured(document: dict[str, Any]) -> None:
    document["requirements"][0]["measured"] = 120.0


def _limit(document: dict[str, Any]) -> None:
    document["requirements"][0]["limit"] = "at least 10"


def _dropped(document: dict[str, Any]) -> None:
    document["requirements"].clear()


def _another_time(document: dict[str, Any]) -> None:
    document["issued"] = "2026-04-01T00:00:00+00:00"  # the exception was valid then


def _before_the_run(document: dict[str, Any]) -> None:
    document["issued"] = "2020-01-01T00:00:00+00:00"


def _without_offset(document: dict[str, Any]) -> None:
    document["issued"] = "2027-01-01T00:00:00"


def _no_runs(document: dict[str, Any]) -> None:
    document["runs"] = 7


def _added(document: dict[str, Any]) -> None:
    document["requirements"][0]["approved"] = "yes"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (_met, "certificate.json: verdict does not follow from its evidence"),
        (_measured, "certificate.json: BW: measured does not follow from its evidence"),
        (_limit, "certificate.json: BW: limit does not follow from its evidence"),
        (_dropped, "certificate.json: requirements are not those of its requirements.yaml"),
        (_another_time, "certificate.json: verdict does not follow from its evidence"),
        (
            _before_the_run,
            "certificate.json: cannot be checked: RUN run-1: ended after the certificate's time",
        ),
        (_without_offset, "certificate.json: issued: must have an offset from UTC"),
        (_no_runs, "certificate.json: runs: must be a list of 1 to 100 runs"),
        (_added, "certificate.json: BW: approved does not follow from its evidence"),
        (dict.clear, "certificate.json: is no certificate of schema 1"),
    ],
)
def test_a_certificate_must_follow_from_its_evidence(
    site: Site, change: Callable[[dict[str, Any]], object], line: str
) -> None:
    site.certify([RUN], LOW, exceptions=[WAIVED])
    _edit(site.certificate, change)
    seal(site.certificate, FILES, None)  # as anybody can, without a key
    status, output = command("verify", site.certificate)
    assert (status, line in output) == (1, True), output


def test_verify_refuses_a_page_that_differs_from_certificate_json(site: Site) -> None:
    site.certify([RUN], LOW)
    page = site.certificate / "certificate.html"
    page.write_text(page.read_text().replace("60.0 GB/s", "99.9 GB/s"))
    seal(site.certificate, FILES, None)
    assert (
        "certificate.html: does not show what certificate.json says"
        in command("verify", site.certificate)[1]
    )


@pytest.mark.parametrize("kind", ["link", "added", "missing"])
def test_linked_added_and_missing_files_are_named(site: Site, kind: str) -> None:
    site.certify([RUN], [BUSBW])
    odd = site.certificate / "evidence" / "odd"
    if kind == "link":
        odd.symlink_to("/etc")
    elif kind == "added":
        odd.write_text("x")
    else:
        (site.certificate / "requirements.yaml").unlink()
    line = {
        "link": "evidence/odd: is no plain file",
        "added": "evidence/odd: was added",
        "missing": "requirements.yaml: is missing",
    }[kind]
    status, output = command("verify", site.certificate)
    assert (status, line in output) == (1, True), output


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "\x1b[2J\u202egnp.exe", '"><img src=x onerror=y>', "{{ 7 * 7 }}"],
)
def test_hostile_texts_are_shown_as_text(site: Site, text: str) -> None:
    run = run_of(judgement(40.0, text), run_id=text)
    waiver = {**WAIVED, "name": text, "reason": text}
    requirement = {**BUSBW, "text": text, "source": text, "conditions": {"suite": "quick"}}
    status, output = site.certify([run], [requirement], name=text, exceptions=[waiver])
    assert status in (1, 3)
    page = (site.certificate / "certificate.html").read_text()
    for shown in (output, page):
        assert shown.replace("\n", "").isprintable()
    assert "<script" not in page
    assert "<img" not in page
    assert command("verify", site.certificate)[0] == 0


def test_certificate_folder_is_readable_by_its_user_only(site: Site) -> None:
    site.certify([RUN], [BUSBW])
    for path in (site.certificate, *site.certificate.rglob("*")):
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path
    assert not [path for path in site.folder.iterdir() if path.name.startswith(".seatrial")]


def test_certificate_may_lie_in_a_sticky_folder_and_requirements_be_a_link(site: Site) -> None:
    shared = site.folder / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    assert site.certify([RUN], [BUSBW])[0] == 0
    link = site.folder / "link.yaml"
    link.symlink_to(site.folder / "given.yaml")
    words = ("--requirements", link, "--out", shared / "certificate")
    assert command("certify", site.folder / "given-0", *words)[0] == 0
    assert command("verify", shared / "certificate")[0] == 0


def test_evidence_larger_than_the_limit_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site.certify([RUN], [BUSBW])[0] == 0
    monkeypatch.setattr("seatrial.certificate.folder.MAX_EVIDENCE", 100)
    assert "all run.json together are larger than" in command("verify", site.certificate)[1]
    shutil.rmtree(site.certificate)
    status, output = site.certify([RUN], [BUSBW])
    assert (status, "all run.json together are larger than" in output) == (2, True)


def test_a_key_that_cannot_sign_leaves_nothing(site: Site) -> None:
    status, output = site.certify([RUN], [BUSBW], "--sign", site.folder / "none")
    assert (status, "is no file; make a key with" in output) == (2, True)
    assert not site.certificate.exists()
