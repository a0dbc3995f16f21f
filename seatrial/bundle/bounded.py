"""Read an archive of unknown origin in bounded memory and time: a few bytes may stand for any number of them."""

import io
import tarfile
import time

MAX_FILES = 20_000
MAX_NAME = 512  # characters
MAX_MANIFEST = 8 << 20  # bytes: more than MAX_FILES lines of a usual length
MAX_SIGNATURE = 64 << 10
MAX_UNPACKED = 64 << 30  # bytes
MAX_SECONDS = 1800.0
CHUNK = 64 << 10  # bytes: the longest piece that is read at once, a header's included


class OutOfBoundsError(tarfile.TarError):
    """The archive holds more than any bundle; the text says what, and the limit."""


class BoundedStream(io.RawIOBase):
    """A decompressed stream whose bytes, time and longest piece are bounded.

    tarfile reads an extended header (pax, a long name, a sparse map) into memory whole, whatever size it says.
    Whatever is skipped is read, so that it counts as well. Raises OutOfBoundsError.
    """

    def __init__(
        self, stream: io.BufferedIOBase, max_bytes: int = MAX_UNPACKED, max_seconds: float = MAX_SECONDS
    ) -> None:
        self._stream, self._max_bytes, self._max_seconds = stream, max_bytes, max_seconds
        self._deadline = time.monotonic() + max_seconds
        self._position = 0

    def read(self, size: int = -1) -> bytes:
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
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Forward only, by reading; past the end it stays at the end."""
        if whence != io.SEEK_SET or offset < self._position:
            raise OutOfBoundsError("leads back to what was read before")
        while self._position < offset and self.read(min(CHUNK, offset - self._position)):
            pass
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
