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
from seatrial.bundle.manifest import first_difference, read_manifest
from seatrial.bundle.signature import NOBODY, Signed, Trusted, check
from seatrial.errors import InputError

_SMALL = 64 << 20  # bytes: manifest and signature are read into memory, and no more of them than that
_CHUNK = 1 << 20
_DAMAGE = (tarfile.TarError, OSError, EOFError, zlib.error)


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


def verify(bundle: Path, trusted: Trusted = NOBODY) -> Verified:
    """Hold every file against the manifest, and the manifest against the signature.

    Raises InputError for what is no bundle at all, and for keys that are none.
    """
    content = _read(bundle)
    if MANIFEST not in content.small:
        said = f" ({content.problem})" if content.problem else ""
        raise InputError(f"{bundle}: holds no {MANIFEST}, so it is no bundle of `seatrial bundle`{said}")
    signed = check(content.small[MANIFEST], content.small.get(SIGNATURE), trusted)
    return Verified(len(content.digests), signed.by, _problem(content, signed))


def _problem(content: _Content, signed: Signed) -> str:
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
            for member in archive:
                odd = _take(archive, member, content)  # of every member: the manifest may come after what is odd
                content.problem = content.problem or odd
            if not content.problem and _holds_more(stream):
                content.problem = "something was added behind its end"
        except _DAMAGE as error:
            content.problem = content.problem or f"cannot be read to its end: it is cut or damaged ({error})"
    return content


@contextmanager
def _opened(bundle: Path) -> Iterator[tuple[tarfile.TarFile, gzip.GzipFile]]:
    """The archive, and the stream that it is read from. Raises InputError where it is none."""
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(gzip.open(bundle))
            archive = stack.enter_context(tarfile.open(fileobj=stream, mode="r:"))
        except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"{bundle}: is no .tar.gz: {error}") from error
        except OSError as error:
            raise InputError(f"{bundle}: cannot be read: {error.strerror or error}") from error
        yield archive, stream


def _holds_more(stream: gzip.GzipFile) -> bool:
    """Whether anything but padding is left; what is cut or does not match the checksum raises here."""
    more = False
    while chunk := stream.read(_CHUNK):
        more = more or any(chunk)
    return more


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, content: _Content) -> str:
    """Note what the member holds; says what is wrong with it."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        return f"{member.name}: leads out of the bundle"
    if member.isdir():  # as tar adds them to what it packs
        return ""
    if not member.isreg():
        return f"{member.name}: is no plain file"
    top, _, name = str(path).partition("/")
    if str(path) in content.digests or (top == content.top and name in content.small):
        return f"{name or top}: is there twice"
    if name in (MANIFEST, SIGNATURE) and content.top in ("", top):
        content.top = top
        content.small[name] = _bytes(archive, member)
    else:
        content.digests[str(path)] = _digest(archive, member)
    return ""


def _bytes(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return file.read(_SMALL) if file else b""


def _digest(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file, digest = archive.extractfile(member), hashlib.sha256()
    while file and (chunk := file.read(_CHUNK)):
        digest.update(chunk)
    return digest.hexdigest()
