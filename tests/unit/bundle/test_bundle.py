"""Bundles are made and checked by the real ssh-keygen, and tampered with by the tools that anyone
has.
"""

import errno
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.bundle import MANIFEST
from seatrial.config.run import set_aside
from seatrial.system.private import read_opener
from tests.unit.bundle.packed import TOP, leave_a_run, put, run, tampered, verify

if shutil.which("ssh-keygen") is None:
    pytest.skip("ssh-keygen is not installed", allow_module_level=True)


def test_signed_bundle_verifies_with_the_public_key(bundle: Path, keys: Path) -> None:
    status, output = verify(bundle, "--key", keys / "ours.pub")
    assert status == 0
    assert "6 files are unchanged; signed by ED25519 key SHA256:" in output


def test_bundle_and_verify_count_the_same_files(bundle: Path, folder: Path, keys: Path) -> None:
    packed = run("bundle", folder, "--out", bundle, "--sign", keys / "ours").output
    assert packed == f"{bundle}: 6 files, signed\n"
    assert verify(bundle)[1].startswith(f"{bundle}: 6 files are unchanged")


def test_bundle_and_verify_as_json(bundle: Path, folder: Path, keys: Path) -> None:
    document = json.loads(
        run("bundle", folder, "--out", bundle, "--sign", keys / "ours", "--json").output
    )
    assert (len(document["files"]), document["signed"], document["bundle"]) == (
        6,
        True,
        str(bundle),
    )
    for options, trusted in (((), False), (("--key", keys / "ours.pub"), True)):
        verified = json.loads(verify(bundle, "--json", *options)[1])
        assert (verified["files"], verified["problem"], verified["trusted"]) == (6, "", trusted)
    changed = tampered(bundle, lambda members: put(members, "run.json", b"{}"))
    status, output = verify(changed, "--json")
    assert (status, "run.json" in json.loads(output)["problem"]) == (1, True)


@pytest.mark.parametrize("packed", [TOP, "."])
@pytest.mark.parametrize(("changed", "status"), [(False, 0), (True, 1)])
def test_a_bundle_repacked_by_tar_verifies(
    bundle: Path, keys: Path, tmp_path: Path, packed: str, changed: bool, status: int
) -> None:
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    subprocess.run(["tar", "xzf", bundle, "-C", unpacked], check=True)
    if changed:
        (unpacked / TOP / "run.json").write_text("{}")
    again = tmp_path / "again.tar.gz"
    subprocess.run(["tar", "czf", again, "-C", unpacked, packed], check=True)
    message = (
        "run.json: is not what it was"
        if changed
        else "6 files are unchanged; signed by ED25519 key"
    )
    outcome = verify(again, "--key", keys / "ours.pub")
    assert (outcome[0], message in outcome[1]) == (status, True), outcome


def test_commands_in_verify_txt_verify_a_bundle_without_seatrial(
    bundle: Path, keys: Path, tmp_path: Path
) -> None:
    subprocess.run(["tar", "xzf", bundle, "-C", tmp_path], check=True)
    shutil.copy(keys / "ours.pub", tmp_path / TOP / "signer.pub")
    explained = (tmp_path / TOP / "VERIFY.txt").read_text()
    commands = "\n".join(line for line in explained.splitlines() if line.startswith("    "))
    completed = subprocess.run(
        ["sh", "-euc", commands], cwd=tmp_path / TOP, capture_output=True, text=True, check=True
    )
    assert completed.stdout.count(": OK") == 6
    assert 'Good "seatrial-bundle" signature for signer' in completed.stdout


def test_raw_logs_stay_as_they_are_and_the_same_run_makes_the_same_bytes(
    bundle: Path, folder: Path, keys: Path
) -> None:
    with tarfile.open(bundle) as archive:
        log = archive.extractfile(f"{TOP}/logs/all_reduce.log")
        assert log
        assert log.read() == (folder / "logs" / "all_reduce.log").read_bytes()
    again = bundle.with_name("again.tar.gz")
    run("bundle", folder, "--out", again, "--sign", keys / "ours")
    assert again.read_bytes() == bundle.read_bytes()


def test_secrets_do_not_leave_in_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_TOKEN", "s3cret-of-the-site")
    leave_a_run(tmp_path / "run")
    (tmp_path / "run" / "logs" / "run.log").write_text("pulled with s3cret-of-the-site\n")
    (tmp_path / "run" / "logs" / "passwd").symlink_to("/etc/passwd")
    run("bundle", tmp_path / "run", "--out", tmp_path / "b.tar.gz")
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        log = archive.extractfile(f"{TOP}/logs/run.log")
        assert log and log.read() == b"pulled with ***\n"
        assert f"{TOP}/logs/passwd" not in archive.getnames()


def test_bundle_leaves_out_files_of_an_earlier_run_in_the_same_folder(tmp_path: Path) -> None:
    """Even if the clock was set back between the two runs."""
    leave_a_run(tmp_path / "run")
    (tmp_path / "run" / "logs" / "all_reduce-again-1.log").write_text("of another night")
    set_aside(tmp_path / "run")
    leave_a_run(tmp_path / "run")
    os.utime(tmp_path / "run" / "logs" / "all_reduce.log", (0, 0))
    run("bundle", tmp_path / "run", "--out", tmp_path / "b.tar.gz")
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        assert f"{TOP}/logs/all_reduce.log" in archive.getnames()
        assert not [name for name in archive.getnames() if "again" in name]


def test_a_log_that_cannot_be_read_is_named_and_not_left_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = {str(folder / "logs" / "nodes"), str(folder / "logs" / "all_reduce.log")}

    def unless_closed(opener: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Any, *flags: Any) -> Any:
            if str(path) in closed:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return opener(path, *flags)

        return opened

    monkeypatch.setattr("os.scandir", unless_closed(os.scandir))
    monkeypatch.setattr("seatrial.bundle.pack.read_opener", unless_closed(read_opener))
    target = tmp_path / "closed.tar.gz"
    for name in ("nodes", "all_reduce.log"):
        said = run("bundle", folder, "--out", target).exception
        path = folder / "logs" / name
        assert (str(said), target.exists()) == (f"{path}: cannot be read: Permission denied", False)
        closed.remove(str(path))


def test_verify_without_a_key_says_that_the_signer_is_not_verified(
    bundle: Path, folder: Path
) -> None:
    status, output = verify(bundle)
    assert (status, "which is not verified" in output) == (0, True)
    unsigned = bundle.with_name("unsigned.tar.gz")
    run("bundle", folder, "--out", unsigned)
    status, output = verify(unsigned)
    assert (status, "not signed, so their origin is not known" in output) == (0, True)


def test_verify_names_the_allowed_signer_and_refuses_an_expired_one(
    bundle: Path, keys: Path, tmp_path: Path
) -> None:
    signers = tmp_path / "signers"
    signers.write_text(f"acceptance@example.com {(keys / 'ours.pub').read_text()}")
    assert (
        "signed by acceptance@example.com with ED25519 key"
        in verify(bundle, "--allowed-signers", signers)[1]
    )
    signers.write_text(
        f'acceptance@example.com valid-before="20200101" {(keys / "ours.pub").read_text()}'
    )
    assert verify(bundle, "--allowed-signers", signers)[0] == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is no .tar.gz"), (b"text", "is no .tar.gz"), (None, "cannot be read: No such file")],
)
def test_a_file_that_is_no_bundle_is_bad_input(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "b.tar.gz"
    if content is not None:
        file.write_bytes(content)
    status, output = verify(file)
    assert (status, message in output) == (2, True)


def test_foreign_archive_and_invalid_keys_are_bad_input(bundle: Path, keys: Path) -> None:
    other = tampered(bundle, lambda members: members.pop(MANIFEST))
    assert verify(other) == (
        2,
        f"{other}: holds no SHA256SUMS, so it is no bundle of `seatrial bundle`",
    )
    for key in (keys / "ours", bundle, keys / "nowhere"):
        status, output = verify(bundle, "--key", key)
        assert status == 2
        assert str(key) in output


@pytest.mark.parametrize("key", ["nowhere", "ours.pub.bak"])
def test_a_key_that_cannot_sign_is_bad_input_and_leaves_no_bundle(
    folder: Path, keys: Path, tmp_path: Path, key: str
) -> None:
    (keys / "ours.pub.bak").write_text("no key")
    result = run("bundle", folder, "--out", tmp_path / "b.tar.gz", "--sign", keys / key)
    assert f"--sign {keys / key}: " in str(result.exception)
    assert not (tmp_path / "b.tar.gz").exists()
