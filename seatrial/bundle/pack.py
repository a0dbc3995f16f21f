"""Pack a run into a signed bundle. The same files make the same bytes."""

import gzip
import hashlib
import io
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.bundle import HOW_TO, MANIFEST, NAMESPACE, SIGNATURE
from seatrial.config.run import RESULT, log_files
from seatrial.model.errors import InputError, os_errors_named
from seatrial.model.result import RunResult
from seatrial.system.private import atomic_write, read_opener
from seatrial.text.lines import last_line
from seatrial.text.redact import Secrets

_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_TIMEOUT_S = 120  # somebody may have to type a passphrase, or to touch a key
_SIGNER = "signer"
_KEY = re.compile(r"with (\S+) key (\S+)")
_EXPLAINED = f"""\
This is run {{run_id}} of {{cluster}}. Its report is report.html; logs/ is what every command printed.

To verify that the files are what they were, in this folder:

    sha256sum -c {MANIFEST}

If it is signed ({SIGNATURE}), and signer.pub is the public key that you have from the signer by another way:

    echo "signer $(cat signer.pub)" > allowed_signers
    ssh-keygen -Y verify -f allowed_signers -I signer -n {NAMESPACE} -s {SIGNATURE} < {MANIFEST}

The same in one step, before it is unpacked:  seatrial verify BUNDLE --key signer.pub
"""


def read_manifest(text: str) -> dict[str, str]:
    """Parse a manifest into digests by name. Raises ValueError naming the bad line."""
    digests: dict[str, str] = {}
    # Splits at "\n" alone, without a list of all lines
    lines = (line.removesuffix("\n") for line in io.StringIO(text))
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match and match[2] not in digests:
            digests[match[2]] = match[1]
        elif line:
            raise ValueError(f"line {number} is no checksum, or of a file that has one already")
    return digests


def first_difference(listed: Mapping[str, str], digests: Mapping[str, str]) -> str:
    """Return the first file that is missing, changed or added; "" if there is none."""
    for name, digest in listed.items():
        if name not in digests:
            return f"{name}: is missing"
        if digests[name] != digest:
            return f"{name}: is not what it was"
    added = [name for name in digests if name not in listed]
    return f"{added[0]}: was added" if added else ""


@dataclass(frozen=True, slots=True)
class TrustedSigners:
    """A public key, or a file of allowed signers as `man ssh-keygen` describes it."""

    key: Path | None = None
    allowed_signers: Path | None = None

    def __bool__(self) -> bool:
        return bool(self.key or self.allowed_signers)


NOBODY = TrustedSigners()


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """`by` is the signer, "" without a signature; `problem` says why it is invalid, "" if it is
    valid.
    """

    by: str = ""
    problem: str = ""


def sign(manifest: Path, key: Path, namespace: str = NAMESPACE) -> Path:
    """Sign `manifest` into a file beside it, in place of an earlier one.

    Raises InputError if the key cannot sign.
    """
    if not key.is_file():
        raise InputError(
            f"--sign {key}: is no file; make a key with: ssh-keygen -t ed25519 -f {key}"
        )
    # ssh-keygen would ask whether to overwrite it
    manifest.with_name(SIGNATURE).unlink(missing_ok=True)
    process = _ssh_keygen("sign", "-f", str(key), "-n", namespace, str(manifest))
    if process.returncode:
        raise InputError(
            f"--sign {key}: cannot sign: {_output_text(process.stderr)}; it must be a "
            "private SSH key"
        )
    return manifest.with_name(SIGNATURE)


def check(manifest: bytes, signature: bytes | None, trusted: TrustedSigners) -> SignatureCheck:
    """Check the signature of `manifest` against the trusted signers.

    Raises InputError for invalid keys.
    """
    allowed = _allowed_signers(trusted) if trusted else b""
    if signature is None:
        return SignatureCheck(problem="is not signed" if trusted else "")
    with tempfile.TemporaryDirectory(prefix="seatrial-verify-") as folder:
        sig = Path(folder) / SIGNATURE
        signers = Path(folder) / "allowed_signers"
        sig.write_bytes(signature)
        signers.write_bytes(allowed)
        return _checked(manifest, str(sig), str(signers) if trusted else None)


def _checked(manifest: bytes, sig: str, signers: str | None) -> SignatureCheck:
    """Check the signature itself, then its signer."""
    process = _ssh_keygen("check-novalidate", "-n", NAMESPACE, "-s", sig, stdin=manifest)
    if process.returncode:
        return SignatureCheck(
            problem=f"{MANIFEST}: is not what was signed ({_output_text(process.stderr)})"
        )
    match = _KEY.search(process.stdout.decode(errors="replace"))
    by = f"{match[1]} key {match[2]}" if match else "an unknown key"
    if signers is None:
        return SignatureCheck(by)
    who = (
        _ssh_keygen("find-principals", "-s", sig, "-f", signers)
        .stdout.decode(errors="replace")
        .splitlines()
    )
    for name in who:
        if not _ssh_keygen(
            "verify", "-f", signers, "-I", name, "-n", NAMESPACE, "-s", sig, stdin=manifest
        ).returncode:
            return SignatureCheck(by if name == _SIGNER else f"{name} with {by}")
    return SignatureCheck(problem=f"{SIGNATURE}: is by another key: {by}")


def _allowed_signers(trusted: TrustedSigners) -> bytes:
    """Return the trusted signers in ssh-keygen's format. Raises InputError."""
    file = trusted.key or trusted.allowed_signers
    option = "--key" if trusted.key else "--allowed-signers"
    with os_errors_named(f"{option} {file}: cannot be read"):
        text = file.read_bytes() if file else b""
    if not trusted.key:
        return text
    if b"PRIVATE KEY" in text or _ssh_keygen(None, "-l", "-f", str(file)).returncode:
        raise InputError(
            f"--key {file}: is no public SSH key; legal: a file as ssh-keygen writes it to KEY.pub"
        )
    return _SIGNER.encode() + b" " + text.strip().splitlines()[0] + b"\n"


def _ssh_keygen(
    action: str | None, *arguments: str, stdin: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    command = ["ssh-keygen", *(["-Y", action] if action else []), *arguments]
    try:
        return subprocess.run(
            command, input=stdin, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        raise InputError("signatures need ssh-keygen: apt-get install openssh-client") from error
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"ssh-keygen did not answer within {_TIMEOUT_S} s; is a passphrase or a touch due?"
        ) from error


def _output_text(text: bytes) -> str:
    return last_line(text.decode(errors="replace")) or "ssh-keygen does not say why"


def pack(result: RunResult, folder: Path, target: Path, key: Path | None = None) -> list[str]:
    """Write the bundle of the run in `folder` to `target`, signed with `key` if given; return the
    names of its files.

    Secrets are removed, as in uploads. Raises InputError.
    """
    sources = _sources(folder)
    secrets = Secrets.of(os.environ)
    with (
        os_errors_named(f"{target}: cannot be written"),
        tempfile.TemporaryDirectory(prefix="seatrial-bundle-") as staging,
    ):
        staged = {
            name: stage(path, Path(staging) / name, secrets) for name, path in sources.items()
        }
        explained = Path(staging) / HOW_TO
        explained.write_text(
            _EXPLAINED.format(run_id=result.run_id, cluster=result.cluster), encoding="utf-8"
        )
        staged[HOW_TO] = explained
        names = [*seal(Path(staging), staged, key), *sorted(staged)]
        _write(
            target,
            f"seatrial-{result.run_id}",
            Path(staging),
            names,
            int(result.finished.timestamp()),
        )
    return sorted(staged)


def seal(folder: Path, names: Iterable[str], key: Path | None) -> list[str]:
    """Write the manifest of the files in `folder`, signed with `key` if given; return the names of
    what was written.

    Raises InputError if the key cannot sign.
    """
    manifest = folder / MANIFEST
    lines = [f"{_digest(folder / name)}  {name}\n" for name in sorted(names)]
    manifest.write_text("".join(lines), encoding="utf-8")
    return [MANIFEST] if key is None else [MANIFEST, sign(manifest, key).name]


def _sources(folder: Path) -> dict[str, Path]:
    """List the files to pack by their name in the bundle, without links."""
    result = (
        path for name in RESULT if (path := folder / name).is_file() and not path.is_symlink()
    )
    files = {path.relative_to(folder).as_posix(): path for path in (*result, *log_files(folder))}
    for name in files:
        if not name.isprintable() or "\\" in name:  # sha256sum would escape it
            raise InputError(
                f"{folder}: {name!r}: a bundle cannot hold such a name; rename the file"
            )
    return files


def stage(source: Path, target: Path, secrets: Secrets) -> Path:
    """Copy a file without secrets; return the copy.

    Raises InputError for a source that cannot be read, and OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with os_errors_named(f"{source}: cannot be read"):
        lines = open(  # noqa: SIM115
            source, encoding="utf-8", errors="surrogateescape", newline="", opener=read_opener
        )
    with (
        lines,
        target.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        file.writelines(secrets.out_of(lines))
    return target


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(target: Path, top: str, staging: Path, names: Sequence[str], mtime: int) -> None:
    """Write the archive atomically."""
    with (
        atomic_write(target) as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in names:
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = (staging / name).stat().st_size
            member.mtime = mtime
            member.mode = 0o644
            with (staging / name).open("rb") as content:
                archive.addfile(member, content)
