"""Archives that stand for far more than they weigh end in one line, in bounded memory."""

import gzip
import io
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seatrial.bundle import MANIFEST
from seatrial.bundle import verify as bundle_verify
from seatrial.bundle.verify import CHUNK, BoundedStream, OutOfBoundsError
from seatrial.model.errors import InputError
from tests.unit.bundle.packed import TOP, run, verify

MEMORY = 64 << 20  # bytes
HUGE = 128 << 20  # bytes: more than may be in memory
MAX_FILES = 1000


def _header(kind: bytes, size: int, name: str = f"{TOP}/x", **pax: str) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.pax_headers = kind, size, pax
    return info.tobuf(tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT)


def _zeros(size: int) -> Iterator[bytes]:
    for _ in range(size >> 20):
        yield bytes(1 << 20)


def _extended_header() -> Iterator[bytes]:
    yield _header(tarfile.XHDTYPE, HUGE)
    yield from _zeros(HUGE)


def _long_name() -> Iterator[bytes]:
    yield _header(tarfile.GNUTYPE_LONGNAME, HUGE)
    yield from _zeros(HUGE)


def _long_manifest() -> Iterator[bytes]:
    yield _header(tarfile.REGTYPE, HUGE, f"{TOP}/{MANIFEST}")
    yield from _zeros(HUGE)


def _sparse_file() -> Iterator[bytes]:
    """Of 2^62 bytes, none of which is stored."""
    header = bytearray(_header(tarfile.GNUTYPE_SPARSE, 0))
    header[483:495] = b"\x80" + (1 << 62).to_bytes(11, "big")  # its size when it is unpacked
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    yield bytes(header)
    yield bytes(1024)


def _sparse_map() -> Iterator[bytes]:
    """A map whose first number never ends."""
    sparse = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "x",
        "GNU.sparse.realsize": "1",
    }
    yield _header(tarfile.REGTYPE, HUGE, **sparse)
    for _ in range(HUGE >> 20):
        yield b"1" * (1 << 20)


def _many_files() -> Iterator[bytes]:
    for n in range(MAX_FILES + 10):
        yield _header(tarfile.REGTYPE, 0, f"{TOP}/{n}")


def _headers_of_headers() -> Iterator[bytes]:
    for _ in range(20_000):
        yield _header(tarfile.XHDTYPE, 12) + b"12 path=abc\n".ljust(512, b"\0")


def _beyond_the_end() -> Iterator[bytes]:
    yield _header(tarfile.REGTYPE, 1 << 60)
    yield bytes(512)


BOMBS: list[Callable[[], Iterator[bytes]]] = [
    _extended_header,
    _long_name,
    _long_manifest,
    _sparse_file,
    _sparse_map,
    _many_files,
    _headers_of_headers,
    _beyond_the_end,
]


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_ends_in_one_line_and_in_bounded_memory(
    bomb: Callable[[], Iterator[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_verify, "MAX_FILES", MAX_FILES)
    target = tmp_path / "bomb.tar.gz"
    with gzip.open(target, "wb", compresslevel=1) as file:
        file.writelines(bomb())
    tracemalloc.start()
    try:
        result = run("verify", target)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(result.exception, InputError | SystemExit), result.exception
    assert result.exit_code != 0
    line = result.output.strip() or str(result.exception)
    assert "\n" not in line
    assert line.count("is no bundle of `seatrial bundle`") <= 1
    assert most < MEMORY


def test_a_sparse_file_is_no_plain_file(tmp_path: Path) -> None:
    target = tmp_path / "bomb.tar.gz"
    with gzip.open(target, "wb") as file:
        file.writelines(_sparse_file())
    status, output = verify(target)
    assert (status, "is no plain file" in output) == (2, True)


def test_bounded_stream_refuses_too_many_bytes_too_much_time_and_seeking_back() -> None:
    with pytest.raises(OutOfBoundsError, match="unpacks to more than 1,000 bytes"):
        BoundedStream(io.BytesIO(bytes(5000)), max_bytes=1000).seek(2000)
    with pytest.raises(OutOfBoundsError, match=r"takes longer than -1 s"):
        BoundedStream(io.BytesIO(bytes(5000)), max_seconds=-1).read(1)
    for size in (CHUNK + 1, -1):
        with pytest.raises(OutOfBoundsError, match="has a header of"):
            BoundedStream(io.BytesIO(bytes(CHUNK * 2))).read(size)
    with pytest.raises(OutOfBoundsError, match="leads back"):
        stream = BoundedStream(io.BytesIO(bytes(100)))
        stream.read(50)
        stream.seek(10)
