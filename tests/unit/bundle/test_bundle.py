"""Bundles are made and checked by the real ssh-keygen, and tampered with by the tools that anyone has."""

import gzip
import hashlib
import io
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seatrial.bundle import MANIFEST, SIGNATURE
from seatrial.bundle.manifest import read_manifest
from seatrial.cli import app
from tasks.record import record
from tests import samples

if shutil.which("ssh-keygen") is None:
    pytest.skip("ssh-keygen is not installed", allow_module_level=True)

Members = dict[str, tuple[tarfile.TarInfo, bytes]]
TOP = "seatrial-20260314-0200-h4x9t"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two key pairs, ours and another's."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name], check=True)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run, as a run leaves it."""
    folder = tmp_path_factory.mktemp("run")
    _leave_a_run(folder)
    return folder


def _leave_a_run(folder: Path) -> None:
    from seatrial.cluster import Cluster
    from seatrial.run import Run
    from seatrial.suite import load_suite

    cluster = Cluster.model_validate({"name": "local", "nodes": 4, "platform": {"kind": "local"}})
    record(samples.healthy_local(), Run("20260314-0200-h4x9t", cluster, load_suite("quick"), folder))
    (folder / "logs" / "nodes").mkdir(parents=True)
    (folder / "logs" / "all_reduce.log").write_bytes(b"# nccl-tests\n\xff not UTF-8\r\n")
    (folder / "logs" / "nodes" / "node-0.log").write_text("sshd\n")


@pytest.fixture
def bundle(folder: Path, keys: Path, tmp_path: Path) -> Path:
    """A signed bundle."""
    target = tmp_path / "bundle.tar.gz"
    assert _run("bundle", folder, "--out", target, "--sign", keys / "ours").exit_code == 0
    return target


def _run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def _verify(bundle: Path, *options: object) -> tuple[int, str]:
    """Exit status and what was said; bad input is what `main` makes of it."""
    result = _run("verify", bundle, *options)
    if result.exception and not isinstance(result.exception, SystemExit):
        return 2, str(result.exception)
    return result.exit_code, result.output


def _tampered(bundle: Path, change: Callable[[Members], object]) -> Path:
    """The same archive with other members."""
    with tarfile.open(bundle) as archive:
        members = {m.name.removeprefix(f"{TOP}/"): (m, archive.extractfile(m).read()) for m in archive}  # type: ignore[union-attr]
    change(members)
    target = bundle.with_name("tampered.tar.gz")
    with tarfile.open(target, "w:gz") as archive:
        for info, content in members.values():
            info.size = len(content) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(content))
    return target


def _put(members: Members, name: str, content: bytes) -> None:
    info = members[name][0] if name in members else tarfile.TarInfo(f"{TOP}/{name}")
    members[name] = (info, content)


def test_what_is_handed_over_can_be_verified_by_whoever_has_the_key(bundle: Path, keys: Path) -> None:
    status, said = _verify(bundle, "--key", keys / "ours.pub")
    assert status == 0
    assert "6 files are as they were; signed by ED25519 key SHA256:" in said


def test_no_seatrial_is_needed_to_verify_it(bundle: Path, keys: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "xzf", bundle, "-C", tmp_path], check=True)
    shutil.copy(keys / "ours.pub", tmp_path / TOP / "signer.pub")
    explained = (tmp_path / TOP / "VERIFY.txt").read_text()
    commands = "\n".join(line for line in explained.splitlines() if line.startswith("    "))
    said = subprocess.run(["sh", "-euc", commands], cwd=tmp_path / TOP, capture_output=True, text=True, check=True)
    assert said.stdout.count(": OK") == 6
    assert 'Good "seatrial-bundle" signature for signer' in said.stdout


def test_raw_logs_stay_as_they_are_and_the_same_run_makes_the_same_bytes(
    bundle: Path, folder: Path, keys: Path
) -> None:
    with tarfile.open(bundle) as archive:
        log = archive.extractfile(f"{TOP}/logs/all_reduce.log")
        assert log
        assert log.read() == (folder / "logs" / "all_reduce.log").read_bytes()
    again = bundle.with_name("again.tar.gz")
    _run("bundle", folder, "--out", again, "--sign", keys / "ours")
    assert again.read_bytes() == bundle.read_bytes()


def test_secrets_do_not_leave_in_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_TOKEN", "s3cret-of-the-site")
    _leave_a_run(tmp_path / "run")
    (tmp_path / "run" / "logs" / "run.log").write_text("pulled with s3cret-of-the-site\n")
    (tmp_path / "run" / "logs" / "passwd").symlink_to("/etc/passwd")
    _run("bundle", tmp_path / "run", "--out", tmp_path / "b.tar.gz")
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        log = archive.extractfile(f"{TOP}/logs/run.log")
        assert log and log.read() == b"pulled with ***\n"
        assert f"{TOP}/logs/passwd" not in archive.getnames()


def test_without_a_key_it_says_who_signed_and_that_this_may_be_anybody(bundle: Path, folder: Path) -> None:
    status, said = _verify(bundle)
    assert (status, "may be anybody's" in said) == (0, True)
    unsigned = bundle.with_name("unsigned.tar.gz")
    _run("bundle", folder, "--out", unsigned)
    status, said = _verify(unsigned)
    assert (status, "nobody has signed them" in said) == (0, True)


def test_allowed_signers_have_names(bundle: Path, keys: Path, tmp_path: Path) -> None:
    signers = tmp_path / "signers"
    signers.write_text(f"acceptance@example.com {(keys / 'ours.pub').read_text()}")
    assert "signed by acceptance@example.com with ED25519 key" in _verify(bundle, "--allowed-signers", signers)[1]
    signers.write_text(f'acceptance@example.com valid-before="20200101" {(keys / "ours.pub").read_text()}')
    assert _verify(bundle, "--allowed-signers", signers)[0] == 1


def _change_a_log(members: Members) -> None:
    _put(members, "logs/all_reduce.log", members["logs/all_reduce.log"][1].replace(b"nccl", b"NCCL"))


def _change_the_verdict(members: Members) -> None:
    _put(members, "run.json", members["run.json"][1].replace(b'"pass"', b'"fail"'))


def _change_file_and_manifest(members: Members) -> None:
    _change_the_verdict(members)
    old = read_manifest(members[MANIFEST][1].decode())["run.json"]
    new = hashlib.sha256(members["run.json"][1]).hexdigest()
    _put(members, MANIFEST, members[MANIFEST][1].replace(old.encode(), new.encode()))


def _lead_out(members: Members) -> None:
    members["evil"] = (tarfile.TarInfo(f"{TOP}/../../evil"), b"x")


def _link_out(members: Members) -> None:
    link = tarfile.TarInfo(f"{TOP}/logs/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    members["logs/link"] = (link, b"")


def _twice(members: Members) -> None:
    members["again"] = (tarfile.TarInfo(f"{TOP}/run.json"), b"{}")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_change_a_log, "logs/all_reduce.log: is not what it was"),
        (_change_the_verdict, "run.json: is not what it was"),
        (lambda members: members.pop("measurements.csv"), "measurements.csv: is missing"),
        (lambda members: _put(members, "logs/extra.log", b"x"), "logs/extra.log: was added"),
        (_change_file_and_manifest, "SHA256SUMS: is not what was signed"),
        (lambda members: _put(members, MANIFEST, b""), "SHA256SUMS: is not what was signed"),
        (lambda members: _put(members, SIGNATURE, b"no signature"), "SHA256SUMS: is not what was signed"),
        (lambda members: members.pop(SIGNATURE), "is not signed"),
        (_lead_out, "evil: leads out of the bundle"),
        (_link_out, "logs/link: is no plain file"),
        (_twice, "run.json: is there twice"),
    ],
)
def test_whatever_is_changed_is_named(bundle: Path, keys: Path, change: Callable[[Members], object], said: str) -> None:
    status, told = _verify(_tampered(bundle, change), "--key", keys / "ours.pub")
    assert status == 1
    assert said in told


def test_a_bundle_signed_by_another_is_refused(folder: Path, keys: Path, tmp_path: Path) -> None:
    _run("bundle", folder, "--out", tmp_path / "b.tar.gz", "--sign", keys / "other")
    status, said = _verify(tmp_path / "b.tar.gz", "--key", keys / "ours.pub")
    assert status == 1
    assert "SHA256SUMS.sig: is by another key: ED25519 key SHA256:" in said


def test_without_a_signature_a_changed_file_is_named_all_the_same(folder: Path, tmp_path: Path) -> None:
    _run("bundle", folder, "--out", tmp_path / "b.tar.gz")
    status, said = _verify(_tampered(tmp_path / "b.tar.gz", _change_a_log))
    assert (status, "logs/all_reduce.log: is not what it was" in said) == (1, True)


def test_what_hides_behind_the_end_is_found(bundle: Path, keys: Path) -> None:
    hidden = gzip.compress(b"hidden".ljust(10240, b"\0"))
    bundle.write_bytes(bundle.read_bytes() + hidden)
    assert _verify(bundle, "--key", keys / "ours.pub") == (
        1,
        f"{bundle}: tampered with or damaged: something was added behind its end\n",
    )


@pytest.mark.parametrize("kept", [0.5, 0.9, 0.999])
def test_a_bundle_that_is_cut_is_not_intact(bundle: Path, keys: Path, kept: float) -> None:
    content = bundle.read_bytes()
    bundle.write_bytes(content[: int(len(content) * kept)])
    status, said = _verify(bundle, "--key", keys / "ours.pub")
    assert status == 1
    assert "cut or damaged" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is no .tar.gz"), (b"text", "is no .tar.gz"), (None, "cannot be read: No such file")],
)
def test_what_is_no_bundle_is_bad_input(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "b.tar.gz"
    if content is not None:
        file.write_bytes(content)
    status, told = _verify(file)
    assert (status, said in told) == (2, True)


def test_an_archive_of_something_else_and_keys_that_are_none_are_bad_input(bundle: Path, keys: Path) -> None:
    other = _tampered(bundle, lambda members: members.pop(MANIFEST))
    assert _verify(other) == (2, f"{other}: holds no SHA256SUMS, so it is no bundle of `seatrial bundle`")
    for key in (keys / "ours", bundle, keys / "nowhere"):
        status, said = _verify(bundle, "--key", key)
        assert status == 2
        assert str(key) in said


@pytest.mark.parametrize("key", ["nowhere", "ours.pub.bak"])
def test_a_key_that_cannot_sign_is_bad_input_and_leaves_no_bundle(
    folder: Path, keys: Path, tmp_path: Path, key: str
) -> None:
    (keys / "ours.pub.bak").write_text("no key")
    result = _run("bundle", folder, "--out", tmp_path / "b.tar.gz", "--sign", keys / key)
    assert f"--sign {keys / key}: " in str(result.exception)
    assert not (tmp_path / "b.tar.gz").exists()
