"""Verify a bundle without unpacking it to disk, or the folder that it was unpacked to."""

import gzip
import hashlib
import io
import os
import tarfile
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from seatrial.bundle import MANIFEST, SIGNATURE
from seatrial.bundle.pack import (
    NOBODY,
    SignatureCheck,
    TrustedSigners,
    check,
    first_difference,
    read_manifest,
)
from seatrial.model.errors import InputError, os_errors_named
from seatrial.system.private import read_opener

MAX_FILES = 20_000
MAX_NAME = 512  # characters
MAX_MANIFEST = 8 << 20  # bytes: more than MAX_FILES lines of a usual length
MAX_SIGNATURE = 64 << 10
MAX_UNPACKED = 64 << 30  # bytes
MAX_SECONDS = 1800.0
CHUNK = 64 << 10  # bytes: the longest piece that is read at once, a header's included
_HERE = "."  # the top of a folder, which has no name of its own
_IN_MEMORY = {MANIFEST: MAX_MANIFEST, SIGNATURE: MAX_SIGNATURE}  # bytes
# Set-user-ID, executable, writable for all
_ODD_MODE = 0o7113
_ODD_FOLDER_MODE = 0o7002
# RecursionError: deeply nested headers; ValueError: malformed numbers
_DAMAGE = (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, RecursionError)


class OutOfBoundsError(tarfile.TarError):
    """The archive exceeds a limit of bundles, which the message names."""


class BoundedStream(io.RawIOBase):
    """A decompressed stream whose bytes, time and longest piece are bounded.

    Reading raises OutOfBoundsError beyond `max_bytes`, after `max_seconds`, and for a piece longer
    than CHUNK.

    tarfile reads an extended header (pax, a long name, a sparse map) into memory whole, of any
    size. What is skipped is read, so that it counts as well.
    """

    def __init__(
        self,
        stream: io.BufferedIOBase,
        max_bytes: int = MAX_UNPACKED,
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._deadline = time.monotonic() + max_seconds
        self._position = 0

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, which must be given; fewer only at the end."""
        if not 0 <= size <= CHUNK:
            raise OutOfBoundsError(f"has a header of {size:,} bytes; legal are {CHUNK:,}")
        if self._position + size > self._max_bytes:
            raise OutOfBoundsError(f"unpacks to more than {self._max_bytes:,} bytes")
        if time.monotonic() > self._deadline:
            raise OutOfBoundsError(f"takes longer than {self._max_seconds:g} s to read")
        data = self._stream.read(size)
        self._position += len(data)
        return data

    def tell(self) -> int:
        """Return how many bytes were read so far."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek forward by reading; past the end, stay at the end."""
        if whence != io.SEEK_SET or offset < self._position:
            raise OutOfBoundsError("leads back to what was read before")
        while self._position < offset:
            left = offset - self._position
            if not self.read(min(CHUNK, left)):
                break
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Verified:
    """`problem` names the first difference, "" without one; `by` is the signer, "" without a
    signature.

    `files` is how many were compared: all but the manifest and its signature.
    """

    files: int
    by: str = ""
    problem: str = ""


@dataclass(slots=True)
class _Content:
    """Digests of an archive by path; `top` is the manifest's folder, `problem` the first one found.

    `small` has the content of the manifest and of its signature, by name. `folders` are folders
    among the members, and all parents of members.
    """

    top: str = ""
    digests: dict[str, str] = field(default_factory=dict)
    small: dict[str, bytes] = field(default_factory=dict)
    problem: str = ""
    folders: set[str] = field(default_factory=set)

    def is_folder_too(self, path: PurePosixPath, *, is_folder: bool) -> bool:
        """Return whether a member makes the same name both a file and a folder."""
        above = list(map(str, path.parents))
        if is_folder:
            above.append(str(path))
        self.folders.update(above)
        if not is_folder and str(path) in self.folders:
            return True
        small = {f"{self.top}/{name}" for name in self.small}
        return any(name in self.digests or name in small for name in above)


def verify(bundle: Path, trusted: TrustedSigners = NOBODY) -> Verified:
    """Check every file of an archive or folder against the manifest, and the manifest against the
    signature.

    Raises InputError for files that are no bundle and for invalid keys.
    """
    content = _read_folder(bundle) if bundle.is_dir() else _read(bundle)
    manifest = content.small.get(MANIFEST)
    if manifest is None:
        words = f"{bundle}: holds no {MANIFEST}, so it is no bundle of `seatrial bundle`"
        if content.problem:
            words += f" ({content.problem})"
        raise InputError(words)
    signed = check(manifest, content.small.get(SIGNATURE), trusted)
    return Verified(len(content.digests), signed.by, _problem(content, signed))


def _problem(content: _Content, signed: SignatureCheck) -> str:
    """Return the first problem: with the signature, in reading, then against the manifest; "" if
    there is none.
    """
    if signed.problem or content.problem:
        return signed.problem or content.problem
    try:
        listed = read_manifest(content.small[MANIFEST].decode("utf-8", "surrogateescape"))
    except ValueError as error:
        return f"{MANIFEST}: {error}"
    top = f"{content.top}/"
    folders = content.folders - {".", content.top}
    for path in (*content.digests, *sorted(folders)):
        if not path.startswith(top):
            return f"{path}: was added"
    found = {path.removeprefix(top): digest for path, digest in content.digests.items()}
    return first_difference(listed, found)


def _read_folder(folder: Path) -> _Content:
    """Read the files of a folder as far as possible, without following links.

    A limit that is exceeded ends the reading; a file that cannot be read is a problem, and the
    others are read.
    """
    content = _Content(top=_HERE)
    deadline = time.monotonic() + MAX_SECONDS
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for name in (*sorted(names), *links):
            path = Path(parent) / name
            relative = path.relative_to(folder).as_posix()
            try:
                if len(content.digests) >= MAX_FILES or time.monotonic() > deadline:
                    raise OutOfBoundsError(
                        f"has more than {MAX_FILES:,} files, or takes longer than {MAX_SECONDS:g} s"
                    )
                _take_file(path, relative, content)
            except OutOfBoundsError as error:
                content.problem = content.problem or str(error)
                return content
            except OSError:
                content.problem = (
                    content.problem or f"{relative}: is no plain file, or cannot be read"
                )
    return content


def _take_file(path: Path, name: str, content: _Content) -> None:
    """Add a file of a folder.

    Raises OutOfBoundsError, and OSError for a link or anything else that is no file.
    """
    with open(path, "rb", opener=read_opener) as file:
        most = _IN_MEMORY.get(name)
        if most is None:
            digest = hashlib.file_digest(file, "sha256")
            content.digests[f"{_HERE}/{name}"] = digest.hexdigest()
            return
        content.small[name] = file.read(most + 1)
        if len(content.small[name]) > most:
            raise OutOfBoundsError(f"{name} is longer than {most:,} bytes")


def _read(bundle: Path) -> _Content:
    """Read the archive as far as possible.

    Raises InputError if the file is no archive; an error within it is a problem of the content.
    """
    content = _Content()
    with _opened(bundle) as (archive, stream):
        try:
            while member := archive.next():
                # tarfile keeps all members, and has no public way to forget them
                vars(archive)["members"].clear()
                # Take every member: the manifest may come after an odd one
                odd = _take(archive, member, content)
                content.problem = content.problem or odd
            if not content.problem and _holds_more(stream):
                content.problem = "something was added behind its end"
        except OutOfBoundsError as error:
            content.problem = str(error)
        except _DAMAGE as error:
            content.problem = (
                content.problem or f"cannot be read to its end: it is cut or damaged ({error})"
            )
    return content


@contextmanager
def _opened(bundle: Path) -> Iterator[tuple[tarfile.TarFile, BoundedStream]]:
    """Open archive and stream. Raises InputError if it is no archive."""
    with ExitStack() as stack:
        with os_errors_named(f"{bundle}: cannot be read"):
            try:
                stream = BoundedStream(stack.enter_context(gzip.open(bundle)))
                archive = stack.enter_context(tarfile.open(fileobj=stream, mode="r:"))
            except (
                tarfile.TarError,
                gzip.BadGzipFile,
                EOFError,
                zlib.error,
                ValueError,
                RecursionError,
            ) as error:
                raise InputError(f"{bundle}: is no .tar.gz: {error}") from error
        yield archive, stream


def _holds_more(stream: BoundedStream) -> bool:
    """Return whether more than padding is left; a cut stream or a bad checksum raises."""
    more = False
    while chunk := stream.read(CHUNK):
        more = more or any(chunk)
    return more


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, content: _Content) -> str:
    """Add the member to `content`; return its problem or "". Raises OutOfBoundsError."""
    if len(member.name) > MAX_NAME:
        raise OutOfBoundsError(
            f"has a name of {len(member.name):,} characters; legal are {MAX_NAME}"
        )
    if len(content.digests) >= MAX_FILES:
        raise OutOfBoundsError(f"has more than {MAX_FILES:,} files")
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        return f"{member.name}: leads out of the bundle"
    if problem := _odd_kind(member):
        return f"{member.name}: {problem}"
    top, _, name = str(path).partition("/")
    if content.is_folder_too(path, is_folder=member.isdir()):
        return f"{name or top}: is there as a file and as a folder"
    if member.isdir():  # as tar adds them to what it packs
        return ""
    if str(path) in content.digests or (top == content.top and name in content.small):
        return f"{name or top}: is there twice"
    if name in (MANIFEST, SIGNATURE) and content.top in ("", top):
        content.top = top
        if member.size > _IN_MEMORY[name]:
            raise OutOfBoundsError(f"{member.name} is longer than {_IN_MEMORY[name]:,} bytes")
        content.small[name] = b"".join(_chunks(archive, member))
    else:
        digest = hashlib.sha256()
        for chunk in _chunks(archive, member):
            digest.update(chunk)
        content.digests[str(path)] = digest.hexdigest()
    return ""


def _odd_kind(member: tarfile.TarInfo) -> str:
    """Return what the member is if it is neither a plain file nor a plain folder; else ""."""
    # Most of a sparse file was never stored
    if not (member.isreg() or member.isdir()) or member.issparse():
        return "is no plain file"
    if member.mode & (_ODD_FOLDER_MODE if member.isdir() else _ODD_MODE):
        return f"has mode {member.mode:o}, which no file of a bundle has"
    return ""


def _chunks(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    """Yield the content of a file in pieces of CHUNK bytes at most; nothing for a folder."""
    file = archive.extractfile(member)
    while file and (chunk := file.read(CHUNK)):
        yield chunk
