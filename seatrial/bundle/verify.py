"""Verify a bundle without unpacking it: nothing that it holds is written anywhere."""

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from seatrial.bundle import MANIFEST, SIGNATURE
from seatrial.bundle.bounded import (
    CHUNK,
    MAX_FILES,
    MAX_MANIFEST,
    MAX_NAME,
    MAX_SIGNATURE,
    BoundedStream,
    OutOfBoundsError,
)
from seatrial.bundle.manifest import first_difference, read_manifest
from seatrial.bundle.signature import NOBODY, SignatureCheck, TrustedSigners, check
from seatrial.model.errors import InputError

_IN_MEMORY = {MANIFEST: MAX_MANIFEST, SIGNATURE: MAX_SIGNATURE}  # bytes
# RecursionError: headers of headers of headers; ValueError: numbers that are none
_DAMAGE = (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Verified:
    """`problem` names the first thing that is not as it was, "" where all is; `by` is who signed, "" for nobody."""

    files: int
    by: str = ""
    problem: str = ""


@dataclass(slots=True)
class _Content:
    """What an archive holds: digests by path; `top` is the manifest's folder, `problem` the first oddity."""

    top: str = ""
    digests: dict[str, str] = field(default_factory=dict)
    small: dict[str, bytes] = field(default_factory=dict)
    problem: str = ""


def verify(bundle: Path, trusted: TrustedSigners = NOBODY) -> Verified:
    """Hold every file against the manifest, and the manifest against the signature.

    Raises InputError for what is no bundle at all, and for keys that are none.
    """
    content = _read(bundle)
    if MANIFEST not in content.small:
        detail = f" ({content.problem})" if content.problem else ""
        raise InputError(f"{bundle}: holds no {MANIFEST}, so it is no bundle of `seatrial bundle`{detail}")
    signed = check(content.small[MANIFEST], content.small.get(SIGNATURE), trusted)
    return Verified(len(content.digests), signed.by, _problem(content, signed))


def _problem(content: _Content, signed: SignatureCheck) -> str:
    if signed.problem or content.problem:
        return signed.problem or content.problem
    try:
        listed = read_manifest(content.small[MANIFEST].decode("utf-8", "surrogateescape"))
    except ValueError as error:
        return f"{MANIFEST}: {error}"
    return _foreign(content) or first_difference(listed, _inside(content))


def _foreign(content: _Content) -> str:
    """The first file that lies beside the bundle's own folder."""
    beside = [path for path in content.digests if not path.startswith(f"{content.top}/")]
    return f"{beside[0]}: was added" if beside else ""


def _inside(content: _Content) -> dict[str, str]:
    """Digests by name in the bundle's own folder."""
    return {path.removeprefix(f"{content.top}/"): digest for path, digest in content.digests.items()}


def _read(bundle: Path) -> _Content:
    """Everything in the archive, as far as it can be read."""
    content = _Content()
    with _opened(bundle) as (archive, stream):
        try:
            while member := archive.next():
                vars(archive)["members"].clear()  # tarfile keeps them all, and has no public way to forget them
                odd = _take(archive, member, content)  # of every member: the manifest may come after what is odd
                content.problem = content.problem or odd
            if not content.problem and _holds_more(stream):
                content.problem = "something was added behind its end"
        except OutOfBoundsError as error:
            content.problem = str(error)
        except _DAMAGE as error:
            content.problem = content.problem or f"cannot be read to its end: it is cut or damaged ({error})"
    return content


@contextmanager
def _opened(bundle: Path) -> Iterator[tuple[tarfile.TarFile, BoundedStream]]:
    """The archive, and the stream that it is read from. Raises InputError where it is none."""
    with ExitStack() as stack:
        try:
            stream = BoundedStream(stack.enter_context(gzip.open(bundle)))
            archive = stack.enter_context(tarfile.open(fileobj=stream, mode="r:"))
        except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, ValueError, RecursionError) as error:
            raise InputError(f"{bundle}: is no .tar.gz: {error}") from error
        except OSError as error:
            raise InputError(f"{bundle}: cannot be read: {error.strerror or error}") from error
        yield archive, stream


def _holds_more(stream: BoundedStream) -> bool:
    """Whether anything but padding is left; what is cut or does not match the checksum raises here."""
    more = False
    while chunk := stream.read(CHUNK):
        more = more or any(chunk)
    return more


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, content: _Content) -> str:
    """Note what the member holds; says what is wrong with it. Raises OutOfBoundsError."""
    if len(member.name) > MAX_NAME:
        raise OutOfBoundsError(f"has a name of {len(member.name):,} characters; legal are {MAX_NAME}")
    if len(content.digests) >= MAX_FILES:
        raise OutOfBoundsError(f"has more than {MAX_FILES:,} files")
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        return f"{member.name}: leads out of the bundle"
    if member.isdir():  # as tar adds them to what it packs
        return ""
    if not member.isreg() or member.issparse():  # of a sparse file most was never stored, whatever its size
        return f"{member.name}: is no plain file"
    top, _, name = str(path).partition("/")
    if str(path) in content.digests or (top == content.top and name in content.small):
        return f"{name or top}: is there twice"
    if name in (MANIFEST, SIGNATURE) and content.top in ("", top):
        content.top = top
        content.small[name] = _bytes(archive, member, _IN_MEMORY[name])
    else:
        content.digests[str(path)] = _digest(archive, member)
    return ""


def _bytes(archive: tarfile.TarFile, member: tarfile.TarInfo, most: int) -> bytes:
    """Raises OutOfBoundsError where it is longer than `most` bytes."""
    if member.size > most:
        raise OutOfBoundsError(f"{member.name} is longer than {most:,} bytes")
    file, pieces = archive.extractfile(member), []
    while file and (chunk := file.read(CHUNK)):
        pieces.append(chunk)
    return b"".join(pieces)


def _digest(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file, digest = archive.extractfile(member), hashlib.sha256()
    while file and (chunk := file.read(CHUNK)):
        digest.update(chunk)
    return digest.hexdigest()
