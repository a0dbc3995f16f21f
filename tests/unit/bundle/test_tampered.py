"""Whatever somebody changes in a bundle is named."""

import gzip
import hashlib
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.bundle import MANIFEST, SIGNATURE
from seatrial.bundle.pack import read_manifest
from tests.unit.bundle.packed import TOP, Members, put, run, tampered, verify

if shutil.which("ssh-keygen") is None:
    pytest.skip("ssh-keygen is not installed", allow_module_level=True)


def _change_a_log(members: Members) -> None:
    put(members, "logs/all_reduce.log", members["logs/all_reduce.log"][1].replace(b"nccl", b"NCCL"))


def _change_the_verdict(members: Members) -> None:
    put(members, "run.json", members["run.json"][1].replace(b'"pass"', b'"fail"'))


def _change_file_and_manifest(members: Members) -> None:
    _change_the_verdict(members)
    old = read_manifest(members[MANIFEST][1].decode())["run.json"]
    new = hashlib.sha256(members["run.json"][1]).hexdigest()
    put(members, MANIFEST, members[MANIFEST][1].replace(old.encode(), new.encode()))


def _lead_out(members: Members) -> None:
    members["evil"] = (tarfile.TarInfo(f"{TOP}/../../evil"), b"x")


def _link_out(members: Members) -> None:
    link = tarfile.TarInfo(f"{TOP}/logs/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    members["logs/link"] = (link, b"")


def _twice(members: Members) -> None:
    members["again"] = (tarfile.TarInfo(f"{TOP}/run.json"), b"{}")


def _manifest_twice(members: Members) -> None:
    members["again"] = (tarfile.TarInfo(f"{TOP}/{MANIFEST}"), members[MANIFEST][1])


def _ahead(members: Members, name: str, kind: bytes = tarfile.REGTYPE) -> None:
    """A member before all others, the manifest too."""
    info = tarfile.TarInfo(name)
    info.type = kind
    rest = dict(members)
    members.clear()
    members.update({"ahead": (info, b""), **rest})


def _folder_behind(members: Members) -> None:
    """`tar xzf` would put it in the place of the file."""
    info = tarfile.TarInfo(f"{TOP}/run.json")
    info.type, info.mode = tarfile.DIRTYPE, 0o755
    members["again"] = (info, b"")


def _file_below_a_file(members: Members) -> None:
    members["again"] = (tarfile.TarInfo(f"{TOP}/run.json/inner"), b"x")


def _set_user_id(members: Members) -> None:
    info = tarfile.TarInfo(f"{TOP}/logs/run.log")
    info.mode = 0o4755
    members["odd"] = (info, b"x")


def _second_top(members: Members) -> None:
    info = tarfile.TarInfo("elsewhere")
    info.type, info.mode = tarfile.DIRTYPE, 0o755
    members["second"] = (info, b"")


def _moved_out(members: Members) -> None:
    members["run.json"][0].name = "run.json"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (_change_a_log, "logs/all_reduce.log: is not what it was"),
        (_change_the_verdict, "run.json: is not what it was"),
        (lambda members: members.pop("measurements.csv"), "measurements.csv: is missing"),
        (lambda members: put(members, "logs/extra.log", b"x"), "logs/extra.log: was added"),
        (_change_file_and_manifest, "SHA256SUMS: is not what was signed"),
        (lambda members: put(members, MANIFEST, b""), "SHA256SUMS: is not what was signed"),
        (
            lambda members: put(members, SIGNATURE, b"no signature"),
            "SHA256SUMS: is not what was signed",
        ),
        (lambda members: members.pop(SIGNATURE), "is not signed"),
        (_lead_out, "evil: leads out of the bundle"),
        (_link_out, "logs/link: is no plain file"),
        (_twice, "run.json: is there twice"),
        (_manifest_twice, "SHA256SUMS: is there twice"),
        (lambda members: _ahead(members, "extra/file"), "extra/file: was added"),
        (lambda members: _ahead(members, "../evil"), "../evil: leads out of the bundle"),
        (
            lambda members: _ahead(members, f"{TOP}/logs/pipe", tarfile.FIFOTYPE),
            "logs/pipe: is no plain file",
        ),
        (_moved_out, "run.json: was added"),
        (_folder_behind, "run.json: is there as a file and as a folder"),
        (_file_below_a_file, "run.json/inner: is there as a file and as a folder"),
        (_set_user_id, "logs/run.log: has mode 4755, which no file of a bundle has"),
        (_second_top, "elsewhere: was added"),
    ],
)
def test_verify_names_every_kind_of_change(
    bundle: Path, keys: Path, change: Callable[[Members], object], line: str
) -> None:
    status, output = verify(tampered(bundle, change), "--key", keys / "ours.pub")
    assert status == 1
    assert line in output


def test_file_name_in_a_bundle_cannot_forge_a_line_of_output(bundle: Path, keys: Path) -> None:
    fake = "../x\r\x1b[2Kok.tgz: 6 files are unchanged; signed by ED25519 key\n"
    evil = tampered(bundle, lambda members: _ahead(members, fake))
    message = (
        "../x [2Kok.tgz: 6 files are unchanged; signed by ED25519 key : leads out of the bundle"
    )
    assert verify(evil, "--key", keys / "ours.pub") == (
        1,
        f"{evil}: tampered with or damaged: {message}\n",
    )


def test_a_bundle_signed_by_another_is_refused(folder: Path, keys: Path, tmp_path: Path) -> None:
    run("bundle", folder, "--out", tmp_path / "b.tar.gz", "--sign", keys / "other")
    status, output = verify(tmp_path / "b.tar.gz", "--key", keys / "ours.pub")
    assert status == 1
    assert "SHA256SUMS.sig: is by another key: ED25519 key SHA256:" in output


def test_without_a_signature_a_changed_file_is_named_all_the_same(
    folder: Path, tmp_path: Path
) -> None:
    run("bundle", folder, "--out", tmp_path / "b.tar.gz")
    status, output = verify(tampered(tmp_path / "b.tar.gz", _change_a_log))
    assert (status, "logs/all_reduce.log: is not what it was" in output) == (1, True)


def test_data_after_the_end_of_the_archive_is_reported(bundle: Path, keys: Path) -> None:
    hidden = gzip.compress(b"hidden".ljust(10240, b"\0"))
    bundle.write_bytes(bundle.read_bytes() + hidden)
    assert verify(bundle, "--key", keys / "ours.pub") == (
        1,
        f"{bundle}: tampered with or damaged: something was added behind its end\n",
    )


@pytest.mark.parametrize("kept", [0.5, 0.9, 0.999])
def test_truncated_bundle_is_reported_as_damaged(bundle: Path, keys: Path, kept: float) -> None:
    content = bundle.read_bytes()
    bundle.write_bytes(content[: int(len(content) * kept)])
    status, output = verify(bundle, "--key", keys / "ours.pub")
    assert status == 1
    assert "cut or damaged" in output
