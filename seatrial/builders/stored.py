"""Images that exist."""

from dataclasses import dataclass

from seatrial.model.errors import SeatrialError


class UnreachableError(SeatrialError):
    """A registry cannot be asked whether an image exists; the message says why."""


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image that exists: the digest of its manifest, and its architectures (amd64, arm64) if
    known.
    """

    digest: str
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """The image that nodes run.

    `digest` is None if it is unknown; `fresh`: it was built just now.
    """

    reference: str
    digest: str | None = None
    architectures: tuple[str, ...] = ()
    fresh: bool = False

    @property
    def pinned(self) -> str:
        """The reference with its digest, which names this image alone."""
        bare = self.reference.partition("@")[0]
        return f"{bare}@{self.digest}" if self.digest else self.reference
