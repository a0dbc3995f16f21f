"""SSH signatures by OpenSSH's own ssh-keygen: made with any SSH key, checked by whoever has the public one."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from seatrial.bundle import MANIFEST, NAMESPACE, SIGNATURE
from seatrial.model.errors import InputError
from seatrial.text.lines import last_line

_TIMEOUT_S = 120  # somebody may have to type a passphrase, or to touch a key
_SIGNER = "signer"
_KEY = re.compile(r"with (\S+) key (\S+)")


@dataclass(frozen=True, slots=True)
class TrustedSigners:
    """Whom to believe: a public key, or a file of allowed signers as `man ssh-keygen` describes it."""

    key: Path | None = None
    allowed_signers: Path | None = None

    def __bool__(self) -> bool:
        return bool(self.key or self.allowed_signers)


NOBODY = TrustedSigners()


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """`by` is who signed, "" for nobody; `problem` says why the signature is none, "" where it is good."""

    by: str = ""
    problem: str = ""


def sign(manifest: Path, key: Path) -> Path:
    """The signature of `manifest`, in a file beside it. Raises InputError where the key cannot sign."""
    if not key.is_file():
        raise InputError(f"--sign {key}: is no file; make a key with: ssh-keygen -t ed25519 -f {key}")
    process = _ssh_keygen("sign", "-f", str(key), "-n", NAMESPACE, str(manifest))
    if process.returncode:
        raise InputError(f"--sign {key}: cannot sign: {_output_text(process.stderr)}; it must be a private SSH key")
    return manifest.with_name(SIGNATURE)


def check(manifest: bytes, signature: bytes | None, trusted: TrustedSigners) -> SignatureCheck:
    """Whether one of the trusted has signed `manifest`. Raises InputError where the keys are none."""
    allowed = _allowed_signers(trusted) if trusted else b""
    if signature is None:
        return SignatureCheck(problem="is not signed" if trusted else "")
    with tempfile.TemporaryDirectory(prefix="seatrial-verify-") as folder:
        sig, signers = Path(folder) / SIGNATURE, Path(folder) / "allowed_signers"
        sig.write_bytes(signature)
        signers.write_bytes(allowed)
        return _checked(manifest, str(sig), str(signers) if trusted else None)


def _checked(manifest: bytes, sig: str, signers: str | None) -> SignatureCheck:
    """The signature itself first, then whose it is."""
    process = _ssh_keygen("check-novalidate", "-n", NAMESPACE, "-s", sig, given=manifest)
    if process.returncode:
        return SignatureCheck(problem=f"{MANIFEST}: is not what was signed ({_output_text(process.stderr)})")
    match = _KEY.search(process.stdout.decode(errors="replace"))
    by = f"{match[1]} key {match[2]}" if match else "an unknown key"
    if signers is None:
        return SignatureCheck(by)
    who = _ssh_keygen("find-principals", "-s", sig, "-f", signers).stdout.decode(errors="replace").splitlines()
    for name in who:
        if not _ssh_keygen("verify", "-f", signers, "-I", name, "-n", NAMESPACE, "-s", sig, given=manifest).returncode:
            return SignatureCheck(by if name == _SIGNER else f"{name} with {by}")
    return SignatureCheck(problem=f"{SIGNATURE}: is by another key: {by}")


def _allowed_signers(trusted: TrustedSigners) -> bytes:
    """In ssh-keygen's own form. Raises InputError."""
    file = trusted.key or trusted.allowed_signers
    option = "--key" if trusted.key else "--allowed-signers"
    try:
        text = file.read_bytes() if file else b""
    except OSError as error:
        raise InputError(f"{option} {file}: cannot be read: {error.strerror}") from error
    if not trusted.key:
        return text
    if b"PRIVATE KEY" in text or _ssh_keygen(None, "-l", "-f", str(file)).returncode:
        raise InputError(f"--key {file}: is no public SSH key; legal: a file as ssh-keygen writes it to KEY.pub")
    return _SIGNER.encode() + b" " + text.strip().splitlines()[0] + b"\n"


def _ssh_keygen(action: str | None, *arguments: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    command = ["ssh-keygen", *(["-Y", action] if action else []), *arguments]
    try:
        return subprocess.run(command, input=given, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except FileNotFoundError as error:
        raise InputError("signatures need ssh-keygen: apt-get install openssh-client") from error
    except subprocess.TimeoutExpired as error:
        raise InputError(f"ssh-keygen did not answer within {_TIMEOUT_S} s; is a passphrase or a touch due?") from error


def _output_text(text: bytes) -> str:
    return last_line(text.decode(errors="replace")) or "ssh-keygen does not say why"
